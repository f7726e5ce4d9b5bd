"""One SQLite connection as Trio sees it: hand over a whole batch, get its result.

Here: `open_connection` and the two kinds of `Executor`. `thread` is aiosqlite's Connection with Trio futures; `inline` runs in the
Trio thread, for tests whose clock jumps while a thread is at work. Only the SQLite driver uses this. Not here: SQL of ours, pragmas
(`connect.py`), futures (`futures.py`), group commit, lock file, migrations. aiosqlite's per-statement methods are not part of
`Executor`: a statement at a time is twenty times slower, and a cancel between two leaves a transaction open for whoever comes next.

Invariants: a connection is used by one thread from open to close; no transaction outlives a call; a call that has not begun when its
caller leaves never runs, and one that has begun runs to its end.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal, Protocol, TypeVar

import aiosqlite
import trio
from aiosqlite.core import _STOP_RUNNING_SENTINEL  # pyright: ignore[reportUnknownVariableType]

from ..model.errors import StoreDown
from .connect import MEMORY, connect, display_path
from .faults import map_sqlite_error
from .futures import Call, Loop

T = TypeVar("T")
ExecutorKind = Literal["thread", "inline"]
Batch = Callable[[sqlite3.Connection], T]
_Items = SimpleQueue[tuple[Call[Any] | None, Callable[[], object]]]

OPEN_SECONDS = 30.0  # opening after a crash reads the whole write-ahead log
CLOSE_SECONDS = 30.0  # closing drains what is queued, then checkpoints
JOIN_SECONDS = 1.0


class Executor(Protocol):
    """A connection that runs batches one after the other, in the order of the calls."""

    @property
    def path(self) -> str:
        """The file as errors show it, or `:memory:`."""
        ...

    async def run(self, fn: Batch[T], /) -> T:
        """Run `fn` with the connection and return its result; its exceptions are raised here, store failures as ours.

        Cancelled before `fn` began: it never runs. Cancelled later (`thread` only): returns at once, `fn` still runs to its end, and
        whether it committed is unknown to this caller. A transaction that `fn` leaves open is rolled back and is a RuntimeError.
        Raises StoreDown once the connection is closed.
        """
        ...

    def call_soon(self, fn: Callable[[], None], /) -> None:
        """From within a batch: have `fn` called in the Trio thread. `fn` must not raise."""
        ...

    async def aclose(self) -> None:
        """Finish the calls made so far, close the connection, end its thread. Shielded, at most CLOSE_SECONDS, then StoreDown.

        Close the readers before the writer: the last one to close checkpoints. A second call does nothing.
        """
        ...


async def open_connection(
    path_or_uri: str | os.PathLike[str], *, readonly: bool, executor: ExecutorKind = "thread"
) -> Executor:
    """Open a file, a `file:` URI or `:memory:`; shielded, at most OPEN_SECONDS, then StoreDown.

    A writer creates the file if need be, switches it to WAL and is the only connection that may write or checkpoint. A reader needs an
    existing file and can't change it. `:memory:` is one connection for reading and writing, so a reader of it is a ValueError.
    Raises StoreError and its kinds, or StoreDown, naming the file.
    """
    location = os.fspath(path_or_uri)
    if readonly and location == MEMORY:
        raise ValueError("a second connection to :memory: would be another, empty database")
    opening = partial(connect, location, readonly=readonly)
    if executor == "inline":
        return _InlineConnection(opening(), display_path(location))
    connection = _ThreadConnection(opening, display_path(location))
    await connection
    return connection


class _ThreadConnection(aiosqlite.Connection):
    """aiosqlite's Connection whose four makers of asyncio futures make Trio's instead; itself an `Executor`."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self.path = path
        self._items: _Items = self._tx  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self._loop = Loop(trio.lowlevel.current_trio_token())
        self._thread.name = f"sqlite {os.path.basename(path)}"
        self._thread.daemon = True  # else a connection that was never closed keeps the process from ending

    async def run(self, fn: Batch[T], /) -> T:
        return await self._execute(_guarded, fn, self._connection, self.path)

    def call_soon(self, fn: Callable[[], None], /) -> None:
        self._loop.call_soon_threadsafe(fn)

    async def _execute(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        if not self._running or self._connection is None:
            raise _closed(self.path)
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._submit(partial(fn, *args, **kwargs)).wait()

    async def _connect(self) -> _ThreadConnection:
        with trio.move_on_after(OPEN_SECONDS, shield=True):
            try:
                await self._submit(self._open_here).wait()
            except BaseException:
                self.stop()
                raise
            return self
        raise StoreDown(f"did not open within {OPEN_SECONDS:g} s; check the disk", path=self.path)

    async def close(self) -> None:
        if not self._running:
            return
        closing = self._submit(self._close_here)
        self.stop()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await closing.wait()
            self._thread.join(JOIN_SECONDS)  # the stop is the next item: microseconds, and then no thread is left
            return
        message = f"did not close within {CLOSE_SECONDS:g} s; its thread closes it once the running batch ends"
        raise StoreDown(message, path=self.path)

    aclose = close

    def stop(self) -> None:
        """Close and end the thread once the queue is empty. Waits for nothing, as aiosqlite's finaliser calls it."""
        self._running = False
        self._items.put_nowait((None, self._close_and_stop))

    def _submit(self, fn: Callable[[], T]) -> Call[T]:
        call = Call(self._loop, [fn], trio.lowlevel.current_task())
        self._items.put_nowait((call, call))
        return call

    # The thread alone opens, stores and closes the connection: an open whose caller has given up is closed by the stop behind it.

    def _open_here(self) -> None:
        self._connection = self._connector()

    def _close_here(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _close_and_stop(self) -> object:
        self._close_here()
        return _STOP_RUNNING_SENTINEL


class _InlineConnection:
    """The same without a thread: `run` is one checkpoint, and the outcome is always known."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = connection

    async def run(self, fn: Batch[T], /) -> T:
        if self._connection is None:
            raise _closed(self.path)
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            return _guarded(fn, self._connection, self.path)
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def call_soon(self, fn: Callable[[], None], /) -> None:
        fn()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        await trio.lowlevel.cancel_shielded_checkpoint()


def _guarded(fn: Batch[T], connection: sqlite3.Connection, path: str) -> T:
    """`fn(connection)`, with no transaction left behind and store failures as our errors."""
    try:
        try:
            result = fn(connection)
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
        if connection.in_transaction:
            connection.rollback()
            raise RuntimeError("a batch left its transaction open; it was rolled back")
    except sqlite3.Error as exc:
        ours = map_sqlite_error(exc, path)
        if ours is None:
            raise
        raise ours from exc
    return result


def _closed(path: str) -> StoreDown:
    return StoreDown("the connection is closed", path=path)
