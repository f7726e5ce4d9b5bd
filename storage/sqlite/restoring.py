"""A backup becomes a folder's database. Synchronous, for a thread of its own.

Lives here: the order of the steps, what is done to the copy (`restored.sql`), putting aside what was there. Not here: copying and examining
(`copying`), whether a server runs in that folder.

Invariant: nothing is touched before the backup was read to its end, found whole, and made ready; what was there is kept under another name.
A killed restore leaves the old database, or none beside the one that was put aside, and can be repeated.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Final

import attrs

from ..drafts import Draft, sync_folder, write_failed
from ..model.errors import Rejected
from ..model.limits import RESTORE_JUMP
from .copying import Backup, Tell, copy, draft_connection, examine, failures_of, opened_backup, store_time
from .faults import shown
from .lock import acquire_lock
from .migrations import migrate, statements_of

_SCRIPT: Final = resources.files(__name__.rpartition(".")[0]) / "restored.sql"
_LOGS: Final = ("-wal", "-journal")


@attrs.frozen
class Restored:
    """What was restored, and where the database is that was there before."""

    backup: Backup
    kept: Path | None


def restore(file: Path, database: Path, *, replace: bool, tell: Tell) -> Restored:
    """Make the backup `file` the database `database`, migrated to this version, with all counters jumped (OPS-5).

    Raises `StoreLocked` if a process has either open; `Rejected` if there is a database and `replace` is not set; what `opened_backup` and
    `examine` raise of a file that is no backup, damaged, or of a newer Callboard.
    """
    database = database.resolve()
    with acquire_lock(database):
        if file.exists() and database.exists() and file.samefile(database):
            raise Rejected("is the database itself", path=shown(str(file)))
        if _there(database) and not replace:
            message = "there is a database already; --force puts it aside, under another name"
            raise Rejected(message, path=shown(str(database)))
        with Draft(database) as draft:
            with opened_backup(file) as source:
                copy(source, draft, None, tell)
            backup = examine(draft, tell, file=file)
            tell("making ready", 0, 0)
            _make_ready(draft, backup)
            draft.sync()
            kept = _put_aside(database) if _there(database) else None
            draft.publish(replace=True)  # of what, the lock sees to: nothing is there
    return Restored(backup, kept)


def _make_ready(draft: Draft, backup: Backup) -> None:
    with failures_of(draft.file), draft_connection(draft) as connection:
        connection.execute(
            "PRAGMA journal_mode=MEMORY"
        )  # with OFF nothing could be rolled back, and a migration may want to
        migrate(connection)
        parameters = {"jump": RESTORE_JUMP, "now": store_time(connection), "made_at": backup.made_at}
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements_of(_SCRIPT):
            connection.execute(statement, parameters)
        connection.execute("COMMIT")


def _there(database: Path) -> bool:
    return any(Path(f"{database}{end}").exists() for end in ("", *_LOGS))


def _put_aside(database: Path) -> Path:
    """Rename a database, damaged or not, with all that belongs to it."""
    if database.exists() and any(Path(f"{database}{end}").exists() for end in _LOGS):
        # Two renames are not one step, so its log goes into it first. If it is too damaged for that, they go one by one.
        with suppress(sqlite3.Error), closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    kept = _free_name(database)
    try:
        for end in (*_LOGS, ""):
            with suppress(FileNotFoundError):
                Path(f"{database}{end}").rename(f"{kept}{end}")
        Path(f"{database}-shm").unlink(missing_ok=True)
        sync_folder(database.parent)
    except OSError as error:
        raise write_failed(error, kept) from error
    return kept


def _free_name(database: Path) -> Path:
    name = f"{database.name}.before-restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number, kept = 1, database.with_name(name)
    while _there(kept):
        number += 1
        kept = database.with_name(f"{name}-{number}")
    return kept
