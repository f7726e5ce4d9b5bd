"""The one door to what is remembered: `apply(op)`, named reads, change hints, `run()`.

Lives here: `Store`, `open_store`, the Driver protocol. Not here: SQL, and how a database is driven. It starts no task: `run()` is a
child that the runtime starts first; before it runs and after it ends, every op fails with `StoreDown`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import trio

from .access import Access
from .changes import Changes
from .commit import Batches, GroupCommit
from .model.errors import Busy, CallboardError, Conflict, InvalidField
from .ops.base import Op
from .reads import Reads
from .rows import Row
from .urls import POSTGRES, is_server

if TYPE_CHECKING:
    from .sqlite.backup import Copy

R = TypeVar("R")
SQLITE = "sqlite://"
Observer = Callable[[Op[Any], Any, float], None]


class Driver(Batches, Protocol):
    """What a database must offer. `read` runs its statements in one snapshot; `attend` is what it does beside them while the store runs."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> Path | None: ...
    @property
    def migrated(self) -> tuple[str, ...]: ...
    def now(self) -> float: ...
    def announce(self, url: str) -> None: ...
    async def attend(
        self, changes: Changes, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None: ...
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
        self._copying = False
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
    def shared(self) -> bool:
        """Whether other processes may use it at the same time."""
        return is_server(self.name)

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

    async def ride(self, make: Callable[[], Op[R] | None]) -> R:
        """Commit what `make` gives at the end of the next batch that may make something due; see `GroupCommit.ride`."""
        try:
            return await self._commit.ride(make)
        except CallboardError as error:
            error.store = self
            raise

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

    @asynccontextmanager
    async def backup(self) -> AsyncIterator[Copy]:
        """A copy of the database as it is now, to be read inside the block; commits go on meanwhile. One at a time: it takes room on the disk.

        Raises `Busy` while another one is open, `Conflict` for a store that is no file, `StoreFull`, and kinds of `StoreError`.
        """
        from .sqlite.backup import open_copy

        if self.file is None:
            raise Conflict(without_file(self.name))
        if self._copying:
            raise Busy("a backup is being made already")
        self._copying = True
        try:
            async with open_copy(self.file, self.now()) as copy:
                yield copy
        finally:
            self._copying = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The flusher, and whatever the database needs beside it. Ends only by cancellation, after it has committed what had queued."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._driver.attend, self.changes)
            await self._commit.run(task_status=task_status)


@asynccontextmanager
async def open_store(url: str, *, executor: Literal["thread", "inline"] = "thread") -> AsyncIterator[Store]:
    """Open the store that `url` names: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`, `postgresql://user@host/db`.

    Migrates it first. `executor` "inline" runs SQLite in the Trio thread, for tests whose clock jumps; it means nothing elsewhere.
    Raises `InvalidField` for an unknown URL or a missing extra, `StoreDown` if a server does not answer, and `StoreError` and its kinds
    if the database can't be used.
    """
    driver = await _driver(url, executor)
    try:
        yield Store(driver)
    finally:
        await driver.aclose()


async def _driver(url: str, executor: Literal["thread", "inline"]) -> Driver:
    if url.startswith(POSTGRES):
        with _extra():
            from .postgres.driver import open_postgres
        return await open_postgres(url)
    from .sqlite.driver import open_sqlite

    return await open_sqlite(sqlite_path(url), executor=executor)


@contextmanager
def _extra() -> Generator[None]:
    try:
        yield
    except ImportError as missing:
        if (missing.name or "").startswith(__package__ or "storage"):
            raise  # a defect of ours
        message = f"needs the extra postgres ({missing.name} is missing): pip install 'callboard[postgres]'"
        raise InvalidField(message, path="store") from None


def unapplied(url: str) -> tuple[str, ...]:
    """The migrations that opening the existing store at `url` would apply; it is not changed. Blocks for the file or the server.

    Raises `InvalidField`, `StoreLocked` if a file is in use, and what opening it would raise.
    """
    if url.startswith(POSTGRES):
        with _extra():
            from .postgres.driver import pending_at
        # It may be asked from within a Trio program, whose loop can't be entered again.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(trio.run, pending_at, url).result()
    from .sqlite.lock import acquire_lock
    from .sqlite.migrations import pending_in

    path = sqlite_path(url)
    with acquire_lock(path):
        return tuple(map(str, pending_in(path)))


def without_file(url: str) -> str:
    """Why a store that is no file can't be backed up or restored by us."""
    if url.startswith(POSTGRES):
        return "a PostgreSQL store is backed up with pg_dump and restored with pg_restore; README says how, and what must follow"
    return "a store in memory can't be backed up or restored: it has no file"


def sqlite_path(url: str) -> str:
    """The file that an sqlite URL names. Raises `InvalidField` for another scheme or no file."""
    if not url.startswith(SQLITE + "/") or len(url) <= len(SQLITE) + 1:
        raise InvalidField(
            "must be sqlite:///FILE (relative) or sqlite:////FILE (absolute), or postgresql://USER@HOST/DATABASE",
            path="store",
        )
    return url[len(SQLITE) + 1 :]
