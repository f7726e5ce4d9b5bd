"""How a connection to the file is opened: its URI, its pragmas, its proof that the file can be used.

Here: `connect`, which blocks. Not here: threads and waiting (`bridge.py`), whose file it is (`lock.py`), and whether the schema is ours
(`migrations.check_file`, to be asked before a writer is opened, because opening one switches the file to WAL).
Invariant: one writer, which alone checkpoints; `synchronous=FULL` on it, so that a commit outlives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from ..model.errors import StoreError
from .faults import map_sqlite_error, shown

MEMORY = ":memory:"
BUSY_SECONDS = 5.0
CACHED_STATEMENTS = 512
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 16_384


def connect(location: str, *, readonly: bool) -> sqlite3.Connection:
    """Open a file name, a `file:` URI or `:memory:`; the connection belongs to the calling thread.

    A writer creates a missing file, a reader does not. Waits at most BUSY_SECONDS for a lock. Raises StoreError and its kinds, or
    StoreDown.
    """
    path = display_path(location)
    if not readonly:
        _make_private(location)
    try:
        connection = sqlite3.connect(
            _uri(location, readonly),
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # else the module opens transactions of its own
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            if readonly:
                _configure_reader(connection)
            else:
                _configure_writer(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as exc:
        raise map_sqlite_error(exc, path) or StoreError(f"can't be opened ({exc})", path=path) from exc
    return connection


def display_path(location: str) -> str:
    """The file that `location` names, as errors show it."""
    if location.startswith("file:"):
        location = location.removeprefix("file:").partition("?")[0]
    return shown(location)


def _configure_writer(connection: sqlite3.Connection, path: str) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode not in ("wal", "memory"):
        raise StoreError("the file system has no shared memory for WAL; use a local disk", path=path)
    # Below FULL a commit in WAL does not survive a power cut, and its acknowledgement would be a lie.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size=-{WRITER_CACHE_KIB}")
    # On a WAL file that can't be written all of this and even BEGIN IMMEDIATE succeed: without trying, the first send would find out.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("PRAGMA user_version=1")
    connection.execute("ROLLBACK")


def _configure_reader(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only=1")
    # Two connections that checkpoint at once can corrupt the file in SQLite before 3.51.3 (the WAL-reset race).
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size=-{READER_CACHE_KIB}")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # nothing was read so far: fail here, not later


def _make_private(location: str) -> None:
    """Make a missing file for its owner alone: SQLite would let everybody read what people say. Its log is made with the file's mode."""
    if location == MEMORY or location.startswith("file:"):
        return
    # Only one that does not exist: closing a descriptor of a file that SQLite has open would drop its locks. What fails here fails there too.
    with suppress(OSError):
        os.close(os.open(location, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _uri(location: str, readonly: bool) -> str:
    if location == MEMORY or location.startswith("file:"):
        return location
    return f"{Path(location).absolute().as_uri()}?mode={'rw' if readonly else 'rwc'}"
