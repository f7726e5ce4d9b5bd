"""The SQLite bridge when its callers leave, and when it is opened and closed. No cancel may lose, halve or leak anything."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
import trio
import trio.testing

from callboard.storage.model.errors import StoreDown
from callboard.storage.sqlite import bridge
from callboard.storage.sqlite.bridge import Executor, ExecutorKind, open_connection

DEADLINE = 20.0
KINDS: tuple[ExecutorKind, ...] = ("thread", "inline")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ExecutorKind:
    return request.param


@pytest.fixture
async def writer(tmp_path: Path, kind: ExecutorKind) -> AsyncIterator[Executor]:
    connection = await open_connection(tmp_path / "a.db", readonly=False, executor=kind)
    await connection.run(create)
    yield connection
    await connection.aclose()


@pytest.fixture
async def threaded(tmp_path: Path) -> AsyncIterator[Executor]:
    connection = await open_connection(tmp_path / "a.db", readonly=False)
    await connection.run(create)
    yield connection
    await connection.aclose()


class Gate:
    """A batch that says when it has begun and ends when it is let go."""

    def __init__(self, value: int) -> None:
        self.begun = trio.Event()
        self.ended = threading.Event()
        self._value = value
        self._release = threading.Event()
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self._token.run_sync_soon(self.begun.set)
        assert self._release.wait(DEADLINE)
        insert(connection, self._value)
        self.ended.set()

    def open(self) -> None:
        self._release.set()


def create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE n (x INTEGER PRIMARY KEY)")


def insert(connection: sqlite3.Connection, *values: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO n VALUES (?)", [(value,) for value in values])
    connection.execute("COMMIT")


def insert_one(value: int, connection: sqlite3.Connection) -> None:
    insert(connection, value)


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM n ORDER BY x")]


def bridge_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sqlite ")]


# -- cancellation ---------------------------------------------------------------------------------------------------


async def test_cancelled_before_it_began_never_runs(threaded: Executor) -> None:
    gate, scope = Gate(1), trio.CancelScope()

    async def second() -> None:
        with scope:
            await threaded.run(lambda connection: insert(connection, 2))

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threaded.run, gate)
            await gate.begun.wait()
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert scope.cancelled_caught, "a queued call is left at once, while the thread is still at work"
            gate.open()
        assert await threaded.run(numbers) == [1]


async def test_cancelled_after_it_began_returns_at_once_and_still_commits(threaded: Executor) -> None:
    gate, scope = Gate(1), trio.CancelScope()

    async def first() -> None:
        with scope:
            await threaded.run(gate)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await gate.begun.wait()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert scope.cancelled_caught
            assert not gate.ended.is_set(), "the caller left while its batch was still running"
            gate.open()
        assert await threaded.run(numbers) == [1]


async def test_already_cancelled_caller_starts_nothing(writer: Executor) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.run(lambda connection: insert(connection, 1))
    assert scope.cancelled_caught
    assert await writer.run(numbers) == []


async def test_already_cancelled_caller_does_not_even_queue_a_call(threaded: Executor) -> None:
    queue: SimpleQueue[object] = cast("Any", threaded)._tx
    gate = Gate(1)
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threaded.run, gate)
            await gate.begun.wait()
            with trio.CancelScope() as scope:
                scope.cancel()
                await threaded.run(numbers)
            assert queue.qsize() == 0, "else an idle thread might run it before the cancel arrives"
            gate.open()


async def test_storm_of_cancels_leaves_each_batch_whole_or_absent(threaded: Executor) -> None:
    """Pairs are written together; whatever a cancel hits, no half of one is ever found."""

    async def pair(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await threaded.run(lambda connection: insert(connection, number, -number))

    with trio.fail_after(DEADLINE):
        for first in range(1, 400, 20):
            scopes = [trio.CancelScope() for _ in range(20)]
            async with trio.open_nursery() as nursery:
                for offset, scope in enumerate(scopes):
                    nursery.start_soon(pair, first + offset, scope)
                await trio.lowlevel.checkpoint()
                for scope in scopes[::2]:
                    scope.cancel()
        found = await threaded.run(numbers)
    assert sorted(-x for x in found) == found
    assert {n for n in range(1, 401) if (n - 1) % 20 % 2} <= set(found), "those not cancelled are all there"
    await threaded.run(lambda connection: insert(connection, 9999))


# -- opening and closing --------------------------------------------------------------------------------------------


async def test_close_drains_ends_the_thread_and_refuses_what_comes_later(tmp_path: Path) -> None:
    connection = await open_connection(tmp_path / "a.db", readonly=False)
    await connection.run(create)
    assert len(bridge_threads()) == 1
    gate = Gate(1)
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, gate)
            await gate.begun.wait()
            nursery.start_soon(connection.run, partial(insert_one, 2))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(connection.aclose)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(StoreDown, match=r"a\.db.*closed"):
                await connection.run(numbers)
            gate.open()
    assert bridge_threads() == []
    await connection.aclose()
    assert os.listdir(tmp_path) == ["a.db"], "the last close folds the log into the file"
    again = await open_connection(tmp_path / "a.db", readonly=False)
    assert await again.run(numbers) == [1, 2]
    await again.aclose()


async def test_close_returns_after_the_end_of_the_thread(tmp_path: Path) -> None:
    for _ in range(50):
        connection = await open_connection(tmp_path / "a.db", readonly=False)
        await connection.aclose()
        assert bridge_threads() == []


async def test_inline_refuses_what_comes_after_close(tmp_path: Path) -> None:
    connection = await open_connection(tmp_path / "a.db", readonly=False, executor="inline")
    await connection.aclose()
    with pytest.raises(StoreDown, match="closed"):
        await connection.run(numbers)
    await connection.aclose()


async def test_open_and_close_are_shielded(tmp_path: Path, kind: ExecutorKind) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        connection = await open_connection(tmp_path / "a.db", readonly=False, executor=kind)
        await connection.aclose()
    assert not scope.cancelled_caught, "closed, and not left"
    assert bridge_threads() == []
    gc.collect()


async def test_failed_open_leaves_no_thread_and_no_connection(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"x" * 5000)
    with pytest.raises(Exception, match=r"a\.db"):
        await open_connection(tmp_path / "a.db", readonly=False)
    for thread in bridge_threads():
        thread.join(DEADLINE)
    assert bridge_threads() == []
    gc.collect()


async def test_open_that_takes_too_long_is_given_up_and_closed_when_it_comes(
    mock_clock: trio.testing.MockClock,
) -> None:
    token, begun, release = trio.lowlevel.current_trio_token(), trio.Event(), threading.Event()
    opened = sqlite3.connect(":memory:", check_same_thread=False)

    def slow() -> sqlite3.Connection:
        token.run_sync_soon(begun.set)
        assert release.wait(DEADLINE)
        return opened

    connection = bridge._ThreadConnection(slow, "slow.db")

    async def give_up() -> None:
        with pytest.raises(StoreDown, match=r"slow\.db.*did not open within 30 s"):
            await connection

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await begun.wait()
        mock_clock.jump(bridge.OPEN_SECONDS + 1)
    release.set()
    connection._thread.join(DEADLINE)
    assert not connection._thread.is_alive()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened.execute("SELECT 1")


async def test_close_that_takes_too_long_says_so_and_the_thread_still_closes(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    connection = await open_connection(tmp_path / "a.db", readonly=False)
    await connection.run(create)
    (thread,) = bridge_threads()
    gate = Gate(1)

    async def close() -> None:
        with pytest.raises(StoreDown, match="did not close within 30 s"):
            await connection.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, gate)
        await gate.begun.wait()
        async with trio.open_nursery() as closer:
            closer.start_soon(close)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(bridge.CLOSE_SECONDS + 1)
        gate.open()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    gc.collect()
