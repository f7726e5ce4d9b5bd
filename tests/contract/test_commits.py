"""The end of a turn is one transaction: answer, states, markers, events and wake-ups are there together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.model.errors import IllegalMove, LeaseLost, Rejected
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import CommitTurn, Fail, HandBack, Retry
from callboard.storage.ops.deliveries import End

if TYPE_CHECKING:
    from conftest import Kit

pytestmark = pytest.mark.parametrize("store", ["memory", "file", "postgres"], indirect=True)


@pytest.mark.spec("INB-8")
async def test_a_commit_writes_all_that_a_turn_leaves(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent, "add up")
    notice = await kit.post(child, "by the way", kind=Kind.NOTICE)
    claimed = await kit.claim(child)
    ended = await kit.commit(claimed, "42", tail="4", block=1)
    assert (ended.end, ended.status, ended.seq) == (End.COMMITTED, Status.DELIVERED, 3)
    answer = (await kit.entries(child))[-1]
    assert (answer.seq, answer.role, answer.content, answer.in_reply_to) == (3, "assistant", "42", claimed.head.id)
    assert answer.sender.id == child.id
    view = await kit.message(claimed.head.id)
    assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.ANSWERED)
    assert view.stages["committed"] >= view.stages["surfaced"]
    assert (await kit.kinds(child))[-2:] == ["turn.token", "turn.completed"]
    terminal = (await kit.events(child))[-1]
    assert terminal.data["turn_id"] == terminal.turn == view.turn_id
    assert (terminal.data["attempt"], terminal.data["outcome"], terminal.data["content"]) == (1, "answered", "42")
    (result,) = await kit.entries(parent)
    assert (result.role, result.content) == ("notice", "42")
    # The notice came after the head, so it was not part of the turn and still waits for the next one.
    assert (await kit.message(notice.id)).status is Status.PENDING
    assert ended.due is None


@pytest.mark.spec("INB-8")
@pytest.mark.parametrize("fault", ["unbindable tail", "pending row", "row of another turn", "row twice", "no head"])
async def test_a_commit_that_fails_half_way_leaves_nothing(kit: Kit, fault: str) -> None:
    """The answer's entry, the delivered states and the markers are written before each of these faults shows."""
    parent = await kit.open()
    child, other = await kit.child(parent), await kit.open()
    waiting = await kit.post(child, "waiting")
    await kit.post(other)
    mine, theirs = sorted(await kit.claims(), key=lambda claimed: claimed.session != child.id)
    waiting_row = mine.head.row + 1
    op = {
        "unbindable tail": kit.commit_op(mine, tail="\ud800", block=1),
        "pending row": kit.commit_op(mine, also=(waiting_row,)),
        "row of another turn": kit.commit_op(mine, also=(theirs.head.row,)),
        "row twice": kit.commit_op(mine, also=(mine.head.row,)),
        "no head": kit.commit_op(mine, consumed=()),
    }[fault]
    before = await kit.snapshot()
    with pytest.raises(Rejected if fault == "unbindable tail" else IllegalMove):
        await kit.store.apply(op)
    assert await kit.snapshot() == before
    assert await kit.entries(parent) == []
    # The lease is still good, and the same turn can end as it should.
    assert (await kit.commit(mine)).seq == 3
    assert (await kit.message(waiting.id)).status is Status.PENDING
    assert [entry.content for entry in await kit.entries(parent)] == ["done"]
    await kit.commit(theirs)


@pytest.mark.spec("INB-8")
async def test_a_row_is_consumed_by_one_turn_only(kit: Kit) -> None:
    session = await kit.open()
    await kit.turn(session, "first")
    await kit.post(session, "second")
    claimed = await kit.claim(session)
    before = await kit.snapshot()
    with pytest.raises(IllegalMove):
        await kit.store.apply(kit.commit_op(claimed, also=(claimed.head.row - 1,)))
    assert await kit.snapshot() == before


@pytest.mark.spec("INB-8", "SES-10")
@pytest.mark.parametrize(
    ("outcome", "answer", "terminal", "roles"),
    [
        (Outcome.ANSWERED, "yes", "turn.completed", ["user", "assistant"]),
        (Outcome.NO_VISIBLE_REPLY, None, "turn.completed", ["user"]),
        (Outcome.STOPPED, "part of it", "turn.stopped", ["user", "assistant"]),
        (Outcome.STOPPED, None, "turn.stopped", ["user"]),
    ],
)
async def test_each_outcome_has_its_terminal_event(
    kit: Kit, outcome: Outcome, answer: str | None, terminal: str, roles: list[str]
) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    ended = await kit.commit(await kit.claim(session), answer, outcome=outcome)
    view = await kit.message(receipt.id)
    assert (view.status, view.outcome, view.reason) == (Status.DELIVERED, outcome, None)
    assert [entry.role for entry in await kit.entries(session)] == roles
    assert (await kit.kinds(session))[-1] == terminal
    assert ended.seq == (2 if answer else None)


@pytest.mark.spec("INB-13")
async def test_a_repeated_commit_returns_its_first_result_whatever_came_after(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "first")
    await kit.post(session, "second")
    claimed = await kit.claim(session)
    op = kit.commit_op(claimed, "one")
    first = await kit.store.apply(op)
    assert first.due is not None
    assert await kit.store.apply(op) == first
    await kit.commit(await kit.claim(session), "two")
    before = await kit.snapshot()
    assert await kit.store.apply(op) == first
    assert await kit.snapshot() == before


@pytest.mark.spec("RT-8")
async def test_a_commit_of_an_older_epoch_is_not_taken_for_a_repeat(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    slow = await kit.claim(session, "slow", seconds=-1)
    await kit.commit(await kit.claim(session, "quick"), "the answer")
    with pytest.raises(LeaseLost):
        await kit.commit(slow, "another answer")
    assert [entry.content for entry in await kit.entries(session)] == ["hello", "the answer"]


@pytest.mark.spec("INB-13")
@pytest.mark.parametrize("first", ["commit", "retry", "fail", "hand back"])
async def test_a_turn_ends_once_at_an_epoch(kit: Kit, first: str) -> None:
    """Whatever end comes second is answered by what happened, or refused; it never happens as well."""
    session = await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session)
    ends: dict[str, CommitTurn | Retry | Fail | HandBack] = {
        "commit": kit.commit_op(claimed),
        "retry": Retry(claimed.lease, "boom", 3_600),
        "fail": Fail(claimed.lease, Reason.UNDECODABLE, "boom"),
        "hand back": HandBack(claimed.lease, "shutdown", 3_600),
    }
    ended = await kit.store.apply(ends.pop(first))
    before = await kit.snapshot()
    for op in ends.values():
        try:
            assert await kit.store.apply(op) == ended
        except LeaseLost:
            assert first == "commit" or isinstance(op, CommitTurn)
        assert await kit.snapshot() == before


async def test_a_childs_long_answer_reaches_its_parent_cut_to_what_a_message_may_hold(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    await kit.commit(await kit.claim(child), "x" * 50_000)
    assert len((await kit.entries(child))[-1].content) == 50_000
    (result,) = await kit.entries(parent)
    assert result.content.startswith("xxx")
    assert len(result.content) <= 20_000
    assert (await kit.store.reads.session(kit.scope, child.id)).child_state is ChildState.COMPLETED


@pytest.mark.parametrize("answer", [" ", "\n\t", "a\0b"])
async def test_a_childs_odd_answer_still_ends_it(kit: Kit, answer: str) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    await kit.commit(await kit.claim(child), answer)
    (result,) = await kit.entries(parent)
    assert result.content
    assert "\0" not in result.content
