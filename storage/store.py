"""The one door to what is remembered: `apply(op)`, named reads, change hints, `run()`.

Lives here: `Store`, `open_store`, the Driver protocol. Not here: SQL, and how a database is driven. It starts no task: `run()` is a
child that the runtime starts first; before it runs and after it ends, every op fails with `StoreDown`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import trio

from .access import Access
from .changes import Changes
from .commit import Batches, GroupCommit
from .model.errors import CallboardError, InvalidField
from .ops.base import Op
from .reads import Reads
from .rows import Row

R = TypeVar("R")
SQLITE = "sqlite://"
Observer = Callable[[Op[Any], Any, float], None]


class Driver(Batches, Protocol):
    """What a database must offer. `read` runs its statements in one snapshot."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> Path | None: ...
    @property
    def migrated(self) -> tuple[str, ...]: ...
    def now(self) -> float: ...
    def announce(self, url: str) -> None: ...
    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]: ...
    async def aclose(self) -> None: ...


class Store:
    """A store that is open. `changes` gives hints after commits; `reads` and `access` answer by value."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.changes = Changes()
        self.reads = Reads(self)
        self.access = Access(self)
        self._commit = GroupCommit(driver, self.changes)
        self.observer: Observer | None = None
        """Told of each op of this process that has committed, its result, and how many seconds that took. Must not block or raise."""

    @property
    def name(self) -> str:
        """The database as people may see it, without credentials."""
        return self._driver.name

    @property
    def file(self) -> Path | None:
        """The database's file; None for one in memory."""
        return self._driver.file

    @property
    def migrated(self) -> tuple[str, ...]:
        """The migrations that were applied when it was opened."""
        return self._driver.migrated

    def announce(self, url: str) -> None:
        """Tell other processes, which are refused while this one owns the store, where it serves."""
        self._driver.announce(url)

    def now(self) -> float:
        """Store time, in seconds since the epoch."""
        return self._driver.now()

    @property
    def failing(self) -> str | None:
        """Why nothing can be committed now (an error's code); None while commits succeed."""
        return self._commit.failing

    def statistics(self) -> dict[str, int]:
        """Depth of the commit queue, ops and batches committed since the start."""
        return {"depth": self._commit.depth, "committed": self._commit.committed, "batches": self._commit.batches}

    @property
    def tallies(self) -> Mapping[tuple[str, str], int]:
        """Committed by this process: messages by `("accepted", kind)`, `("delivered", outcome)`, `("failed", reason)`, and `("takeover", "")`."""
        return self._commit.tallies

    async def apply(self, op: Op[R]) -> R:
        """Commit `op` and return its result, or raise its refusal. See `GroupCommit.apply` for cancellation."""
        return await self._told(op, self._commit.apply(op))

    async def settle(self, op: Op[R]) -> R:
        """Commit `op` even if the caller is being cancelled; `OutcomeUnknown` after `COMMIT_SECONDS`."""
        return await self._told(op, self._commit.settle(op))

    async def _told(self, op: Op[R], commit: Coroutine[Any, Any, R]) -> R:
        began = trio.current_time()
        try:
            result = await commit
        except CallboardError as error:
            error.store = self
            raise
        if self.observer is not None:
            self.observer(op, result, trio.current_time() - began)
        return result

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]:
        """Rows of named statements, all from one snapshot: for `reads` and `access`, which know their columns."""
        try:
            return await self._driver.read(*queries)
        except CallboardError as error:
            error.store = self
            raise

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The flusher. Ends only by cancellation, after it has committed what had queued."""
        await self._commit.run(task_status=task_status)


@asynccontextmanager
async def open_store(url: str, *, executor: Literal["thread", "inline"] = "thread") -> AsyncIterator[Store]:
    """Open the store that `url` names (`sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`).

    Migrates it first. `executor` "inline" runs SQLite in the Trio thread, for tests whose clock jumps.
    Raises `InvalidField` for an unknown URL, and `StoreError` and its kinds if the database can't be used.
    """
    from .sqlite.driver import open_sqlite

    driver = await open_sqlite(sqlite_path(url), executor=executor)
    try:
        yield Store(driver)
    finally:
        await driver.aclose()


def unapplied(url: str) -> tuple[str, ...]:
    """The migrations that opening the existing store at `url` would apply; it is not changed. Blocks for the file.

    Raises `InvalidField`, `StoreLocked` if it is in use, and the kinds of `StoreError` that opening it would raise.
    """
    from .sqlite.lock import acquire_lock
    from .sqlite.migrations import pending_in

    path = sqlite_path(url)
    with acquire_lock(path):
        return tuple(map(str, pending_in(path)))


def sqlite_path(url: str) -> str:
    """The file that an sqlite URL names. Raises `InvalidField` for another scheme or no file."""
    if not url.startswith(SQLITE + "/") or len(url) <= len(SQLITE) + 1:
        raise InvalidField("must be sqlite:///FILE (relative) or sqlite:////FILE (absolute)", path="store")
    return url[len(SQLITE) + 1 :]
