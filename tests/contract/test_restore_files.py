"""What may be restored, and where: anything but a whole backup of ours is refused, and whatever was there is there afterwards."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio

from callboard.storage.drafts import Draft
from callboard.storage.model.errors import (
    CallboardError,
    NotADatabase,
    NotFound,
    Rejected,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreLocked,
)
from callboard.storage.sqlite import copying, migrations, restoring
from callboard.storage.sqlite.migrations import APPLICATION_ID, load_migrations, migrate
from callboard.tests.contract.backup_kit import back_up, left_over, opened, quiet, restored, rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup with one answered message."""
    folder = tmp_path_factory.mktemp("source")

    async def make() -> Path:
        async with opened(folder / "a.db") as kit:
            await kit.turn(await kit.open(path="/desk"), "one " + "." * 15_000)
            return await back_up(kit.store, folder / "backup")

    return trio.run(make)


@pytest.fixture
def backup(whole: Path, tmp_path: Path) -> Path:
    """The same, to be spoilt."""
    return Path(shutil.copy(whole, tmp_path / "backup"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a database might be."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "callboard.db"


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def text(file: Path) -> None:
    file.write_bytes(b"Dear diary\n" * 500)


def another_programs(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE message (id)")


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("INSERT INTO migration VALUES (99, 'later', 'x', 0)")


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwritten(file: Path) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(file.stat().st_size // 2)
        opened_file.write(b"\xa5" * 8192)


def an_index_short_of_a_row(file: Path) -> None:
    """Damage that no reading of rows would notice: a row was added while the index was not known."""
    schema, index = "type, name, tbl_name, rootpage, sql", "FROM sqlite_master WHERE name = 'entry_seq'"
    (known,) = rows(file, f"SELECT {schema} {index}")
    for statement, values in (
        (f"DELETE {index}", ()),
        (
            "INSERT INTO entry SELECT id + 9, scope, mailbox, seq + 9, role, 'x', message, at, origin, handoff FROM entry LIMIT 1",
            (),
        ),
        (f"INSERT INTO sqlite_master ({schema}) VALUES (?, ?, ?, ?, ?)", known),
    ):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema=ON")
            connection.execute(statement, values)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (Path.unlink, NotFound),
        (emptied, NotADatabase),
        (text, NotADatabase),
        (another_programs, NotADatabase),
        (newer, SchemaTooNew),
        (cut_short, StoreCorrupt),
        (overwritten, StoreCorrupt),
        (an_index_short_of_a_row, StoreCorrupt),
        (a_folder, StoreError),
    ],
)
@pytest.mark.parametrize("taken", [False, True])
def test_what_is_no_whole_backup_of_ours_is_refused_and_nothing_is_touched(
    backup: Path, place: Path, spoil: Callable[[Path], None], kind: type[CallboardError], taken: bool
) -> None:
    if taken:
        place.write_bytes(b"as it was")
    spoil(backup)
    with pytest.raises(kind) as refusal:
        restored(backup, place, replace=True)
    assert refusal.value.path == str(backup)
    found = {item.name for item in place.parent.iterdir()} - {"callboard.db.lock"}
    assert found == ({"callboard.db"} if taken else set())
    assert not taken or place.read_bytes() == b"as it was"


@pytest.mark.spec("OPS-5")
async def test_a_database_that_is_there_is_only_put_aside_when_asked_and_whole(backup: Path, place: Path) -> None:
    async with opened(place) as kit:
        await kit.turn(await kit.open(path="/old"), "kept")
    killed_writing(place, "UPDATE session SET title = 'in the log'")
    with pytest.raises(Rejected, match="--force"):
        restored(backup, place)
    kept = [restored(backup, place, replace=True).kept for _ in range(2)]
    assert len(set(kept)) == 2, "the second one has replaced what the first has kept"
    assert kept[0] is not None
    assert kept[0].name.startswith("callboard.db.before-restore-")
    assert rows(kept[0], "SELECT title FROM session") == [("in the log",)]
    assert rows(place, "SELECT path FROM session") == [("/desk",)]


def killed_writing(file: Path, statement: str) -> None:
    """Leave a database as a kill does: its newest commit is in the log alone."""
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute(statement)
        for end in ("", "-wal"):
            shutil.copy(f"{file}{end}", f"{file}.killed{end}")
    for end in ("", "-wal"):
        Path(f"{file}.killed{end}").replace(f"{file}{end}")
    assert Path(f"{file}-wal").stat().st_size > 0


@pytest.mark.spec("OPS-5")
def test_a_log_without_its_database_is_put_aside_too(backup: Path, place: Path) -> None:
    Path(f"{place}-wal").write_bytes(b"of another database")
    with pytest.raises(Rejected, match="--force"):
        restored(backup, place)
    kept = restored(backup, place, replace=True).kept
    assert Path(f"{kept}-wal").read_bytes() == b"of another database"
    assert rows(place, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.spec("OPS-5", "RT-17")
async def test_what_a_process_has_open_is_left_alone(backup: Path, place: Path, tmp_path: Path) -> None:
    async with opened(place) as kit:
        await kit.open(path="/alive")
        with pytest.raises(StoreLocked, match="in use by pid"):
            restored(backup, place, replace=True)
        with pytest.raises(StoreLocked, match="in use by pid"):
            restored(place, tmp_path / "other.db")
        await kit.turn((await kit.store.reads.sessions(kit.scope)).items[0])
    with pytest.raises(Rejected, match="the database itself"):
        restored(place, place, replace=True)
    restored(place, tmp_path / "other.db")
    assert rows(tmp_path / "other.db", "SELECT path FROM session") == [("/alive",)], (
        "a copy by other means does as well"
    )


@pytest.mark.spec("OPS-5")
async def test_an_older_schema_is_backed_up_as_it_is_and_migrated_by_the_restore(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(place) as kit:
        await kit.turn(await kit.open(path="/desk"))
    folder = tmp_path / "newer"
    shutil.copytree(str(migrations.BUILT_IN), folder)
    number = len(load_migrations()) + 1
    (folder / f"{number:04}_more.sql").write_text("ALTER TABLE session ADD COLUMN colour TEXT;\n")
    newest = load_migrations(folder)
    monkeypatch.setattr(migrations, "load_migrations", lambda: newest)
    with Draft(tmp_path / "backup") as draft:
        copying.copy_at_rest(place, draft, quiet)
        assert copying.examine(draft, quiet).schema == number - 1
        draft.publish(replace=False)
    with closing(sqlite3.connect(place)) as source:
        assert source.execute("SELECT max(version) FROM migration").fetchone() == (number - 1,), "it was migrated"
    restored(tmp_path / "backup", tmp_path / "new.db")
    assert rows(tmp_path / "new.db", "SELECT max(version) FROM migration") == [(number,)]
    assert rows(tmp_path / "new.db", "SELECT colour, path FROM session") == [(None, "/desk")]


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("stage", ["copying", "checking", "making ready"])
def test_whatever_ends_it_in_the_middle_leaves_what_was_there(backup: Path, place: Path, stage: str) -> None:
    def stop(doing: str, done: int, total: int) -> None:
        if doing == stage:
            raise KeyboardInterrupt

    place.write_bytes(b"as it was")
    with pytest.raises(KeyboardInterrupt):
        restoring.restore(backup, place, replace=True, tell=stop)
    assert place.read_bytes() == b"as it was"
    assert left_over(place.parent) == []
    restored(backup, place, replace=True)


@pytest.mark.spec("OPS-5")
def test_a_draft_gets_its_name_only_when_it_may_and_dead_ones_are_swept(tmp_path: Path) -> None:
    file = tmp_path / "b[1].db"
    dead = tmp_path / ".b[1].db.00000000.draft"
    dead.write_bytes(b"of a process that was killed")
    Path(f"{dead}-journal").write_bytes(b"and its journal")
    with Draft(file) as one, Draft(file) as two:
        assert sorted(left_over(tmp_path)) == sorted([one.path.name, two.path.name]), "a living one was swept"
        one.append(b"one")
        two.append(b"two")
        one.publish(replace=False)
        with pytest.raises(Rejected, match="--force"):
            two.publish(replace=False)
        assert file.read_bytes() == b"one"
        two.publish(replace=True)
    assert file.read_bytes() == b"two"
    assert (file.stat().st_mode & 0o777, file.stat().st_nlink) == (0o600, 1)
    assert left_over(tmp_path) == []


@pytest.mark.spec("OPS-5")
def test_a_backup_is_one_file_that_needs_nothing_beside_it(backup: Path, tmp_path: Path) -> None:
    header = backup.read_bytes()[:100]
    assert header[18:20] == b"\x01\x01", "who opens it would have to make a log beside it"
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    only = tmp_path / "only"
    only.mkdir()
    copied = Path(shutil.copy(backup, only / "b"))
    copied.chmod(0o400)
    restored(copied, tmp_path / "new.db")
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    assert [item.name for item in only.iterdir()] == ["b"]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as zero:
        migrate(zero)
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
        assert rows(tmp_path / "new.db", schema) == zero.execute(schema).fetchall()
