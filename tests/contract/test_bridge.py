"""The SQLite bridge: what it needs of aiosqlite, and what a call to it may rely on. Real threads, real files."""

from __future__ import annotations

import contextlib
import gc
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import aiosqlite.core
import pytest
import trio

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


def create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE n (x INTEGER PRIMARY KEY)")


def insert(connection: sqlite3.Connection, *values: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO n VALUES (?)", [(value,) for value in values])
    connection.execute("COMMIT")


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM n ORDER BY x")]


def pragma(name: str) -> Callable[[sqlite3.Connection], Any]:
    return lambda connection: connection.execute(f"PRAGMA {name}").fetchone()[0]


# -- what aiosqlite must be -----------------------------------------------------------------------------------------


def test_aiosqlite_has_the_private_names_that_the_bridge_uses() -> None:
    connection: Any = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), 64)
    for name in ("_tx", "_running", "_connection", "_connector", "_thread", "_execute", "_connect", "stop", "close"):
        assert hasattr(connection, name), (
            f"aiosqlite {aiosqlite.__version__} has no Connection.{name}: rewrite bridge.py"
        )
    assert isinstance(connection._tx, queue.SimpleQueue)
    assert isinstance(connection._thread, threading.Thread)
    assert not connection._thread.is_alive(), "the bridge names its thread before it starts"
    assert connection._connection is None
    assert connection._running is True
    assert hasattr(aiosqlite.core, "_STOP_RUNNING_SENTINEL"), "aiosqlite's thread is no longer ended by a sentinel"


def test_aiosqlites_thread_answers_through_the_futures_loop_and_ends_on_the_sentinel() -> None:
    answers: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()

    class Future:
        def get_loop(self) -> Future:
            return self

        def call_soon_threadsafe(self, *call: object) -> None:
            answers.put(call)

    future, error = Future(), LookupError("x")
    core: Any = aiosqlite.core

    def fail() -> None:
        raise error

    connection: Any = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), 64)
    connection._thread.start()
    connection._tx.put_nowait((future, lambda: 7))
    connection._tx.put_nowait((future, fail))
    connection._tx.put_nowait((None, lambda: core._STOP_RUNNING_SENTINEL))
    assert answers.get(timeout=DEADLINE) == (core.set_result, future, 7), "aiosqlite's thread protocol changed"
    assert answers.get(timeout=DEADLINE) == (core.set_exception, future, error)
    connection._thread.join(DEADLINE)
    assert not connection._thread.is_alive()


# -- pragmas --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("INB-1")
async def test_writer_is_wal_with_full_synchronous(writer: Executor) -> None:
    assert await writer.run(pragma("journal_mode")) == "wal"
    assert await writer.run(pragma("synchronous")) == 2
    assert await writer.run(pragma("foreign_keys")) == 1
    assert await writer.run(pragma("busy_timeout")) == 5000
    assert await writer.run(pragma("wal_autocheckpoint")) == 1000
    assert await writer.run(lambda connection: connection.isolation_level) is None


async def test_reader_sees_commits_and_can_change_nothing(writer: Executor, kind: ExecutorKind) -> None:
    reader = await open_connection(writer.path, readonly=True, executor=kind)
    await writer.run(lambda connection: insert(connection, 1))
    assert await reader.run(numbers) == [1]
    assert await reader.run(pragma("query_only")) == 1
    assert await reader.run(pragma("wal_autocheckpoint")) == 0
    assert await reader.run(pragma("busy_timeout")) == 5000
    with pytest.raises(Exception, match="SQLITE_READONLY"):
        await reader.run(lambda connection: insert(connection, 2))
    await reader.aclose()
    assert await writer.run(numbers) == [1]


async def test_memory_is_one_connection(kind: ExecutorKind) -> None:
    with pytest.raises(ValueError, match="memory"):
        await open_connection(":memory:", readonly=True, executor=kind)
    connection = await open_connection(":memory:", readonly=False, executor=kind)
    await connection.run(create)
    await connection.run(lambda c: insert(c, 1))
    assert await connection.run(numbers) == [1]
    await connection.aclose()


# -- results, errors, transactions ----------------------------------------------------------------------------------


async def test_every_exception_reaches_its_caller_and_the_next_call_works(writer: Executor) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await writer.run(fail)
    await writer.run(lambda connection: insert(connection, 1))
    with pytest.raises(sqlite3.IntegrityError):  # a data error is the driver's to treat, so it comes as it is
        await writer.run(lambda connection: insert(connection, 1))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await writer.run(lambda connection: connection.execute("SELECT * FROM missing"))
    await writer.run(lambda connection: insert(connection, 2))
    assert await writer.run(numbers) == [1, 2]


async def test_no_transaction_outlives_a_call(writer: Executor) -> None:
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO n VALUES (1)")

    def half_and_fail(connection: sqlite3.Connection) -> None:
        half(connection)
        raise LookupError

    with pytest.raises(RuntimeError, match="left its transaction open"):
        await writer.run(half)
    with pytest.raises(LookupError):
        await writer.run(half_and_fail)
    await writer.run(lambda connection: insert(connection, 2))
    assert await writer.run(numbers) == [2]


async def test_two_hundred_concurrent_calls_each_get_their_own_answer_in_order(threaded: Executor) -> None:
    answers: dict[int, int] = {}
    threads: set[int] = set()
    order: list[int] = []

    async def ask(number: int) -> None:
        def batch(connection: sqlite3.Connection) -> int:
            threads.add(threading.get_ident())
            order.append(number)
            insert(connection, number)
            return number * 2

        answers[number] = await threaded.run(batch)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(ask, number)
    assert answers == {number: number * 2 for number in range(200)}
    assert sorted(order) == list(range(200))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert await threaded.run(numbers) == list(range(200))


async def test_a_call_holds_on_to_nothing_when_it_is_over(threaded: Executor) -> None:
    """aiosqlite's thread keeps its last call until the next one: a large result must not stay with it."""

    class Result:
        alive = 0

        def __init__(self) -> None:
            type(self).alive += 1

        def __del__(self) -> None:
            type(self).alive -= 1

    def fail(result: Result) -> None:
        assert result
        raise LookupError

    gc.disable()
    try:
        result = await threaded.run(lambda _: Result())
        assert Result.alive == 1
        del result
        assert Result.alive == 0
        with contextlib.suppress(LookupError):
            await threaded.run(lambda _: fail(Result()))
        await threaded.run(numbers)  # the thread lets go of the exception only after it has told us
        assert Result.alive == 0, "a failed batch is kept alive by a cycle through its traceback"
    finally:
        gc.enable()


async def test_every_call_is_a_checkpoint(writer: Executor) -> None:
    with trio.testing.assert_checkpoints():
        await writer.run(numbers)
    with trio.testing.assert_checkpoints(), contextlib.suppress(ZeroDivisionError):
        await writer.run(lambda _: 1 / 0)


async def test_one_batch_of_sixty_two_thousand_operations(writer: Executor) -> None:
    await writer.run(lambda connection: insert(connection, *range(62_000)))
    assert await writer.run(lambda connection: connection.execute("SELECT count(*) FROM n").fetchone()[0]) == 62_000
