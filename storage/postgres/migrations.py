"""Brings a database's schema to the newest version, one numbered file after the other; refuses what is not ours to change.

Here: the ledger (table `migration`), applying what is pending, and the lock that lets several processes start at once. Not here: the
schema itself, reading its files (`storage/ledger`), opening connections. Invariants: a migration is one transaction, so its
SQL and its ledger row are there together or not at all; a schema that is another program's, newer than this code, or different from its
ledger is not changed. The schema is the first of the session's `search_path`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import attrs
import psycopg
import trio

from ..ledger import File, numbered_files, still_to_apply
from ..model.errors import NotADatabase, StoreError
from .bridge import BEGIN, COMMIT, ROLLBACK, Connection

BUILT_IN: Final = resources.files(__name__.rpartition(".")[0]) / "migrations"
LOCK: Final = 0x43425244
"""The key of the advisory lock of a database's migrations, "CBRD"."""
ROLLBACK_SECONDS: Final = 5.0

_MARK: Final = "Callboard: the migrations that were applied"
_LEDGER: Final = f"""CREATE TABLE migration (
    version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at double precision NOT NULL);
COMMENT ON TABLE migration IS '{_MARK}'"""
_LOOK: Final = """SELECT current_schema(), obj_description(m.oid, 'pg_class'), (
    SELECT count(*) FROM pg_class AS c
    WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e'))
FROM pg_namespace AS n LEFT JOIN pg_class AS m ON m.relnamespace = n.oid AND m.relname = 'migration'
WHERE n.nspname = current_schema()"""
_APPLIED: Final = "SELECT version, name, checksum FROM migration ORDER BY version"
_NOTE: Final = """INSERT INTO migration (version, name, checksum, applied_at)
VALUES ($1, $2, $3, extract(epoch FROM statement_timestamp()))"""

_BREAKS_TRANSACTION: Final = re.compile(
    r"^\s*(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|PREPARE|VACUUM|CREATE\s+DATABASE|\w.*\bCONCURRENTLY)\b",
    re.IGNORECASE | re.MULTILINE,
)


@attrs.frozen
class Migration:
    """One file: its number, its name, its text with `\\n` line ends, and the SHA-256 (hex) of that."""

    version: int
    name: str
    checksum: str
    text: str = attrs.field(repr=False)

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


async def pending(connection: Connection, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """The migrations still to apply, in order. Reads only.

    Raises SchemaTooNew, NotADatabase (another program's schema), StoreCorrupt (a gap in the ledger), StoreError (no schema, or an
    applied migration's file has changed since), and what a connection raises.
    """
    known = load_migrations() if migrations is None else migrations
    return still_to_apply(known, await _read_ledger(connection), connection.shown)


async def migrate(connection: Connection, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply what is pending and return what this call applied; each migration commits by itself. `connection` must be in no transaction.

    Processes that start at once wait for each other, and each migration is applied by one of them. Raises as `pending` does, with
    nothing touched; StoreError if one fails: it is rolled back, those before it stay.
    """
    known = load_migrations() if migrations is None else migrations
    applied: list[Migration] = []
    while await pending(connection, known):
        await connection.execute(BEGIN)
        try:
            # The one before us may need long; its tables, afterwards, must not be waited for in front of everybody.
            await connection.execute("SET LOCAL lock_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", (LOCK,))
            await connection.execute("SET LOCAL lock_timeout = '10s'")
            todo = await pending(connection, known)
            if todo:
                await _apply(connection, todo[0])
                applied.append(todo[0])
            await connection.execute(COMMIT)
        except BaseException:
            with trio.move_on_after(ROLLBACK_SECONDS, shield=True):
                if not connection.closed:
                    await connection.execute(ROLLBACK)
            raise
    return applied


def load_migrations(folder: Traversable | Path = BUILT_IN) -> tuple[Migration, ...]:
    """The folder's `NNNN_name.sql` files by number, from 0001 without a gap; other files than `.sql` are ignored.

    Raises ValueError naming the file for a bad name, a gap, a number used twice, or a line that begins with a word that would break the
    transaction (BEGIN, COMMIT, VACUUM, …).
    """
    return tuple(_checked(file) for file in numbered_files(folder))


def _checked(file: File) -> Migration:
    word = _BREAKS_TRANSACTION.search(file.text)
    if word is not None:
        raise ValueError(f"{file.version:04}_{file.name}.sql: {word[1]} would break the migration's transaction")
    return Migration(*file)


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        if migration.version == 1:
            await connection.script(_LEDGER)
        await connection.script(migration.text)
        await connection.execute(_NOTE, (migration.version, migration.name, migration.checksum))
    except psycopg.Error as exc:
        message = f"migration {migration} failed ({exc}); it was not applied"
        raise StoreError(message, path=connection.shown) from exc


async def _read_ledger(connection: Connection) -> list[tuple[int, str, str]]:
    rows, _ = await connection.execute(_LOOK)
    if not rows:
        raise StoreError("the first schema of its search_path does not exist; create it", path=connection.shown)
    schema, mark, tables = rows[0]
    if not tables:
        return []
    if mark != _MARK:
        message = f"its schema {schema} holds another program's tables; name a database or a schema of Callboard's own"
        raise NotADatabase(message, path=connection.shown)
    return [(version, name, checksum) for version, name, checksum in (await connection.execute(_APPLIED)).rows]
