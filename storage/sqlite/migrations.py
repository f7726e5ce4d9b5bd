"""Brings a database's schema to the newest version, one numbered file after the other; refuses what is not ours to change.

Here: the ledger (table `migration`), applying what is pending, and the checks before anything is written. Not here: the schema itself,
reading its files (`storage/ledger`), opening connections, locking. Invariants: a migration is one transaction, so its SQL and its ledger
row are there together or not at all; a file that is another program's, newer than this code, or different from its ledger is not
changed by one byte.

Everything is synchronous over a `sqlite3.Connection`, to be run as a batch of the executor.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs

from ..ledger import numbered_files, still_to_apply, text_of
from ..model.errors import NotADatabase, StoreCorrupt, StoreError
from .faults import is_a_folder, map_sqlite_error, shown

APPLICATION_ID = 0x43425244  # "CBRD" in the file's header: ours, whatever its tables are called
BUILT_IN = resources.files(__name__.rpartition(".")[0]) / "migrations"

_LEDGER = """CREATE TABLE migration (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at REAL NOT NULL)"""
_COMMENT = r"--[^\n]*(?:\n|\Z)|/\*.*?\*/"
_FIRST_WORD = re.compile(rf"(?:\s|{_COMMENT})*(\w*)", re.DOTALL)
_BREAKS_TRANSACTION = {"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "VACUUM", "ATTACH", "DETACH"}


@attrs.frozen
class Migration:
    """One file: its number, its name, its statements, and the SHA-256 (hex) of its text with `\\n` line ends."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...] = attrs.field(repr=False)

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


def check_file(path: str | os.PathLike[str], migrations: Sequence[Migration] | None = None) -> None:
    """Refuse a file that `migrate` would refuse, before a writer is opened: opening one already changes the file (WAL).

    A missing or empty file passes. Call it with the lock held. Raises as `pending` does, and the mapped errors of an unreadable file.
    """
    if Path(path).resolve().exists():
        pending_in(path, migrations)


def pending_in(path: str | os.PathLike[str], migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """The migrations still to apply to a file, which is read and changed as little as can be. As `check_file`."""
    file = Path(path).resolve()
    if file.is_dir():
        raise is_a_folder(str(file))
    try:
        with closing(sqlite3.connect(gentlest_uri(file), uri=True, isolation_level=None)) as connection:
            return pending(connection, migrations)
    except sqlite3.Error as exc:
        raise map_sqlite_error(exc, str(file)) or StoreError(f"can't be read ({exc})", path=shown(str(file))) from exc


def pending(conn: sqlite3.Connection, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """The migrations still to apply, in order. Reads only.

    Raises SchemaTooNew, NotADatabase (another program's database), StoreCorrupt (no ledger, or a gap in it), StoreError (an applied
    migration's file has changed since).
    """
    known = load_migrations() if migrations is None else migrations
    path = _path_of(conn)
    return still_to_apply(known, _read_ledger(conn, path), path)


def migrate(conn: sqlite3.Connection, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply what is pending and return it; each migration commits by itself. `conn` must be in no transaction.

    Raises as `pending` does, with nothing touched; StoreError if one fails: it is rolled back, those before it stay. A failure of the
    store itself is raised as SQLite's, for the executor to map.
    """
    todo = pending(conn, migrations)
    (enforced,) = conn.execute("PRAGMA foreign_keys").fetchone()
    # A table is changed by building its successor and dropping it, and with keys enforced DROP deletes the children's rows.
    conn.execute("PRAGMA foreign_keys=OFF")
    try:
        for migration in todo:
            _apply(conn, migration)
    finally:
        conn.execute(f"PRAGMA foreign_keys={enforced}")
    return todo


def load_migrations(folder: Traversable | Path = BUILT_IN) -> tuple[Migration, ...]:
    """The folder's `NNNN_name.sql` files by number, from 0001 without a gap; other files than `.sql` are ignored.

    Raises ValueError naming the file for a bad name, a gap, a number used twice, an unfinished statement, or one that would break the
    transaction (BEGIN, COMMIT, VACUUM, ATTACH, …).
    """
    return tuple(
        Migration(
            file.version, file.name, file.checksum, tuple(_statements(file.text, f"{file.version:04}_{file.name}.sql"))
        )
        for file in numbered_files(folder)
    )


def statements_of(file: Traversable | Path) -> tuple[str, ...]:
    """The statements of an SQL file. Raises ValueError for one that has no end, or would break a transaction around all of them."""
    return tuple(_statements(text_of(file), file.name))


def _statements(text: str, name: str) -> Iterator[str]:
    statement = ""
    for part in re.split(r"(?<=;)", text):
        statement += part
        if sqlite3.complete_statement(statement):
            first = _FIRST_WORD.match(statement)
            if first is not None and first[1].upper() in _BREAKS_TRANSACTION:
                raise ValueError(f"{name}: {first[1]} would break the migration's transaction")
            yield statement.strip()
            statement = ""
    if re.sub(rf"\s|{_COMMENT}", "", statement, flags=re.DOTALL):
        raise ValueError(f"{name}: the last statement has no end: {statement.strip()[:80]!r}")


def _apply(conn: sqlite3.Connection, migration: Migration) -> None:
    path = _path_of(conn)
    conn.execute("BEGIN IMMEDIATE")
    try:
        if migration.version == 1:
            conn.execute(f"PRAGMA application_id={APPLICATION_ID}")
            conn.execute(_LEDGER)
        for statement in migration.statements:
            conn.execute(statement)
        orphan = conn.execute("PRAGMA foreign_key_check").fetchone()
        if orphan is not None:
            message = f"migration {migration} leaves rows of {orphan[0]} without their {orphan[2]}; it was not applied"
            raise StoreError(message, path=path)
        row = (migration.version, migration.name, migration.checksum, time.time())
        conn.execute("INSERT INTO migration (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)", row)
        conn.execute("COMMIT")
    except BaseException as exc:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        if isinstance(exc, sqlite3.Error) and map_sqlite_error(exc, path) is None:
            raise StoreError(f"migration {migration} failed ({exc}); it was not applied", path=path) from exc
        raise


def _read_ledger(conn: sqlite3.Connection, path: str) -> list[tuple[int, str, str]]:
    (application,) = conn.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
    if application == 0 and not tables:
        return []
    if application != APPLICATION_ID:
        raise NotADatabase("is another program's database; name another file", path=path)
    if "migration" not in tables:
        raise StoreCorrupt("its list of applied migrations is missing; restore a backup", path=path)
    return conn.execute("SELECT version, name, checksum FROM migration ORDER BY version").fetchall()


def _path_of(conn: sqlite3.Connection) -> str:
    (file,) = [row[2] for row in conn.execute("PRAGMA database_list") if row[1] == "main"]
    return shown(file or ":memory:")


def gentlest_uri(file: Path) -> str:
    """What opens `file`, which nobody has open, as it is and changes the least."""
    if _size(file.with_name(file.name + "-journal")):
        mode = "mode=rw"  # a crash within a transaction in rollback mode: nobody can read it before it is rolled back
    elif _size(file.with_name(file.name + "-wal")):
        mode = "mode=ro"  # a crash in WAL mode: part of the database is in the log, and reading that rebuilds -shm
    else:
        mode = "mode=ro&immutable=1"  # the file is all there is; immutable makes no -wal and -shm beside it
    return f"{file.as_uri()}?{mode}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
