"""Hints may be lost: one look a second for all that is followed, which wakes only who has missed something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Event, UnknownTarget
from callboard.actors import tail
from callboard.actors.tail import Feed
from callboard.storage.model.sessions import Session
from callboard.tests.flows.turn_kit import Board


def counting(board: Board) -> Counter[str]:
    """Counts the statements that are read from here on, by name."""
    counted: Counter[str] = Counter()
    driver: Any = board.runtime.store._driver
    read = driver.read

    async def count(*queries: tuple[str, Any]) -> Any:
        counted.update(name for name, _ in queries)
        return await read(*queries)

    driver.read = count
    return counted


def without_hints(board: Board) -> Callable[[], None]:
    """Lose every hint until the function is called."""
    changes: Any = board.runtime.store.changes
    changes.publish = lambda touched: None

    def again() -> None:
        del changes.publish

    return again


async def followed(board: Board, stack: AsyncExitStack, number: int) -> list[tuple[Session, Feed]]:
    return [
        (session, await stack.enter_async_context(board.runtime.follow(session.id)))
        for session in [await board.open() for _ in range(number)]
    ]


async def wait_for(feed: Feed, got: list[tuple[float, Any]]) -> None:
    try:
        async for event in feed:
            got.append((trio.current_time(), event))
    except UnknownTarget as gone:
        got.append((trio.current_time(), gone))


@pytest.mark.spec("RT-1")
async def test_idle_followers_cost_one_statement_a_second_together(
    board: Board, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for _, feed in await followed(board, stack, 30):
            nursery.start_soon(wait_for, feed, [])
        await wait_all_tasks_blocked()
        counted = counting(board)
        await trio.sleep(10.5)
        assert 10 <= counted["sessions_moved"] <= 11
        assert counted["events_after"] == 0
        # More than one statement takes are looked for in portions.
        monkeypatch.setattr(tail, "LOOK_TAILS", 8)
        counted.clear()
        await trio.sleep(10)
        assert counted["sessions_moved"] == 4 * 10
        nursery.cancel_scope.cancel()


@pytest.mark.spec("RT-1", "EVT-2")
@pytest.mark.parametrize("portion", [1_000, 2])
async def test_a_look_wakes_those_that_have_missed_something_and_no_others(
    board: Board, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(tail, "LOOK_TAILS", portion)
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        pairs = await followed(board, stack, 7)
        got: list[list[tuple[float, Any]]] = [[] for _ in pairs]
        for (_, feed), mine in zip(pairs, got, strict=True):
            nursery.start_soon(wait_for, feed, mine)
        await wait_all_tasks_blocked()
        without_hints(board)
        counted = counting(board)
        start = trio.current_time()
        for number in (2, 5):
            await board.post(pairs[number][0])
        await trio.sleep(5)
        for number, mine in enumerate(got):
            assert bool(mine) == (number in (2, 5))
        for number in (2, 5):
            assert got[number][0][0] - start <= 1.01
            assert [event for _, event in got[number]] == await board.events(pairs[number][0])
        # Two tails were woken: for the message, and at most once for each event of its turn.
        assert counted["events_after"] <= 2 * 4 + 2
        nursery.cancel_scope.cancel()


async def test_a_deletion_whose_hint_is_lost_is_told_by_the_look(board: Board, autojump_clock: MockClock) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        ((session, feed),) = await followed(board, stack, 1)
        got: list[tuple[float, Any]] = []
        nursery.start_soon(wait_for, feed, got)
        await wait_all_tasks_blocked()
        without_hints(board)
        start = trio.current_time()
        await board.runtime.desk.delete(board.scope, session.id, board.ann)
        await trio.sleep(2)
        ((at, gone),) = got
        assert isinstance(gone, UnknownTarget)
        assert at - start <= 1.01


async def test_a_look_that_was_ended_is_taken_up_again_by_who_follows(board: Board, autojump_clock: MockClock) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        ((session, feed),) = await followed(board, stack, 1)
        got: list[tuple[float, Any]] = []
        nursery.start_soon(wait_for, feed, got)
        await wait_all_tasks_blocked()
        supervisor: Any = board.runtime.desk.tails._spawn
        (look,) = [node.name for node in board.children("tails") if node.name.startswith("look")]
        supervisor.stop(look)
        await wait_all_tasks_blocked()
        (again,) = [node.name for node in board.children("tails") if node.name.startswith("look")]
        assert again != look
        without_hints(board)
        await board.post(session)
        await trio.sleep(5)
        assert [event for _, event in got] == await board.events(session)
        nursery.cancel_scope.cancel()


@pytest.mark.spec("EVT-2")
async def test_a_store_that_can_not_be_looked_into_sends_followers_back_to_rows(
    board: Board, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        ((session, feed),) = await followed(board, stack, 1)
        got: list[tuple[float, Any]] = []
        nursery.start_soon(wait_for, feed, got)
        await wait_all_tasks_blocked()
        reads = board.runtime.store.reads
        looks = 0

        async def broken(positions: Any) -> Any:
            nonlocal looks
            looks += 1
            await trio.lowlevel.checkpoint()
            raise UnknownTarget("made up")

        monkeypatch.setattr(reads, "moved", broken)
        without_hints(board)
        await board.post(session)
        await trio.sleep(5)
        assert looks >= 4
        assert [event.kind for _, event in got if isinstance(event, Event)] == await board.kinds(session)
        nursery.cancel_scope.cancel()


async def test_nobody_looks_where_nothing_is_followed(board: Board, autojump_clock: MockClock) -> None:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for _, feed in await followed(board, stack, 3):
            nursery.start_soon(wait_for, feed, [])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await trio.sleep(1.5)
    counted = counting(board)
    await trio.sleep(5)
    assert counted["sessions_moved"] == 0
    assert board.children("tails") == ()
