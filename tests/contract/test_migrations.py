"""The migration runner over folders of its own, and once over the migrations that ship."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from callboard.storage.model.errors import NotADatabase, SchemaTooNew, StoreCorrupt, StoreError
from callboard.storage.sqlite.bridge import open_connection
from callboard.storage.sqlite.migrations import (
    APPLICATION_ID,
    Migration,
    check_file,
    load_migrations,
    migrate,
    pending,
)

FIRST = "CREATE TABLE desk (id INTEGER PRIMARY KEY, name TEXT);\nINSERT INTO desk (name) VALUES ('a;b');\n"
SECOND = """-- Names are unique; a trigger has semicolons of its own.
CREATE UNIQUE INDEX desk_name ON desk (name); CREATE TABLE log (line TEXT);
CREATE TRIGGER desk_log AFTER INSERT ON desk BEGIN
    INSERT INTO log VALUES ('in; ' || new.name);
    INSERT INTO log VALUES ('done');
END;
/* the end; */
"""
THIRD = "INSERT INTO desk (name) VALUES ('c');\n"


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        yield connection


def folder(root: Path, *texts: str) -> tuple[Migration, ...]:
    root.mkdir(exist_ok=True)
    for number, text in enumerate(texts, start=1):
        (root / f"{number:04}_step{number}.sql").write_text(text)
    return load_migrations(root)


def schema(conn: sqlite3.Connection) -> list[tuple[str, ...]]:
    return conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def ledger(conn: sqlite3.Connection) -> list[tuple[int, str]]:
    return conn.execute("SELECT version, name FROM migration ORDER BY version").fetchall()


@pytest.mark.spec("OPS-5")
def test_from_zero_applies_all_in_order_and_twice_is_a_no_op(tmp_path: Path, conn: sqlite3.Connection) -> None:
    known = folder(tmp_path, FIRST, SECOND, THIRD)
    assert [str(m) for m in pending(conn, known)] == ["0001_step1", "0002_step2", "0003_step3"]
    assert schema(conn) == [], "asking changes nothing"
    assert migrate(conn, known) == list(known)
    assert ledger(conn) == [(1, "step1"), (2, "step2"), (3, "step3")]
    assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert conn.execute("SELECT name FROM desk ORDER BY id").fetchall() == [("a;b",), ("c",)]
    assert conn.execute("SELECT line FROM log").fetchall() == [("in; c",), ("done",)]
    assert not conn.in_transaction
    before = "\n".join(conn.iterdump())
    assert migrate(conn, known) == []
    assert pending(conn, known) == []
    assert "\n".join(conn.iterdump()) == before


@pytest.mark.spec("OPS-5")
def test_step_by_step_equals_from_zero(tmp_path: Path, conn: sqlite3.Connection) -> None:
    texts = (FIRST, SECOND, THIRD)
    for count in (1, 2, 3):
        known = folder(tmp_path / "steps", *texts[:count])
        assert [m.version for m in migrate(conn, known)] == [count]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as zero:
        migrate(zero, load_migrations(tmp_path / "steps"))
        assert schema(zero) == schema(conn)
        assert ledger(zero) == ledger(conn)


@pytest.mark.spec("OPS-5")
def test_shipped_migrations_from_zero_equal_step_by_step(conn: sqlite3.Connection) -> None:
    known = load_migrations()
    assert known, "the package ships its first schema"
    for count in range(1, len(known) + 1):
        assert migrate(conn, known[:count]) == [known[count - 1]]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as zero:
        assert migrate(zero) == list(known)
        assert schema(zero) == schema(conn)
        assert migrate(zero) == []
        assert zero.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_runs_as_one_batch_of_the_executor(tmp_path: Path) -> None:
    known = folder(tmp_path / "m", FIRST, SECOND)
    connection = await open_connection(tmp_path / "a.db", readonly=False)
    assert await connection.run(lambda conn: migrate(conn, known)) == list(known)
    assert await connection.run(lambda conn: migrate(conn, known)) == []
    await connection.aclose()
    check_file(tmp_path / "a.db", known)


@pytest.mark.parametrize("bad", ["INSERT INTO nowhere VALUES (1);", "INSERT INTO desk VALUES (1, 'x');", "SELEC;"])
def test_failing_migration_is_rolled_back_whole_and_those_before_it_stay(
    tmp_path: Path, conn: sqlite3.Connection, bad: str
) -> None:
    broken = folder(tmp_path, FIRST, f"CREATE TABLE half (x);\n{bad}\n", THIRD)
    with pytest.raises(StoreError, match=r"migration 0002_step2 failed .*not applied"):
        migrate(conn, broken)
    assert ledger(conn) == [(1, "step1")]
    assert "half" not in {name for _, name, *_ in schema(conn)}
    assert not conn.in_transaction
    mended = folder(tmp_path, FIRST, "CREATE TABLE half (x);", THIRD)
    assert [m.version for m in migrate(conn, mended)] == [2, 3]


def test_failing_first_migration_leaves_an_empty_database(tmp_path: Path, conn: sqlite3.Connection) -> None:
    with pytest.raises(StoreError, match="0001_step1"):
        migrate(conn, folder(tmp_path, "CREATE TABLE half (x); SELEC;"))
    assert schema(conn) == []
    assert conn.execute("PRAGMA application_id").fetchone() == (0,)


def test_a_table_can_be_rebuilt_without_losing_the_rows_that_point_at_it(
    tmp_path: Path, conn: sqlite3.Connection
) -> None:
    parent = "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p VALUES (1);"
    child = "CREATE TABLE c (p INTEGER REFERENCES p ON DELETE CASCADE); INSERT INTO c VALUES (1);"
    rebuild = "CREATE TABLE q (id INTEGER PRIMARY KEY, x); INSERT INTO q (id) SELECT id FROM p; DROP TABLE p; "
    migrate(conn, folder(tmp_path, parent + child, rebuild + "ALTER TABLE q RENAME TO p;"))
    assert conn.execute("SELECT p FROM c").fetchall() == [(1,)]
    assert conn.execute("PRAGMA foreign_keys").fetchone() == (1,), "enforced again afterwards"
    with pytest.raises(StoreError, match="0003_step3 leaves rows of c without their p"):
        migrate(conn, folder(tmp_path, parent + child, rebuild + "ALTER TABLE q RENAME TO p;", "DELETE FROM p;"))
    assert conn.execute("SELECT id FROM p").fetchall() == [(1,)]
    assert conn.execute("PRAGMA foreign_keys").fetchone() == (1,)


@pytest.mark.spec("OPS-5")
def test_changed_file_of_an_applied_migration_is_refused(tmp_path: Path, conn: sqlite3.Connection) -> None:
    migrate(conn, folder(tmp_path, FIRST))
    before = "\n".join(conn.iterdump())
    with pytest.raises(StoreError, match="0001_step1 is not the one that was applied"):
        migrate(conn, folder(tmp_path, FIRST + "-- edited\n", SECOND))
    assert "\n".join(conn.iterdump()) == before


def test_checksum_does_not_depend_on_line_ends(tmp_path: Path) -> None:
    sums: set[str] = set()
    for end in (b"\n", b"\r\n", b"\r"):
        (tmp_path / "0001_a.sql").write_bytes(b"-- one" + end + b"SELECT 1;" + end)
        (migration,) = load_migrations(tmp_path)
        assert len(migration.statements) == 1
        sums.add(migration.checksum)
    assert len(sums) == 1


@pytest.mark.spec("OPS-5")
def test_newer_database_is_refused_untouched(tmp_path: Path, conn: sqlite3.Connection) -> None:
    migrate(conn, folder(tmp_path, FIRST, SECOND))
    before = "\n".join(conn.iterdump())
    with pytest.raises(SchemaTooNew, match="version 2 of a newer Callboard, and this one knows 1"):
        migrate(conn, load_migrations(tmp_path)[:1])
    assert "\n".join(conn.iterdump()) == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (x)",
        "CREATE TABLE migration (version INTEGER PRIMARY KEY, name TEXT, checksum TEXT, applied_at REAL)",
        "PRAGMA application_id=77",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_another_programs_database_is_refused_untouched(
    tmp_path: Path, conn: sqlite3.Connection, statement: str
) -> None:
    known = folder(tmp_path, FIRST)
    conn.execute(statement)
    before = "\n".join(conn.iterdump())
    with pytest.raises(NotADatabase, match="another program's database"):
        migrate(conn, known)
    assert "\n".join(conn.iterdump()) == before


def test_damaged_ledger_is_refused(tmp_path: Path, conn: sqlite3.Connection) -> None:
    known = folder(tmp_path, FIRST, SECOND, THIRD)
    migrate(conn, known)
    conn.execute("DELETE FROM migration WHERE version = 2")
    with pytest.raises(StoreCorrupt, match="gap"):
        pending(conn, known)
    conn.execute("DROP TABLE migration")
    with pytest.raises(StoreCorrupt, match="missing"):
        pending(conn, known)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("0002_a.sql", "SELECT 1;", "expected 0001_<name>.sql"),
        ("1_a.sql", "SELECT 1;", "expected 0001_<name>.sql"),
        ("0001_A B.sql", "SELECT 1;", "expected 0001_<name>.sql"),
        ("0001_a.sql", "SELECT 1", "no end"),
        ("0001_a.sql", "SELECT 1; SELECT ';", "no end"),
        ("0001_a.sql", "CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1;", "no end"),
        ("0001_a.sql", "-- c\n/* d */ commit;", "commit would break"),
        ("0001_a.sql", "SELECT 1; BEGIN;", "BEGIN would break"),
        ("0001_a.sql", "VACUUM;", "VACUUM would break"),
    ],
)
def test_bad_files_are_named_when_they_are_read(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=complaint) as error:
        load_migrations(tmp_path)
    assert name in str(error.value)


def test_number_used_twice_is_refused_and_other_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("not SQL")
    (tmp_path / "0001_a.sql").write_text(FIRST + "-- no semicolon needed here")
    assert [str(m) for m in load_migrations(tmp_path)] == ["0001_a"]
    (tmp_path / "0001_b.sql").write_text(SECOND)
    with pytest.raises(ValueError, match=r"0001_b\.sql: expected 0002_"):
        load_migrations(tmp_path)


def test_shipped_migrations_do_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_migrations()
    monkeypatch.chdir(tmp_path)
    assert load_migrations() == expected
