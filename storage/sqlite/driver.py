"""The SQLite driver: a batch of ops is one call into the writing connection's thread and one transaction.

Lives here: BEGIN to COMMIT, the rerun op by op, snapshots for reads, opening and closing. Not here: what an op does (`handlers`).

Invariant: no await between BEGIN and COMMIT. A batch is first tried without savepoints; if an op fails on data after it has written,
all is rolled back and each op runs under its own savepoint, so that the offender fails alone (INB-13).
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trio

from ..changes import Changes
from ..clock import StoreClock
from ..commit import Applied, Failure
from ..handlers.table import HANDLERS, carry_out
from ..model.addresses import Scope
from ..model.errors import CallboardError, Rejected, StoreError
from ..ops import VoidLeases
from ..ops.base import Op
from ..queries import load
from ..rows import Row
from .bridge import CLOSE_SECONDS, Executor, open_connection
from .connect import MEMORY
from .faults import map_sqlite_error, shown
from .lock import FileLock, acquire_lock
from .migrations import check_file, migrate
from .tx import SqliteTx

READERS = 2
FLOOR_SECONDS = 0.5
"""How often the clock's floor is written, beside whatever commits: the most that a restart may fall behind (RT-18)."""

# SQLite itself goes on writing to the files that it has open, and what is accepted there is gone when this process is.
_MOVED = "or its log was deleted or replaced while it was open; stop this process and put the file back"


class SqliteDriver:
    """One owned SQLite file: a writer, readers and the lock."""

    rides = True

    def __init__(self, path: str, writer: Executor, readers: Sequence[Executor], lock: FileLock | None) -> None:
        self.name = f"sqlite:///{path}"
        self.path = path
        self.lock = lock
        self.migrated: tuple[str, ...] = ()
        self._writer = writer
        self._readers = itertools.cycle(readers or [writer])
        self._open = [*readers, writer]
        self._sql = load("sqlite")
        self._scopes: dict[Scope, int] = {}
        self._clock = StoreClock(0.0)
        self._floor_at = 0.0
        self._files: dict[str, tuple[int, int] | None] = {}

    async def start(self) -> None:
        """Migrate, take the clock's floor over, and void the leases of the file's last owner."""
        self.migrated = tuple(map(str, await self._writer.run(migrate)))
        floor = await self._writer.run(lambda conn: conn.execute(self._sql["meta_get"], ("clock_floor",)).fetchone())
        self._clock = StoreClock(floor[0] if floor else 0.0)
        await self.apply([VoidLeases()])
        if self.path != MEMORY:
            self._files = _identities(self.path)

    @property
    def file(self) -> Path | None:
        """The database's file; None for one in memory."""
        return None if self.path == MEMORY else Path(self.path).absolute()

    def announce(self, url: str) -> None:
        """Say in the lock file where this process serves."""
        if self.lock is not None:
            self.lock.announce(url)

    def now(self) -> float:
        """Store time in seconds since the epoch."""
        return self._clock.now()

    async def attend(self, changes: Changes, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Nothing: nobody else writes to the file, and its clock is this process's."""
        task_status.started()

    async def apply(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied:
        """Commit `ops` in one transaction; an op that is refused fails alone. Raises `StoreError` kinds or `StoreDown` for all.

        `meanwhile` is called in the Trio thread once all of it is carried out and only the disk is waited for.
        """
        return await self._writer.run(partial(self._apply, ops, self.now(), meanwhile=meanwhile))

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]:
        """Rows of each statement, all from one snapshot."""
        return await next(self._readers).run(partial(self._read, queries))

    async def aclose(self) -> None:
        """Write the clock's floor, close all connections and give the file up."""
        # Each step has a limit of its own below this one. If it passes, the lock is kept: a thread may still be writing.
        with trio.move_on_after((len(self._open) + 1) * CLOSE_SECONDS, shield=True):
            try:
                await self._writer.run(partial(self._apply, (), self.now(), last=True))
            finally:
                for connection in self._open:
                    await connection.aclose()
                if self.lock is not None:
                    self.lock.release()

    def _read(self, queries: Sequence[tuple[str, Mapping[str, Any]]], conn: sqlite3.Connection) -> list[list[Row]]:
        if len(queries) == 1:
            name, params = queries[0]
            return [conn.execute(self._sql[name], params).fetchall()]
        conn.execute("BEGIN")
        try:
            return [conn.execute(self._sql[name], params).fetchall() for name, params in queries]
        finally:
            conn.execute("COMMIT")

    def _apply(
        self,
        ops: Sequence[Op[Any]],
        now: float,
        conn: sqlite3.Connection,
        *,
        last: bool = False,
        meanwhile: Callable[[], None] | None = None,
    ) -> Applied:
        for name, known in self._files.items():
            if _identity(name) != known:
                raise StoreError(_MOVED, path=shown(self.path))
        outcomes: list[Any] = []
        touched: dict[str, int] = {}
        tally: dict[tuple[str, str], int] = {}
        try:
            conn.execute("BEGIN IMMEDIATE")
            tx = SqliteTx(conn, self._sql, self._scopes, now)
            outcomes = carry_out(tx, ops)
            touched, tally = tx.touched, tx.tally
        except Exception as failure:
            self._scopes.clear()  # a scope that this transaction made is not there, and its number will be another's
            if isinstance(failure, sqlite3.Error) and map_sqlite_error(failure, self.path) is not None:
                raise
            conn.rollback()
            conn.execute("BEGIN IMMEDIATE")
            outcomes, touched, tally = self._one_by_one(conn, ops, now)
        if last or now - self._floor_at >= FLOOR_SECONDS:
            self._floor_at = now
            conn.execute(self._sql["meta_put"], ("clock_floor", now))
        if meanwhile is not None:
            # Not earlier: with two threads at work at once, each waits for the interpreter more than it gets done.
            self._writer.call_soon(meanwhile)
        try:
            conn.execute("COMMIT")
        except sqlite3.Error:
            self._scopes.clear()
            raise
        return Applied(outcomes, touched, tally)

    def _one_by_one(
        self, conn: sqlite3.Connection, ops: Sequence[Op[Any]], now: float
    ) -> tuple[list[Any], dict[str, int], dict[tuple[str, str], int]]:
        outcomes: list[Any] = []
        touched: dict[str, int] = {}
        tally: dict[tuple[str, str], int] = {}
        for op in ops:
            tx = SqliteTx(conn, self._sql, {}, now)
            conn.execute("SAVEPOINT op")
            try:
                outcomes.append(HANDLERS[type(op)](tx, op))
                for recipient, aspect in tx.touched.items():
                    touched[recipient] = touched.get(recipient, 0) | aspect
                for key, by in tx.tally.items():
                    tally[key] = tally.get(key, 0) + by
            except CallboardError as refusal:
                conn.execute("ROLLBACK TO op")
                outcomes.append(Failure(refusal))
            except Exception as failure:
                # Whatever an op's data makes Python or SQLite raise: one that got away would end the store for all.
                if isinstance(failure, sqlite3.Error) and map_sqlite_error(failure, self.path) is not None:
                    raise
                conn.execute("ROLLBACK TO op")
                refused = Rejected(f"the store could not carry out {type(op).__name__}: {failure}")
                refused.__cause__ = failure
                outcomes.append(Failure(refused))
            conn.execute("RELEASE op")
        return outcomes, touched, tally


def _identities(path: str) -> dict[str, tuple[int, int] | None]:
    file = os.path.realpath(path)
    return {name: _identity(name) for name in (file, f"{file}-wal")}


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def open_sqlite(path: str, *, executor: Literal["thread", "inline"] = "thread") -> SqliteDriver:
    """Take the file, open it, migrate it. Raises `StoreLocked`, or the kind of `StoreError` that says what is wrong."""
    memory = path == MEMORY
    lock = None if memory else acquire_lock(path)
    opened: list[Executor] = []
    try:
        if not memory:
            check_file(path)
        opened.append(await open_connection(path, readonly=False, executor=executor))
        if not memory:
            for _ in range(READERS):
                opened.append(await open_connection(path, readonly=True, executor=executor))
        driver = SqliteDriver(path, opened[0], opened[1:], lock)
        await driver.start()
    except BaseException:
        with trio.move_on_after(len(opened) * CLOSE_SECONDS, shield=True):
            for connection in reversed(opened):
                await connection.aclose()
        if lock is not None:
            lock.release()
        raise
    return driver
