"""Waiting for a message, and why a turn must not (SES-11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import NotFound, Turn, WouldDeadlock
from callboard.actors.session.agents.blocking import BlockingTurn
from callboard.storage.model.addresses import Sender
from callboard.storage.model.errors import AmbiguousId
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.tests.flows.turn_kit import Board, running


async def nested(board: Board, session: str, message: str) -> Any:
    """The same from a task that the turn has started."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.runtime.wait, message)


WAYS: dict[str, Callable[[Board, str, str], Awaitable[Any]]] = {
    "wait": lambda board, session, message: board.runtime.wait(message),
    "desk.wait": lambda board, session, message: board.runtime.desk.wait(board.scope, message),
    "follow": lambda board, session, message: entered(board.runtime.follow(session)),
    "follow_turn": lambda board, session, message: entered(
        board.runtime.desk.follow_turn(board.scope, f"turn_{message.removeprefix('msg_')}")
    ),
    "a task of the turn": nested,
}


async def entered(manager: Any) -> None:
    async with manager:
        pass


@pytest.mark.spec("SES-11")
@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_must_not_wait_for_another_session(board: Board, autojump_clock: MockClock, way: str) -> None:
    session, other = await board.open(), await board.open()
    receipt = await board.post(other)
    raised: list[BaseException] = []

    async def waiting(turn: Turn) -> None:
        try:
            await WAYS[way](board, other.id, receipt.id)
        except WouldDeadlock as error:
            raised.append(error)
        except ExceptionGroup as group:
            raised.extend(group.exceptions)

    await board.inside(session, waiting)
    (error,) = raised
    assert isinstance(error, WouldDeadlock)
    assert error.status == 400
    # Outside it is allowed again, also right after a turn.
    assert (await board.runtime.wait(receipt.id)).status is Status.DELIVERED


@pytest.mark.spec("SES-11")
async def test_a_plain_agent_is_refused_too() -> None:
    raised: list[str] = []

    async with running(executor="thread") as outer:

        def plain(turn: BlockingTurn) -> None:
            try:
                trio.from_thread.run(board.runtime.wait, turn.message.id)
            except WouldDeadlock as error:
                raised.append(error.code)

        async with running({"plain": plain}, executor="thread") as board:
            session = await board.open("plain")
            assert (await board.ask(session)).outcome is Outcome.NO_VISIBLE_REPLY
        assert raised == ["would_deadlock"]
        assert (await outer.ask(await outer.open())).outcome is Outcome.ANSWERED


@pytest.mark.spec("SES-11")
async def test_a_task_that_a_turn_left_in_the_programs_nursery_may_wait_once_the_turn_is_over(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open()
    receipt = await board.post(other)
    over, told = trio.Event(), trio.Event()
    seen: list[object] = []

    async def left_behind() -> None:
        try:
            await board.runtime.wait(receipt.id)
        except WouldDeadlock as error:
            seen.append(error.code)
        told.set()
        await over.wait()
        seen.append((await board.runtime.wait(receipt.id)).status)
        async with board.runtime.follow(session.id) as feed:
            seen.append((await anext(feed)).kind)

    async with trio.open_nursery() as nursery:

        async def starting(turn: Turn) -> None:
            nursery.start_soon(left_behind)
            await told.wait()

        await board.inside(session, starting)
        over.set()
    assert seen == ["would_deadlock", Status.DELIVERED, "message.created"]


async def test_what_does_not_wait_is_allowed_inside_a_turn(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open(path="/other")

    looked = trio.Event()

    async def waiting(turn: Turn) -> str:
        await looked.wait()
        return "done"

    async def working(turn: Turn) -> str:
        receipt = await board.runtime.send("/other", "from inside")
        await board.runtime.read("/other")
        await board.runtime.list_sessions()
        status = (await board.runtime.receipt(receipt.message_id)).status
        looked.set()
        return status

    board.plan(other, waiting)
    assert await board.inside(session, working) in {"pending", "processing"}
    await board.until(other, "turn.completed")


async def test_it_returns_when_the_message_is_final(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def fail(turn: Turn) -> None:
        raise ValueError

    async def slow(turn: Turn) -> str:
        await trio.sleep(7)
        return "done"

    board.plan(session, slow)
    start = trio.current_time()
    view = await board.ask(session)
    assert (view.outcome, trio.current_time() - start) == (Outcome.ANSWERED, pytest.approx(7))
    assert await board.runtime.desk.wait(board.scope, view.id) == view, "what is final already is answered at once"
    board.plan(session, fail)
    assert (await board.ask(session, max_attempts=1)).reason is Reason.RETRIES_USED


async def test_a_message_that_is_cancelled_or_whose_session_goes_is_final_too(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    begun = trio.Event()

    async def hold(turn: Turn) -> None:
        begun.set()
        await turn.sleep(3_600)

    board.plan(session, hold)
    first = await board.post(session)
    await begun.wait()
    second, third = await board.post(session), await board.post(session)
    reasons: dict[str, Reason | None] = {}

    async def waiter(id: str) -> None:
        reasons[id] = (await board.runtime.desk.wait(board.scope, id)).reason

    async with trio.open_nursery() as nursery:
        for receipt in (first, second, third):
            nursery.start_soon(waiter, receipt.id)
        await wait_all_tasks_blocked()
        await board.runtime.desk.cancel(board.scope, second.id)
        await wait_all_tasks_blocked()
        assert reasons == {second.id: Reason.CANCELLED}
        await board.runtime.desk.delete(board.scope, session.id, board.ann)
    assert reasons == {
        first.id: Reason.TARGET_DELETED,
        second.id: Reason.CANCELLED,
        third.id: Reason.TARGET_DELETED,
    }


async def test_an_end_just_before_the_cursor_is_taken_is_not_waited_for(
    board: Board, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await board.open()
    reads = board.runtime.store.reads
    read = reads.session

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await trio.sleep(5)
        return await read(*args, **kwargs)

    receipt = await board.post(session)
    monkeypatch.setattr(reads, "session", slow)
    with trio.fail_after(60):
        assert (await board.final(receipt)).outcome is Outcome.ANSWERED


async def test_a_message_id_means_the_callers_own(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    bob = Sender("bob", "member", "Bob")
    mine = await board.runtime.send(session.id, "mine", message_id="m-1")
    his = await board.post(session, "his", sender=bob, message_id="m-1")
    assert (await board.runtime.wait("m-1")).id == mine.id
    assert (await board.runtime.receipt("m-1")).id == mine.id
    assert (await board.runtime.wait(his.id)).id == his.id
    hers = await board.post(session, "hers", message_id="m-2")
    assert (await board.runtime.wait("m-2")).id == hers.id, "the only visible one"
    await board.post(session, "another", sender=bob, message_id="m-2")
    with pytest.raises(AmbiguousId):
        await board.runtime.wait("m-2")
    with pytest.raises(NotFound):
        await board.runtime.wait("m-3")


async def test_giving_up_waiting_changes_nothing(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def slow(turn: Turn) -> str:
        await trio.sleep(5)
        return "done"

    board.plan(session, slow)
    receipt = await board.post(session)
    with trio.move_on_after(1) as scope:
        await board.final(receipt)
    assert scope.cancelled_caught
    assert (await board.final(receipt)).outcome is Outcome.ANSWERED
