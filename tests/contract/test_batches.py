"""Batches: ops that share a transaction share nothing else. A bad one fails alone, whatever it has written before it failed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import CallboardError, MailboxFull, MessageConflict, Rejected, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Status
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import CommitTurn, Enqueue, Op, RecordStep
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session


class Stranger(Op[None]):
    """An op that no driver knows."""


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


def send(kit: Kit, session: Session, content: str = "good", **fields: Any) -> Enqueue:
    return enqueue(kit.scope, session_address(session.id), kit.ann, content, **fields)


BAD = [
    "unbindable text",
    "number too large",
    "no such type",
    "unknown op",
    "not JSON",
    "nested too deeply",
    "refused after writing",
]


async def bad_op(kit: Kit, session: Session, fault: str) -> Op[Any]:
    if fault == "unbindable text":
        return attrs.evolve(send(kit, session), content="\ud800")
    if fault == "number too large":
        return send(kit, session, hops=2**80)
    if fault == "no such type":
        return attrs.evolve(send(kit, session), reply_to=object())
    if fault == "unknown op":
        return Stranger()
    if fault == "refused after writing":
        return open_session(Scope("brand", "new"), "echo", parent="ses_nowhere")
    await kit.post(session, "head")
    lease = (await kit.claim(session)).lease
    sends = (send(kit, session, "sent by the bad one"),)
    data = {"n": float("nan")} if fault == "not JSON" else deep()
    return RecordStep(lease, "call:0", StepKind.CALL, 0, done=True, data=data, sends=sends)


@pytest.mark.spec("INB-13")
@pytest.mark.parametrize("fault", BAD)
async def test_one_bad_op_in_a_batch_fails_alone(kit: Kit, fault: str) -> None:
    session, bad_one = await kit.open(), await kit.open()
    bad = await bad_op(kit, bad_one, fault)
    written = await kit.entries(bad_one)
    good = [send(kit, session, f"{n}") for n in range(4)]
    answers = await kit.together(*good[:2], bad, *good[2:])
    assert isinstance(answers[2], UnknownTarget if fault == "refused after writing" else Rejected)
    del answers[2]
    assert all(answer.created for answer in answers)
    assert sorted(entry.content for entry in await kit.entries(session)) == ["0", "1", "2", "3"]
    assert sorted(answer.seq for answer in answers) == [1, 2, 3, 4]
    assert await kit.entries(bad_one) == written
    # The store lives on, and what failed can be done rightly.
    assert (await kit.post(bad_one, "right")).created
    assert (await kit.post(session, "after")).seq == 5


@pytest.mark.spec("INB-13")
@pytest.mark.parametrize("fault", ["half a surrogate pair", "NUL", "a number too large"])
async def test_an_op_on_what_no_row_can_be_called_fails_alone(kit: Kit, fault: str) -> None:
    session = await kit.open()
    for n in range(2):  # the project is known by then, so that nothing has to be asked before the recipients
        await kit.post(session, f"warm {n}")
    bad: Op[Any]
    if fault == "a number too large":
        lease = attrs.evolve((await kit.claim(session)).lease, mailbox=2**70)
        bad = CommitTurn(lease, Outcome.ANSWERED, "done", (lease.head,))
    else:
        bad = attrs.evolve(send(kit, session), recipient="session:\ud800" if fault != "NUL" else "session:\0")
    refused, *answers = await kit.together(bad, *(send(kit, session, f"{n}") for n in range(3)))
    assert isinstance(refused, CallboardError)
    assert all(answer.created for answer in answers)


@pytest.mark.spec("INB-13")
async def test_refusals_in_a_batch_reach_their_callers_alone(kit: Kit) -> None:
    session, full = await kit.open(), await kit.open()
    await kit.post(session, "first", message_id="m-1")
    await kit.post(full)
    ops: list[Op[Any]] = [
        send(kit, session, "second"),
        send(kit, session, "other text", message_id="m-1"),
        send(kit, full, depth_limit=1),
        enqueue(kit.scope, "session:nowhere", kit.ann, "hi"),
        send(kit, session, "third"),
        send(kit, session, "first", message_id="m-1"),
    ]
    answers = await kit.together(*ops)
    assert [type(answer) for answer in answers[1:4]] == [MessageConflict, MailboxFull, UnknownTarget]
    assert [answers[n].created for n in (0, 4, 5)] == [True, True, False]
    assert len(await kit.entries(session)) == 3
    assert len(await kit.entries(full)) == 1


@pytest.mark.spec("INB-13")
async def test_a_storm_of_good_and_bad_ops_leaves_what_the_good_ones_alone_would(kit: Kit) -> None:
    chance = random.Random(7)
    sessions = [await kit.open() for _ in range(3)]
    expected: dict[str, list[str]] = {session.id: [] for session in sessions}
    for n in range(12):
        ops: list[Enqueue] = []
        for m in range(chance.randrange(1, 12)):
            session = chance.choice(sessions)
            op = send(kit, session, f"{n}.{m}")
            if chance.random() < 0.3:
                op = attrs.evolve(op, content="\ud800")
            else:
                expected[session.id].append(op.content)
            ops.append(op)
        answers = await kit.together(*ops)
        assert [isinstance(answer, CallboardError) for answer in answers] == [op.content == "\ud800" for op in ops]
    for session in sessions:
        entries = await kit.entries(session)
        assert sorted(entry.content for entry in entries) == sorted(expected[session.id])
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert [event.id for event in await kit.events(session)] == [entry.seq for entry in entries]


@pytest.mark.spec("MSG-1", "EVT-2", "INB-6")
@pytest.mark.parametrize("undecodable", [False, True])
@pytest.mark.parametrize("told", [False, True])
async def test_ends_of_turns_and_sends_behind_them_number_what_they_write_one_after_the_other(
    kit: Kit, undecodable: bool, told: bool
) -> None:
    parent, other = await kit.open(), await kit.open()
    child = await kit.child(parent) if told else await kit.open()
    if not told:
        await kit.post(child)
    await kit.post(other)
    claimed = await kit.claims(limit=2)
    late = {session_address(session.id): (await kit.post(session, "behind")).id for session in (child, other)}
    lost = {address: (uid,) if undecodable else () for address, uid in late.items()}
    ends = [kit.commit_op(each, undecodable=lost[each.lease.recipient]) for each in claimed]
    sessions = (child, other, parent)
    sends = [send(kit, session, f"{n}") for n in range(2) for session in sessions]
    answers = await kit.together(*ends, *sends)
    assert not [answer for answer in answers if isinstance(answer, CallboardError)]
    for session in sessions:
        entries = await kit.entries(session)
        assert {entry.content for entry in entries[-2:]} == {"0", "1"}
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        events = await kit.events(session)
        assert [event.id for event in events] == list(range(1, len(events) + 1))
    # A parent was told of its child's end before it got the messages.
    assert len(await kit.entries(parent)) == 2 + told
    taken: dict[str, list[int]] = {session_address(session.id): [] for session in sessions}
    while found := await kit.claims():
        for each in found:
            taken[each.lease.recipient].append(each.head.seq)
            await kit.commit(each)
    assert all(len(seqs) >= 2 and seqs == sorted(seqs) for seqs in taken.values()), taken


@pytest.mark.parametrize("refusal", ["conflict", "full", "unknown", "unbindable"])
@pytest.mark.parametrize("alone", [True, False])
async def test_what_a_step_sends_is_refused_as_a_whole(kit: Kit, refusal: str, alone: bool) -> None:
    session, other = await kit.open(), await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session)
    me = Sender(session.id, "session")
    await kit.store.apply(enqueue(kit.scope, session_address(other.id), me, "used", message_id="m-1"))
    last = {
        "conflict": enqueue(kit.scope, session_address(other.id), me, "other text", message_id="m-1"),
        "full": enqueue(kit.scope, session_address(other.id), me, "hi", depth_limit=1),
        "unknown": enqueue(kit.scope, "session:nowhere", me, "hi"),
        "unbindable": attrs.evolve(enqueue(kit.scope, session_address(other.id), me, "hi"), content="\ud800"),
    }[refusal]
    first = enqueue(kit.scope, session_address(other.id), me, "goes with it", kind=Kind.AGENT_MESSAGE)
    op = RecordStep(
        claimed.lease,
        "call:0",
        StepKind.CALL,
        0,
        done=True,
        data={},
        opens=(open_session(kit.scope, "echo", path="/opened"),),
        sends=(first, last),
    )
    before = await kit.snapshot()
    bystander = send(kit, await kit.open(), "bystander")
    kinds = {"conflict": MessageConflict, "full": MailboxFull, "unknown": UnknownTarget, "unbindable": Rejected}
    answers = await kit.together(op) if alone else await kit.together(op, bystander)
    assert isinstance(answers[0], kinds[refusal])
    assert await kit.store.reads.steps(kit.scope, claimed.head.id) == ()
    with pytest.raises(UnknownTarget):
        await kit.store.reads.session_at(kit.scope, "/opened")
    assert [entry.content for entry in await kit.entries(other)] == ["used"]
    if alone:
        after = await kit.snapshot()
        assert {key: after[key] for key in before if not key.startswith("Scope")} == {
            key: value for key, value in before.items() if not key.startswith("Scope")
        }
    else:
        assert answers[1].created
    # The caller records the refusal as the call's result instead.
    recorded = await kit.store.apply(attrs.evolve(op, sends=(), opens=(), result={"error": "refused"}))
    assert recorded.result == {"error": "refused"}
    assert (await kit.message(claimed.head.id)).status is Status.PROCESSING
