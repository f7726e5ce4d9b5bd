"""Copies of a database, made while it is in use, and what is asked of one before anybody relies on it.

Lives here: copying page by page, examining. Not here: names and places (`drafts`), what a restore does to a copy (`restoring`).

Invariant: a copy is one snapshot: what was committed before it, and nothing else, whatever is written meanwhile. The source is only read,
so its writer goes on; its log can't be emptied until the copy is made, and grows by what is written meanwhile. All of this is synchronous,
for a thread of its own. `tell` is called at every step and may raise, to end it.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import attrs

from ..drafts import Draft
from ..model.errors import NotADatabase, NotFound, Rejected, StoreCorrupt, StoreError, StoreFull
from .connect import connect
from .faults import is_a_folder, map_sqlite_error, shown
from .lock import acquire_lock, held, in_use
from .migrations import gentlest_uri, pending

STEP_PAGES: Final = 256
RESERVE_BYTES: Final = 64 * 1024 * 1024
"""Left free beside a database that is in use: a copy must not take the room that the next commits need."""
_LOOK_EVERY: Final = 100_000
"""Instructions of SQLite between two looks whether a check is to end: milliseconds."""

Tell = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much (0: that is not known)."""


@attrs.frozen
class Backup:
    """What a backup says of itself. `made_at` is in seconds since the epoch, `schema` the number of its newest migration, `size` in bytes."""

    made_at: float
    schema: int
    size: int


def copy_in_use(database: Path, draft: Draft, now: float, tell: Tell) -> None:
    """Copy a database that this process has open. `now` is store time. Raises `StoreFull`, and the kinds of `StoreError`."""
    with closing(connect(str(database), readonly=True)) as source:
        if shutil.disk_usage(draft.file.parent).free < _bytes(source) + RESERVE_BYTES:
            raise StoreFull("there is no room for a copy beside the database", path=shown(str(draft.file)))
        copy(source, draft, now, tell)


def copy_at_rest(database: Path, draft: Draft, tell: Tell) -> None:
    """Copy a database that nobody has open, and keep others from opening it meanwhile; it isn't migrated. Raises `NotFound`, `StoreLocked`."""
    if not database.exists():
        raise NotFound(f"there is no store {shown(str(database))}")
    with acquire_lock(database), _opened(database) as source:
        copy(source, draft, store_time(source), tell)


@contextmanager
def opened_backup(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads `file`, which may be a backup, or a database that was copied by other means while nobody had it open.

    Raises `NotFound`, `StoreLocked` if a process has it open, `NotADatabase`, `SchemaTooNew`, `StoreCorrupt` and other kinds of `StoreError`.
    """
    try:
        with file.open("rb"):
            pass
    except FileNotFoundError:
        raise NotFound("does not exist", path=shown(str(file))) from None
    except IsADirectoryError:
        raise is_a_folder(str(file)) from None
    except OSError as error:
        raise Rejected(f"can't be read: {error.strerror}", path=shown(str(file))) from error
    if held(file):
        raise in_use(file)
    with _opened(file) as source:
        yield source


def copy(source: sqlite3.Connection, draft: Draft, made_at: float | None, tell: Tell) -> None:
    """Make `draft` a copy of what `source` reads, in one file, on disk when this returns; without `made_at` it isn't marked as a new backup."""
    (page_size,) = source.execute("PRAGMA page_size").fetchone()
    before = 0

    def step(_: int, remaining: int, total: int) -> None:
        nonlocal before
        done = total - remaining
        draft.written((done - before) * page_size)
        before = done
        tell("copying", done * page_size, total * page_size)

    with failures_of(draft.file, source=_file_of(source)), draft_connection(draft) as target:
        # Without a transaction around them the steps would be of different snapshots, and each commit in between would start them anew.
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            source.backup(target, pages=STEP_PAGES, progress=step)
        finally:
            source.execute("ROLLBACK")
        # A copy says as its source that it has a log, which it hasn't: whoever opened it to read would have to make one beside it.
        target.execute("PRAGMA journal_mode=DELETE").fetchone()
        if made_at is not None:
            target.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('backup_at', ?)", (made_at,))
    draft.sync()


def examine(draft: Draft, tell: Tell, *, file: Path | None = None) -> Backup:
    """Read all of a copy and say what it is; errors name `file`. Raises `StoreCorrupt` for a damaged one, and as `pending` does."""
    name = file or draft.file
    tell("checking", 0, 0)
    with failures_of(name), closing(sqlite3.connect(f"{draft.path.as_uri()}?mode=ro", uri=True)) as connection:
        schema = check_ours(connection, name)
        found = _pulsed(connection, "PRAGMA integrity_check(1)", tell)
        if found != "ok":
            raise StoreCorrupt(f"is damaged, and can't be used ({found})", path=shown(str(name)))
        # One that was copied by other means doesn't know when that was; the clock's floor is the time of its last commit.
        query = "SELECT value FROM meta WHERE key IN ('backup_at', 'clock_floor') ORDER BY key = 'backup_at' DESC"
        made = connection.execute(query).fetchone()
    return Backup(made[0] if made else 0.0, schema, draft.size)


def store_time(connection: sqlite3.Connection) -> float:
    """What store time would begin with if the database were opened now."""
    floor = connection.execute("SELECT value FROM meta WHERE key = 'clock_floor'").fetchone()
    return max(time.time(), floor[0] if floor else 0.0)


def check_ours(connection: sqlite3.Connection, file: Path) -> int:
    """The schema's number. Raises as `pending` does, and `NotADatabase` for an empty file."""
    pending(connection)
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise NotADatabase("is empty", path=shown(str(file)))
    return connection.execute("SELECT max(version) FROM migration").fetchone()[0]


@contextmanager
def draft_connection(draft: Draft) -> Iterator[sqlite3.Connection]:
    """A connection that writes to a draft. Nothing protects it from a crash: a draft that isn't finished is thrown away."""
    uri = f"{draft.path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA journal_mode=OFF")
        yield connection


@contextmanager
def failures_of(file: Path, *, source: Path | None = None) -> Iterator[None]:
    """Failures of SQLite inside the block as ours: what is damaged is the `source`, if there is one, and all else is said of `file`."""
    try:
        yield
    except sqlite3.Error as exc:
        name, code = shown(str(file)), getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise StoreFull("there is no room for it on the disk", path=name) from exc
        if code == sqlite3.SQLITE_CORRUPT:
            raise StoreCorrupt(f"is damaged, and can't be used ({exc})", path=shown(str(source or file))) from exc
        raise map_sqlite_error(exc, str(file)) or StoreError(f"can't be used ({exc})", path=name) from exc


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    file = file.resolve()
    if file.is_dir():
        raise is_a_folder(str(file))
    with failures_of(file):
        connection = sqlite3.connect(gentlest_uri(file), uri=True, isolation_level=None)
        with closing(connection):
            check_ours(connection, file)
            yield connection


def _file_of(connection: sqlite3.Connection) -> Path:
    return Path(next(row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"))


def _bytes(connection: sqlite3.Connection) -> int:
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return pages * size


def _pulsed(connection: sqlite3.Connection, statement: str, tell: Tell) -> str:
    """The first value of a long statement. What `tell` raises meanwhile ends it: SQLite itself would swallow that."""
    raised: list[BaseException] = []

    def look() -> int:
        try:
            tell("checking", 0, 0)
        except BaseException as error:
            raised.append(error)
        return len(raised)

    connection.set_progress_handler(look, _LOOK_EVERY)
    try:
        return connection.execute(statement).fetchone()[0]
    except sqlite3.OperationalError:
        if raised:
            raise raised.pop() from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
