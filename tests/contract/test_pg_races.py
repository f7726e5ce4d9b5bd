"""Two processes that do the same thing at once: what may happen once happens once, and a limit is a limit for all of them.

One process has written and not committed when the other one begins, which so can't see it and must wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import attrs
import pytest

from callboard.storage.model.access import Grant, Kind, Purpose
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.approvals import ApprovalState
from callboard.storage.model.errors import (
    Conflict,
    IllegalMove,
    MessageConflict,
    PathTaken,
    TooManyChildren,
    Unauthorized,
)
from callboard.storage.model.limits import CHILDREN_PER_PARENT
from callboard.storage.model.messages import Receipt
from callboard.storage.model.policies import By
from callboard.storage.model.states import Reason
from callboard.storage.ops import (
    AddMember,
    AnswerApproval,
    Cancel,
    DeleteSession,
    Fail,
    IssueTicket,
    Op,
    RedeemTicket,
    RequestApproval,
    SuspendMember,
)
from callboard.storage.ops.sessions import Opened, open_session, update_session
from callboard.tests.contract.pg_kit import SCOPE, Process, commit, post, processes, together

Lend = Callable[[], AbstractContextManager[str]]


@pytest.fixture
async def two(postgres: Lend) -> AsyncIterator[tuple[Process, Process]]:
    with postgres() as url:
        async with processes(url) as (a, b):
            yield a, b


async def at_once(two: tuple[Process, Process], first: Sequence[Op[Any]], second: Sequence[Op[Any]]) -> list[list[Any]]:
    """What a batch of each answers; the second is begun when the first has written everything and not committed."""
    a, b = two
    gate = await a.gate()

    async def late() -> list[Any]:
        await gate.reached.wait()
        return await b.batch(*second)

    async def opening() -> None:
        await a.blocked()
        gate.open()

    one, other, opened = await together(partial(a.batch, *first), late, opening)
    assert opened is None
    return [one, other]


@pytest.mark.spec("INB-4")
@pytest.mark.parametrize("content", ["the same", "another"])
async def test_one_message_id_at_two_processes_is_one_message(two: tuple[Process, Process], content: str) -> None:
    session, other = await two[0].open(), await two[0].open()
    first = post(session, "the same", message_id="m-1")
    # Its target is another mailbox where it differs, so it is the key alone that both write.
    second = (
        post(session, content, message_id="m-1") if content == "the same" else post(other, content, message_id="m-1")
    )
    (one,), (again, beside) = await at_once(two, [first], [second, post(other, "bystander")])
    assert one.created
    assert isinstance(beside, Receipt)
    if content == "the same":
        assert (again.created, again.id, again.seq) == (False, one.id, one.seq)
    else:
        assert isinstance(again, MessageConflict)
    assert await two[0].rows("SELECT count(*) FROM message WHERE message_id = 'm-1'") == [(1,)]


@pytest.mark.parametrize("agent", ["echo", "other"])
async def test_one_path_at_two_processes_is_one_session(two: tuple[Process, Process], agent: str) -> None:
    ((one,), (again,)) = await at_once(
        two, [open_session(SCOPE, "echo", path="/desk")], [open_session(SCOPE, agent, path="/desk")]
    )
    assert one.created
    if agent == "echo":
        assert isinstance(again, Opened)
        assert (again.session.id, again.created) == (one.session.id, False)
    else:
        assert isinstance(again, PathTaken)


async def test_a_project_that_both_make_is_one(two: tuple[Process, Process]) -> None:
    fresh = Scope("default", "fresh")
    (one,), (other,) = await at_once(two, [open_session(fresh, "echo")], [open_session(fresh, "echo")])
    assert one.created
    assert other.created
    assert await two[0].rows("SELECT count(DISTINCT scope), count(*) FROM session") == [(1, 2)]


@pytest.mark.spec("SES-8")
async def test_children_are_counted_over_all_processes(two: tuple[Process, Process]) -> None:
    parent = await two[0].open()
    children = [open_session(SCOPE, "echo", parent=parent.id) for _ in range(CHILDREN_PER_PARENT + 2)]
    first, second = await at_once(two, children[:3], children[3:])
    assert [type(answer) for answer in first] == [Opened] * 3
    assert [type(answer) for answer in second] == [Opened] + [TooManyChildren] * 2


@pytest.mark.spec("AUTH-1")
async def test_a_ticket_has_one_user(two: tuple[Process, Process]) -> None:
    await two[0].open()
    await two[0].apply(IssueTicket(SCOPE, b"t" * 32, Purpose.WEBSOCKET, Grant(Kind.OPERATOR, None, False), 30.0))
    uses = [RedeemTicket(b"t" * 32, Purpose.WEBSOCKET, by) for by in ("tok_a", "tok_b")]
    (one,), (other,) = await at_once(two, uses[:1], uses[1:])
    assert one.grant.kind is Kind.OPERATOR
    assert isinstance(other, Unauthorized)


@pytest.mark.spec("EVT-6")
async def test_a_question_has_one_answer(two: tuple[Process, Process]) -> None:
    session = await two[0].open()
    await two[0].post(session)
    (claimed,) = await two[0].claim()
    await two[0].apply(RequestApproval(claimed.lease, "app_1", "call:0", "tool", {}))
    answers = [AnswerApproval(SCOPE, "app_1", approve, by) for approve, by in ((True, "ann"), (False, "bob"))]
    (one,), (other,) = await at_once(two, answers[:1], answers[1:])
    assert one.state is ApprovalState.APPROVED
    assert isinstance(other, Conflict)
    assert await two[0].rows("SELECT state, answered_by FROM approval") == [("approved", "ann")]


@pytest.mark.spec("AUTH-3")
async def test_a_member_who_is_suspended_meanwhile_is_so_in_every_project(two: tuple[Process, Process]) -> None:
    await two[0].apply(AddMember(SCOPE, "ann"))
    await at_once(two, [SuspendMember("default", "ann")], [AddMember(Scope("default", "second"), "ann")])
    assert await two[0].rows("SELECT suspended_at IS NOT NULL FROM member") == [(1,), (1,)]


@pytest.mark.spec("INB-2")
async def test_what_is_claimed_meanwhile_can_not_be_cancelled(two: tuple[Process, Process]) -> None:
    a, b = two
    session = await a.open()
    receipt = await a.post(session)
    gate = await a.gate()

    async def late() -> Any:
        await gate.reached.wait()
        return await b.apply(Cancel(SCOPE, receipt.id))

    async def opening() -> None:
        await a.blocked()
        gate.open()

    (claimed,), refused, _ = await together(a.claim, late, opening)
    assert isinstance(refused, IllegalMove)
    assert (await a.apply(commit(claimed))).seq == 2


@pytest.mark.spec("INB-11", "SES-10")
async def test_a_sender_whose_message_came_while_its_target_was_deleted_is_told(two: tuple[Process, Process]) -> None:
    """Nobody could know of the sender when the deletion began, so its mailbox is locked late; its numbers go on nevertheless."""
    a, b = two
    target, sender = await a.open(), await a.open()
    me = Sender(sender.id, "session", "me")
    first = [post(target, sender=me), post(sender, "to the sender itself")]
    await at_once(two, first, [DeleteSession(SCOPE, target.id, attrs.evolve(me))])
    contents = await b.rows(
        "SELECT content FROM entry JOIN session USING (mailbox) WHERE deleted_at IS NULL ORDER BY seq"
    )
    assert [content.partition(":")[0].split(" msg_")[0] for (content,) in contents] == [
        "to the sender itself",
        "Your message",
    ]
    assert await a.rows(
        "SELECT last_seq, depth FROM mailbox JOIN session ON mailbox = mailbox.id WHERE deleted_at IS NULL"
    ) == [(2, 2)]


@pytest.mark.spec("SES-8", "SES-10")
async def test_ends_of_two_children_and_a_failure_meet_in_one_mailbox(two: tuple[Process, Process]) -> None:
    a, _ = two
    parent = await a.open()
    me = Sender(parent.id, "session", "me")
    for _ in range(3):
        child = (await a.apply(open_session(SCOPE, "echo", parent=parent.id))).session
        await a.post(child, sender=me)
    x, y, z = await a.claim()
    counted = [await process.counted() for process in two]
    first, second = await at_once(two, [commit(x, "one")], [commit(y, "two"), Fail(z.lease, Reason.UNDECODABLE, "no")])
    assert len(first + second) == 3
    assert [count.begun for count in counted] == [1, 1]
    # Two answers, the failure as the child's result, and its non-delivery notice.
    assert await a.rows("SELECT last_seq, last_event, depth, due IS NOT NULL FROM mailbox ORDER BY id LIMIT 1") == [
        (4, 4, 4, 1)
    ]


@pytest.mark.spec("NS-1", "NS-3")
@pytest.mark.parametrize("how", ["both move", "one opens"])
async def test_a_path_that_two_processes_want_is_one_sessions(two: tuple[Process, Process], how: str) -> None:
    one, other = await two[0].open(path="/one"), await two[0].open(path="/other")
    first = update_session(SCOPE, one.id, path="/wanted", by=By.MEMBER)
    second: Op[Any] = update_session(SCOPE, other.id, path="/wanted", by=By.MEMBER)
    if how == "one opens":
        second = open_session(SCOPE, "echo", path="/wanted", must_create=True, by=By.MEMBER)
    (moved,), (refusal,) = await at_once(two, [first], [second])
    assert moved.id == one.id
    assert isinstance(refusal, PathTaken)
    assert await two[1].rows("SELECT id FROM session WHERE path = '/wanted'") == [(one.id,)]
