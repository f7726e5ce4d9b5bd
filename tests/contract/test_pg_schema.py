"""PostgreSQL's schema: the runner of its migrations over folders of its own, and what ships beside SQLite's."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from callboard.storage.model.errors import NotADatabase, SchemaTooNew, StoreCorrupt, StoreError
from callboard.storage.postgres.bridge import BEGIN, COMMIT, Connection
from callboard.storage.postgres.migrations import LOCK, Migration, load_migrations, migrate, pending
from callboard.storage.sqlite.migrations import migrate as migrate_sqlite

ROOT = Path(__file__).parents[2]
LIMIT = 20.0
FIRST = "CREATE TABLE desk (id integer PRIMARY KEY, name text);\nINSERT INTO desk VALUES (1, 'a;b');\n"
SECOND = "CREATE UNIQUE INDEX desk_name ON desk (name); -- unique\n"
THIRD = "INSERT INTO desk VALUES (2, 'c');\n"


def folder(root: Path, *texts: str) -> tuple[Migration, ...]:
    root.mkdir(exist_ok=True)
    for number, text in enumerate(texts, start=1):
        (root / f"{number:04}_step{number}.sql").write_text(text)
    return load_migrations(root)


async def names(conn: Connection, kinds: str = "ri") -> set[str]:
    sql = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = ANY($1::\"char\"[])"
    return {name for (name,) in (await conn.execute(sql, (list(kinds),))).rows}


async def ledger(conn: Connection) -> list[tuple[int, str]]:
    return [(n, name) for n, name in (await conn.execute("SELECT version, name FROM migration ORDER BY version")).rows]


@pytest.mark.spec("OPS-5")
async def test_from_zero_in_order_step_by_step_and_twice(tmp_path: Path, conn: Connection) -> None:
    known = folder(tmp_path, FIRST, SECOND, THIRD)
    assert await pending(conn, known) == list(known)
    assert await names(conn) == set(), "asking changes nothing"
    assert await migrate(conn, known[:1]) == [known[0]]
    assert await migrate(conn, known) == [*known[1:]]
    assert await migrate(conn, known) == []
    assert await pending(conn, known) == []
    assert await ledger(conn) == [(1, "step1"), (2, "step2"), (3, "step3")]
    assert (await conn.execute("SELECT name FROM desk ORDER BY id")).rows == [("a;b",), ("c",)]
    assert not conn.in_transaction


@pytest.mark.parametrize("bad", ["INSERT INTO nowhere VALUES (1);", "INSERT INTO desk VALUES (1, 'x');", "SELEC;"])
async def test_a_failing_migration_is_rolled_back_whole(tmp_path: Path, conn: Connection, bad: str) -> None:
    broken = folder(tmp_path, FIRST, f"CREATE TABLE half (x text);\n{bad}\n", THIRD)
    with pytest.raises(StoreError, match=r"migration 0002_step2 failed .*not applied"):
        await migrate(conn, broken)
    assert await ledger(conn) == [(1, "step1")]
    assert "half" not in await names(conn)
    assert not conn.in_transaction
    mended = folder(tmp_path, FIRST, "CREATE TABLE half (x text);", THIRD)
    assert [m.version for m in await migrate(conn, mended)] == [2, 3]


async def test_what_is_not_ours_is_refused_and_not_changed(tmp_path: Path, url: str, conn: Connection) -> None:
    known = folder(tmp_path, FIRST, SECOND)
    await conn.script(
        "CREATE TABLE migration (version integer, name text, checksum text); CREATE TABLE theirs (x text)"
    )
    with pytest.raises(NotADatabase, match="schema public holds another program's tables"):
        await migrate(conn, known)
    assert await names(conn) == {"migration", "theirs"}
    await conn.script("CREATE SCHEMA ours; SET search_path = ours")
    assert await migrate(conn, known) == list(known)
    assert (await conn.execute("SELECT count(*) FROM ours.desk")).rows == [(1,)]
    await conn.script("SET search_path = missing")
    with pytest.raises(StoreError, match="does not exist"):
        await migrate(conn, known)


@pytest.mark.spec("OPS-5")
async def test_a_newer_a_changed_and_a_torn_ledger_are_refused(tmp_path: Path, conn: Connection) -> None:
    known = folder(tmp_path, FIRST, SECOND, THIRD)
    await migrate(conn, known)
    before = await names(conn)
    with pytest.raises(SchemaTooNew, match="version 3 of a newer Callboard, and this one knows 2"):
        await migrate(conn, known[:2])
    with pytest.raises(StoreError, match="0002_step2 is not the one"):
        await migrate(conn, folder(tmp_path, FIRST, SECOND + "-- changed", THIRD))
    await conn.script("DELETE FROM migration WHERE version = 2")
    with pytest.raises(StoreCorrupt, match="gap"):
        await migrate(conn, known)
    assert await names(conn) == before


@pytest.mark.parametrize(
    "text", ["BEGIN;", "create table a (b text);\n  commit;", "CREATE INDEX CONCURRENTLY a ON b (c);"]
)
def test_what_would_break_the_transaction_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"0001_step1.sql: .* would break"):
        folder(tmp_path, text)


def test_a_gap_or_a_bad_name_is_refused(tmp_path: Path) -> None:
    for name in ("0002_a.sql", "1_a.sql", "0001_A.sql"):
        (tmp_path / name).write_text("SELECT 1")
        with pytest.raises(ValueError, match=r"expected 0001_<name>\.sql"):
            load_migrations(tmp_path)
        (tmp_path / name).unlink()


CHILD = """
import sys, trio
from callboard.storage.postgres.connect import Target, connect
from callboard.storage.postgres.migrations import migrate
async def main():
    connection = await connect(Target.parse(sys.argv[1]))
    print(len(await migrate(connection)))
    connection.close()
trio.run(main)
"""


async def test_two_processes_that_start_at_once_apply_each_migration_once(url: str, conn: Connection) -> None:
    await conn.execute(BEGIN)
    await conn.execute("SELECT pg_advisory_xact_lock($1::bigint)", (LOCK,))
    said: list[str] = []

    async def start() -> None:
        command = [sys.executable, "-c", CHILD, url]
        done = await trio.run_process(
            command, capture_stdout=True, env={**os.environ, "PYTHONPATH": str(ROOT / ".links")}
        )
        said.append(done.stdout.decode().strip())

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(start)
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while (await conn.execute(waiting)).rows != [(2,)]:  # the server tells nobody
                pass
            await conn.execute(COMMIT)
    assert sum(map(int, said)) == len(load_migrations())
    assert len(await ledger(conn)) == len(load_migrations())


async def test_what_ships_is_the_schema_of_sqlite(conn: Connection) -> None:
    assert await migrate(conn) == list(load_migrations())
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as lite:
        migrate_sqlite(lite)
        found = lite.execute("SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        tables = {name for name, kind, _ in found if kind == "table"}
        indexes = {name: sql for name, kind, sql in found if kind == "index"}
        columns = {name: lite.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
    assert await names(conn, "r") == tables
    assert {name for name in await names(conn, "i") if not name.endswith(("_pkey", "_key")) or name in indexes} == set(
        indexes
    )
    for table in tables - {"migration"}:
        rows = (
            await conn.execute(
                "SELECT column_name, is_nullable, data_type FROM information_schema.columns"
                " WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position",
                (table,),
            )
        ).rows
        assert [row[0] for row in rows] == [column[1] for column in columns[table]], table
        kinds = {"TEXT": "text", "REAL": "double precision", "BLOB": "bytea", "": "numeric"}
        for (name, nullable, kind), column in zip(rows, columns[table], strict=True):
            needed = bool(column[3]) or bool(column[5])
            assert (nullable == "NO") == needed, f"{table}.{name}"
            assert kind == kinds.get(column[2], kind if kind in ("bigint", "integer") else "?"), f"{table}.{name}"
    made = (await conn.execute("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'")).rows
    for name, definition in made:
        if name in indexes:
            assert shape(definition) == shape(indexes[name]), name


def shape(definition: str) -> tuple[bool, str, list[str]]:
    """An index as far as both databases write it alike: unique or not, its columns, and what its condition names."""
    columns, _, condition = definition.partition(" WHERE ")
    named = re.findall(r"'\w+'|\b(?:IS NOT NULL|IS NULL)\b|\b[a-z_]+\b(?=\s*(?:=|IS|IN))", condition)
    return "UNIQUE" in definition, columns[columns.index("(") :].strip(), sorted(named)
