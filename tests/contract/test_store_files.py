"""Files that can't be used: each is refused with an error that names it and says what to do, and none is changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from callboard.storage.model.errors import (
    CallboardError,
    NotADatabase,
    SchemaTooNew,
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from callboard.storage.sqlite import connect as opening
from callboard.storage.sqlite.bridge import ExecutorKind, open_connection
from callboard.storage.sqlite.faults import map_os_error, map_sqlite_error
from callboard.storage.sqlite.migrations import APPLICATION_ID, Migration, check_file, load_migrations, migrate

KINDS: tuple[ExecutorKind, ...] = ("thread", "inline")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ExecutorKind:
    return request.param


@pytest.fixture
def known(tmp_path: Path) -> tuple[Migration, ...]:
    root = tmp_path / "known"
    root.mkdir()
    (root / "0001_first.sql").write_text("CREATE TABLE n (x INTEGER PRIMARY KEY, pad BLOB);")
    (root / "0002_second.sql").write_text("CREATE TABLE m (x);")
    return load_migrations(root)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that holds nothing but the database and what SQLite puts beside it."""
    root = tmp_path / "place"
    root.mkdir()
    return root


@pytest.fixture
def folder_of_a_plain_user(known: tuple[Migration, ...]) -> Iterator[Path]:
    """A folder of somebody whom file modes bind, and the test as that user: the super-user may write anywhere.

    After `known`, which needs the folders of the user who started the tests.
    """
    assert known
    folder = Path(tempfile.mkdtemp())
    before = os.geteuid()
    if before == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    os.seteuid(before)
    shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


async def make(file: Path, known: tuple[Migration, ...]) -> None:
    writer = await open_connection(file, readonly=False, executor="inline")
    await writer.run(lambda conn: migrate(conn, known))
    await writer.aclose()


def fill(conn: sqlite3.Connection, rows: int) -> None:
    conn.execute("BEGIN IMMEDIATE")
    conn.executemany("INSERT INTO n (pad) VALUES (?)", [(b"x" * 1000,)] * rows)
    conn.execute("COMMIT")


def count(conn: sqlite3.Connection) -> int:
    return conn.execute("SELECT count(*) FROM n").fetchone()[0]


def assert_helpful(error: CallboardError, file: Path) -> None:
    line = str(error)
    assert error.path == str(file)
    assert str(file) in line
    assert line.isprintable(), "one line"
    assert len(error.message) <= 500


# -- names and permissions ------------------------------------------------------------------------------------------


async def test_missing_folder(place: Path, kind: ExecutorKind) -> None:
    file = place / "none" / "a.db"
    with pytest.raises(StoreError, match="folder does not exist; create it") as error:
        await open_connection(file, readonly=False, executor=kind)
    assert_helpful(error.value, file)
    check_file(file)
    assert contents(place) == {}


async def test_folder_instead_of_a_file(place: Path, kind: ExecutorKind) -> None:
    with pytest.raises(StoreError, match="is a folder") as error:
        await open_connection(place, readonly=False, executor=kind)
    assert_helpful(error.value, place)
    with pytest.raises(StoreError, match="is a folder"):
        check_file(place)


async def test_reader_does_not_make_a_missing_file(place: Path, kind: ExecutorKind) -> None:
    with pytest.raises(StoreError, match="does not exist") as error:
        await open_connection(place / "a.db", readonly=True, executor=kind)
    assert_helpful(error.value, place / "a.db")
    assert contents(place) == {}


@pytest.mark.parametrize("name", ["a b.db", "a?b#c%41.db", "ü.db", "a'b.db", "file.db"])
async def test_any_file_name_is_the_file_that_is_opened(
    place: Path, name: str, known: tuple[Migration, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    await make(Path(name), known)
    assert list(contents(place)) == [name]
    check_file(name, known)
    reader = await open_connection(name, readonly=True)
    assert await reader.run(count) == 0
    await reader.aclose()


async def test_uri_is_taken_as_it_is(place: Path, known: tuple[Migration, ...]) -> None:
    await make(place / "a.db", known)
    before = contents(place)
    reader = await open_connection(f"file:{place}/a.db?mode=ro&immutable=1", readonly=True)
    assert reader.path == f"{place}/a.db"
    assert await reader.run(count) == 0
    await reader.aclose()
    assert contents(place) == before


@pytest.mark.parametrize("closed", ["file", "folder"])
async def test_read_only_file_or_folder(
    folder_of_a_plain_user: Path, known: tuple[Migration, ...], kind: ExecutorKind, closed: str
) -> None:
    file = folder_of_a_plain_user / "a.db"
    await make(file, known)
    before = contents(folder_of_a_plain_user)
    target = file if closed == "file" else folder_of_a_plain_user
    mode = target.stat().st_mode
    target.chmod(0o444 if closed == "file" else 0o555)
    try:
        with pytest.raises(StoreReadOnly, match="write access") as error:
            await open_connection(file, readonly=False, executor=kind)
        assert_helpful(error.value, file)
        assert contents(folder_of_a_plain_user)["a.db"] == before["a.db"]
    finally:
        target.chmod(mode)


async def test_new_file_in_a_read_only_folder(folder_of_a_plain_user: Path, kind: ExecutorKind) -> None:
    os.chmod(folder_of_a_plain_user, 0o555)
    with pytest.raises(StoreReadOnly, match="write access"):
        await open_connection(folder_of_a_plain_user / "a.db", readonly=False, executor=kind)


# -- what is in the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"xy", b"#!/bin/sh\n", b"SQLite format 4\0" + b"\0" * 500, os.urandom(8192)])
async def test_not_a_database(place: Path, kind: ExecutorKind, data: bytes) -> None:
    file = place / "a.db"
    file.write_bytes(data)
    with pytest.raises(NotADatabase, match="not an SQLite database") as error:
        check_file(file)
    assert_helpful(error.value, file)
    with pytest.raises(NotADatabase) as error:
        await open_connection(file, readonly=False, executor=kind)
    assert_helpful(error.value, file)
    with pytest.raises(NotADatabase):
        await open_connection(file, readonly=True, executor=kind)
    assert contents(place) == {"a.db": data}


async def test_empty_and_missing_files_are_fresh(place: Path, known: tuple[Migration, ...]) -> None:
    check_file(place / "a.db", known)
    (place / "a.db").touch()
    check_file(place / "a.db", known)
    assert contents(place) == {"a.db": b""}
    await make(place / "a.db", known)
    check_file(place / "a.db", known)


@pytest.mark.spec("OPS-5")
async def test_newer_version_is_refused_and_no_byte_changes(place: Path, known: tuple[Migration, ...]) -> None:
    file = place / "a.db"
    await make(file, known)
    before = contents(place)
    with pytest.raises(SchemaTooNew, match="update Callboard") as error:
        check_file(file, known[:1])
    assert_helpful(error.value, file)
    assert contents(place) == before


@pytest.mark.spec("OPS-5")
async def test_newer_version_is_seen_in_the_log_that_a_crash_left(place: Path, known: tuple[Migration, ...]) -> None:
    origin, file = place.parent / "origin.db", place / "a.db"
    writer = await open_connection(origin, readonly=False)
    await writer.run(lambda conn: migrate(conn, known))
    for suffix in ("", "-wal"):
        shutil.copy(f"{origin}{suffix}", f"{file}{suffix}")
    await writer.aclose()
    assert len(contents(place)["a.db-wal"]) > 0
    before = contents(place)
    with pytest.raises(SchemaTooNew):
        check_file(file, known[:1])
    assert {name: data for name, data in contents(place).items() if name in before} == before
    check_file(file, known)
    await make(file, known)


async def test_another_programs_database_is_refused_and_no_byte_changes(
    place: Path, known: tuple[Migration, ...]
) -> None:
    file = place / "a.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("CREATE TABLE other (x)")
    before = contents(place)
    with pytest.raises(NotADatabase, match="another program's") as error:
        check_file(file, known)
    assert_helpful(error.value, file)
    assert contents(place) == before


async def test_transaction_that_a_crash_left_half_written_is_rolled_back(
    place: Path, known: tuple[Migration, ...]
) -> None:
    """A file that dies while it is switched to WAL has a rollback journal, which a read-only look can't apply."""
    origin, file = place.parent / "origin.db", place / "a.db"
    with closing(sqlite3.connect(origin, isolation_level=None)) as conn:
        migrate(conn, known)
        fill(conn, 200)
        conn.execute("PRAGMA cache_size=5")
        conn.execute("BEGIN")
        conn.execute("UPDATE n SET pad = zeroblob(1000)")
        for suffix in ("", "-journal"):
            shutil.copy(f"{origin}{suffix}", f"{file}{suffix}")
        conn.execute("ROLLBACK")
    check_file(file, known)
    reader = await open_connection(file, readonly=True)
    assert await reader.run(lambda c: c.execute("SELECT DISTINCT pad FROM n").fetchall()) == [(b"x" * 1000,)]
    await reader.aclose()


async def test_corrupt_file_is_named_as_such(place: Path, known: tuple[Migration, ...], kind: ExecutorKind) -> None:
    file = place / "a.db"
    await make(file, known)
    writer = await open_connection(file, readonly=False, executor=kind)
    await writer.run(lambda conn: fill(conn, 500))
    await writer.aclose()
    data = file.read_bytes()
    file.write_bytes(data[:8192] + b"\xff" * (len(data) - 16384) + data[-8192:])
    writer = await open_connection(file, readonly=False, executor=kind)
    with pytest.raises(StoreCorrupt, match="restore a backup") as error:
        await writer.run(lambda conn: conn.execute("SELECT sum(length(pad)) FROM n").fetchall())
    assert_helpful(error.value, file)
    await writer.aclose()


async def test_corrupt_schema_is_refused_at_the_open(place: Path, known: tuple[Migration, ...]) -> None:
    file = place / "a.db"
    await make(file, known)
    file.write_bytes(file.read_bytes()[:100] + b"\xff" * 8000)
    with pytest.raises(StoreCorrupt):
        check_file(file, known)
    with pytest.raises(StoreCorrupt):
        await open_connection(file, readonly=False)


# -- failures while it is open --------------------------------------------------------------------------------------


async def test_full_disk_fails_that_batch_only(place: Path, known: tuple[Migration, ...], kind: ExecutorKind) -> None:
    file = place / "a.db"
    await make(file, known)
    writer = await open_connection(file, readonly=False, executor=kind)
    await writer.run(lambda conn: fill(conn, 5))
    await writer.run(lambda conn: conn.execute("PRAGMA max_page_count=20").fetchone())
    with pytest.raises(StoreFull, match="no space is left") as error:
        await writer.run(lambda conn: fill(conn, 500))
    assert_helpful(error.value, file)
    assert await writer.run(count) == 5
    await writer.run(lambda conn: conn.execute("PRAGMA max_page_count=100000").fetchone())
    await writer.run(lambda conn: fill(conn, 500))
    assert await writer.run(count) == 505
    await writer.aclose()


async def test_file_held_by_another_program_is_unavailable_not_broken(
    place: Path, known: tuple[Migration, ...], kind: ExecutorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.01)
    file = place / "a.db"
    await make(file, known)
    writer = await open_connection(file, readonly=False, executor=kind)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="another program holds the database") as error:
            await writer.run(lambda conn: fill(conn, 1))
        assert isinstance(error.value, Unavailable)
        assert_helpful(error.value, file)
        other.execute("ROLLBACK")
    await writer.run(lambda conn: fill(conn, 1))
    await writer.aclose()


# -- the table of faults --------------------------------------------------------------------------------------------


def test_data_errors_are_not_the_stores_failure() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        conn.execute("CREATE TABLE t (x INTEGER PRIMARY KEY) STRICT")
        conn.execute("INSERT INTO t VALUES (1)")
        for sql in ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES ('x')", "SELEC", "SELECT * FROM missing"):
            with pytest.raises(sqlite3.Error) as error:
                conn.execute(sql)
            assert map_sqlite_error(error.value, "a.db") is None
        with pytest.raises(sqlite3.ProgrammingError) as misuse:
            conn.execute("SELECT ?", ())
        assert map_sqlite_error(misuse.value, "a.db") is None


def test_names_and_texts_of_any_kind_stay_one_bounded_line() -> None:
    error = sqlite3.DatabaseError("malformed \n" + "x" * 5000)
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    mapped = map_sqlite_error(error, "a\nb" * 1000)
    assert isinstance(mapped, StoreCorrupt)
    assert str(mapped).isprintable()
    assert len(str(mapped)) < 1000
    assert str(map_os_error(OSError(5, "Input/output error"), "a\nb")).isprintable()


def test_application_id_is_in_the_files_header(place: Path, known: tuple[Migration, ...]) -> None:
    """Byte 68 of an SQLite file, which `file` and other programs read without opening it."""
    with closing(sqlite3.connect(place / "a.db", isolation_level=None)) as conn:
        migrate(conn, known)
    assert contents(place)["a.db"][68:72] == APPLICATION_ID.to_bytes(4, "big") == b"CBRD"
