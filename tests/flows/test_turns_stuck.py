"""Agents that survive their cancel are fenced out, named, and hold up nobody but their own session (RT-6)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import LeaseLost, Tuning, Turn, tool
from callboard.actors.session.agents.blocking import BlockingTurn
from callboard.storage.model.states import Outcome, Status
from callboard.tests.flows.turn_kit import Board, running

pytestmark = pytest.mark.spec("RT-6")


@tool("pure")
async def look() -> str:
    """A tool of the agent's own."""
    return "seen"


@contextmanager
def released(event: trio.Event | threading.Event) -> Iterator[None]:
    """Sets the event when the block ends, also by a failure: a runtime can't end around an agent that does not."""
    try:
        yield
    finally:
        event.set()


CALLS: dict[str, Callable[[Turn, str], Awaitable[Any]]] = {
    "emit": lambda turn, other: turn.emit("x" * 500),
    "emit a little": lambda turn, other: turn.emit("x"),
    "steered": lambda turn, other: turn.steered(),
    "step": lambda turn, other: turn.step(look),
    "agent": lambda turn, other: turn.tools.agent("a task"),
    "agent_send": lambda turn, other: turn.tools.agent_send(other, "late"),
    "agent_stop": lambda turn, other: turn.tools.agent_stop(other),
    "agent_list": lambda turn, other: turn.tools.agent_list(),
    "agent_read": lambda turn, other: turn.tools.agent_read(other),
}


async def late(turn: Turn, other: str) -> list[str]:
    """Everything an agent can do through its turn; the names of what was refused."""
    refused: list[str] = []
    for name, call in CALLS.items():
        try:
            await call(turn, other)
        except LeaseLost:
            refused.append(name)
    return refused


@pytest.mark.parametrize("how", ["shields itself", "swallows the cancel"])
async def test_an_agent_that_survives_its_cancel(
    board: Board, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    session, other = await board.open(), await board.open()
    begun, go_on, ended = trio.Event(), trio.Event(), trio.Event()
    refused: list[str] = []

    async def survivor(turn: Turn) -> str:
        await turn.emit("partial")
        begun.set()
        if how == "swallows the cancel":
            with trio.CancelScope() as own:
                try:
                    await trio.sleep_forever()
                except trio.Cancelled:
                    own.shield = True  # and goes on
                    await go_on.wait()
        with trio.CancelScope(shield=True):
            await go_on.wait()
            refused.extend(await late(turn, other.id))
            ended.set()
            await trio.sleep(3)
        return "a late answer"

    board.plan(session, survivor)
    first = await board.post(session, "first")
    await begun.wait()
    with released(go_on):
        second = await board.post(session, "second")
        asked = trio.current_time()
        await board.runtime.stop(session.id)
        with caplog.at_level(logging.ERROR, "callboard"):
            view = await board.final(first)
        assert 15 <= trio.current_time() - asked <= 17
        assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.STOPPED)
        assert await board.texts(session) == ["partial"]
        assert board.runtime.dispatcher.stuck == [f"session:{session.id}"]
        assert await board.runtime.store.reads.stuck() == [(f"session:{session.id}", board.runtime.process)]
        assert f"session:{session.id}" in caplog.text

        # Nothing more of this session runs here, however long; everybody else goes on.
        await trio.sleep(300)
        assert (await board.message(second)).attempt == 0
        assert (await board.ask(other)).outcome is Outcome.ANSWERED
        elsewhere = len(await board.events(other))
        before = await board.events(session)
        sessions = len(await board.runtime.list_sessions())

    await ended.wait()
    assert refused == [*CALLS]
    assert await board.events(session) == before
    assert len(await board.events(other)) == elsewhere
    assert len(await board.runtime.list_sessions()) == sessions
    assert (await board.message(second)).attempt == 0

    freed = trio.current_time()
    assert (await board.final(second)).outcome is Outcome.ANSWERED
    assert trio.current_time() - freed == pytest.approx(3, abs=1.1)
    assert await board.texts(session) == ["partial", "echo second"]
    await trio.sleep(1)
    assert board.runtime.dispatcher.stuck == []
    assert await board.runtime.store.reads.stuck() == []


@pytest.mark.spec("RT-18")
async def test_an_agent_that_outlives_its_lease_is_never_joined_by_a_second_turn(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    begun, go_on = trio.Event(), trio.Event()
    at_once = most = 0

    async def survivor(turn: Turn) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        begun.set()
        with trio.CancelScope(shield=True):
            await go_on.wait()
        at_once -= 1
        return f"attempt {turn.attempt}"

    board.plan(session, survivor)
    receipt = await board.post(session)
    await begun.wait()
    with released(go_on):
        board.runtime.dispatcher.live[next(iter(board.runtime.dispatcher.live))].lose()
        before = await board.events(session)
        await trio.sleep(300)
        assert (await board.message(receipt)).attempt == 1
        assert board.runtime.dispatcher.stuck == [f"session:{session.id}"]
        assert await board.events(session) == before, "a holder that has lost its lease writes nothing, not even a stop"
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.takeovers, most) == (Outcome.ANSWERED, 2, 1, 1)
    assert await board.texts(session) == ["echo hello"]


async def test_a_plain_agent_runs_in_a_thread_with_the_same_turn() -> None:
    threads: list[int] = []

    def plain(turn: BlockingTurn) -> str:
        threads.append(threading.get_ident())
        assert (turn.text, turn.attempt, turn.stop_requested, len(turn.messages)) == ("hello", 1, False, 1)
        assert turn.session.path == "/plain"
        turn.emit("streamed ")
        assert turn.steered() == ()
        assert turn.step(look) == "seen"
        assert turn.sleep(0.001) is True
        assert {record["path"] for record in turn.tools.agent_list()["agents"]} == {"/plain", "/held"}
        sent = turn.tools.agent_send("/other", "from a thread")
        child = turn.tools.agent("a task", agent="agent", title="child")
        assert turn.tools.agent_read(child["agent_id"])["messages"][0]["content"] == "a task"
        assert turn.tools.agent_stop("/held")["status"] == "stopping"
        return f"{turn.id} {sent['status']}"

    async with running({"plain": plain}, executor="thread") as board:
        session, other, held = (
            await board.open("plain", "/plain"),
            await board.open(path="/other"),
            await board.open(path="/held"),
        )
        begun = trio.Event()

        async def hold(turn: Turn) -> None:
            begun.set()
            await turn.sleep(60)

        board.plan(held, hold)
        stopped = await board.post(held)
        await begun.wait()
        view = await board.ask(session, max_attempts=1)
        assert view.last_error is None
        assert (await board.texts(session))[0] == f"{view.turn_id} pending"
        assert threads != [threading.get_ident()]
        assert (await board.final(stopped)).outcome is Outcome.STOPPED
        await board.until(other, "turn.completed")
        assert await board.texts(other) == ["echo from a thread"]


async def test_a_plain_agent_sees_a_stop_and_is_cancelled_at_its_next_call() -> None:
    begun, seen = threading.Event(), threading.Event()
    ended: list[type[BaseException]] = []

    def plain(turn: BlockingTurn) -> None:
        begun.set()
        turn.sleep(60)
        assert turn.stop_requested
        seen.set()
        try:
            while True:
                turn.emit("more ")
                turn.steered()
        except BaseException as error:
            ended.append(type(error))
            raise

    async with running({"plain": plain}, executor="thread") as board:
        session = await board.open("plain")
        receipt = await board.post(session)
        await trio.to_thread.run_sync(begun.wait)
        await board.runtime.desk.stop(board.scope, session.id, grace=0.05)
        view = await board.final(receipt)
        assert seen.is_set()
        assert (view.outcome, ended) == (Outcome.STOPPED, [trio.Cancelled])


async def test_a_thread_that_never_looks_up_is_stuck_until_it_ends() -> None:
    begun, release = threading.Event(), threading.Event()
    answers = iter(["never seen", "second"])

    def blocked(turn: BlockingTurn) -> str:
        begun.set()
        release.wait(30)
        return next(answers)

    tuning = Tuning(stop_grace_seconds=0.05, stuck_after_seconds=0.05, renew_seconds=0.02, poll_seconds=0.05)
    async with running({"blocked": blocked}, executor="thread", tuning=tuning) as board:
        session, other = await board.open("blocked"), await board.open()
        first, second = await board.post(session), await board.post(session)
        await trio.to_thread.run_sync(begun.wait)
        with released(release):
            await board.runtime.stop(session.id)
            assert (await board.final(first)).outcome is Outcome.STOPPED
            assert board.runtime.dispatcher.stuck == [f"session:{session.id}"]
            assert (await board.ask(other)).outcome is Outcome.ANSWERED
            assert (await board.message(second)).attempt == 0
        assert (await board.final(second)).outcome is Outcome.ANSWERED
        assert await board.texts(session) == ["second"]
        assert board.runtime.dispatcher.stuck == []
