"""What a failure of SQLite or of the file system means to a person.

Here: the one table from SQLite result codes and errno values to our errors; each message says in one bounded line what to do, and
`path` names the file. Not here: data errors (a constraint, a wrong type, bad SQL). They map to None, because the driver reruns such a
batch op by op and only the offender fails. Invariant: a failure of the store itself never leaves this folder as a `sqlite3` exception.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ..model.errors import (
    CallboardError,
    NotADatabase,
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    bounded,
)

PATH_LIMIT = 300

_NOT_WRITABLE = "can't be written; give this user write access to the file and its folder"
_FULL = "no space is left for the database; free some and send again"

_BY_CODE: dict[int, tuple[type[CallboardError], str]] = {
    sqlite3.SQLITE_PERM: (StoreReadOnly, _NOT_WRITABLE),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, _NOT_WRITABLE),
    sqlite3.SQLITE_FULL: (StoreFull, _FULL),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "the database is damaged; restore a backup with `callboard restore`"),
    sqlite3.SQLITE_NOTADB: (NotADatabase, "is not an SQLite database; name another file"),
    sqlite3.SQLITE_BUSY: (StoreDown, "another program holds the database; close it and try again"),
    sqlite3.SQLITE_LOCKED: (StoreDown, "another connection holds the database; try again"),
    sqlite3.SQLITE_PROTOCOL: (StoreDown, "the file system does not lock files reliably; use a local disk"),
    sqlite3.SQLITE_IOERR: (StoreDown, "reading or writing failed; check the disk"),
    sqlite3.SQLITE_NOLFS: (StoreError, "the file system can't hold a file of this size; use another one"),
}


def map_sqlite_error(exc: sqlite3.Error, path: str) -> CallboardError | None:
    """Our error for a failure of the store at `path`; None for a data error, which concerns one op and not the file."""
    extended: int | None = getattr(exc, "sqlite_errorcode", None)
    if extended is None:
        return None
    code = extended & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path)
    if code not in _BY_CODE:
        return None
    kind, advice = _BY_CODE[code]
    return kind(f"{advice} ({exc.sqlite_errorname}: {exc})", path=shown(path))


def map_os_error(exc: OSError, path: str) -> CallboardError:
    """Our error for an `OSError` about the file at `path` or its folder."""
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"{_NOT_WRITABLE} ({exc.strerror})", path=shown(path))
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{_FULL} ({exc.strerror})", path=shown(path))
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return _no_folder(path)
    return StoreDown(f"can't be used; check the file system ({exc.strerror})", path=shown(path))


def is_a_folder(path: str) -> StoreError:
    """The error for a folder where a file is meant; SQLite itself calls it a failing disk."""
    return StoreError("is a folder; name a file", path=shown(path))


def shown(path: str) -> str:
    """`path` as one bounded, printable line: file names may hold line breaks."""
    return bounded(path, PATH_LIMIT)


def _cannot_open(path: str) -> CallboardError:
    """SQLite gives one code for four mistakes, and only the file system can tell them apart."""
    file = Path(path)
    if not file.parent.is_dir():
        return _no_folder(path)
    if file.is_dir():
        return is_a_folder(path)
    if not os.access(file if file.exists() else file.parent, os.R_OK | os.W_OK, effective_ids=True):
        return StoreReadOnly(_NOT_WRITABLE, path=shown(path))
    if not file.exists():
        return StoreError("does not exist; check its name", path=shown(path))
    return StoreDown("can't be opened; check its permissions and the limit of open files", path=shown(path))


def _no_folder(path: str) -> CallboardError:
    return StoreError("its folder does not exist; create it or name another file", path=shown(path))
