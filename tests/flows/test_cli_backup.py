"""`callboard backup` and `callboard restore` as people use them: over a server and without one, from any folder, and what is refused."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from callboard.storage.model.limits import RESTORE_JUMP
from callboard.supervisors.cli.backup import Stage
from callboard.tests.contract.backup_kit import left_over, rows
from callboard.tests.flows.cli_kit import Here, running, serving


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The server's folder, the one where commands are typed, and one for a restore."""
    made = tuple(tmp_path / name for name in ("server", "here", "new"))
    for folder in made[:2]:
        folder.mkdir()
    return made[0], made[1], made[2]


@pytest.mark.spec("OPS-5")
async def test_from_a_running_server_to_a_new_folder_and_on(places: tuple[Path, Path, Path], here: Here) -> None:
    server_folder, desk, new = places
    async with serving(server_folder) as server:
        await server.post("/", "echo one")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        done = await here("backup", "b.db", "--data", str(server_folder), "--json", folder=desk)
        assert set(done.json) == {"file", "bytes", "made_at", "schema"}
        assert done.json["file"] == str(desk / "b.db")
        assert done.json["bytes"] == (desk / "b.db").stat().st_size
        assert mode(desk / "b.db") == 0o600
        assert left_over(server_folder) == left_over(desk) == []

        again = await here("backup", "b.db", "--data", str(server_folder), folder=desk)
        assert (again.code, again.refusal) == (1, f"{desk / 'b.db'}: exists already; --force replaces it")
        await server.post("/", "echo two")
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["content"] == "two")
        again = await here("backup", "b.db", "--data", str(server_folder), "--force", folder=desk)
        assert (again.code, again.err) == (0, "")
        assert again.out.startswith(f"{desk / 'b.db'}: ")

        busy = await here("restore", "b.db", "--data", str(server_folder), "--force", folder=desk)
        assert busy.code == 1
        assert "has a server already" in busy.refusal

    done = await here("restore", "b.db", "--data", str(new), "--json", folder=desk)
    assert done.json["store"] == f"sqlite:///{new / 'callboard.db'}"
    assert done.json["kept"] is None
    async with serving(new) as server:
        await server.post("/", "echo three")
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["content"] == "three")
        assert [(entry["seq"], entry["content"]) for entry in await server.transcript("/")] == [
            (1, "echo one"),
            (2, "one"),
            (3, "echo two"),
            (4, "two"),
            (RESTORE_JUMP + 5, "echo three"),
            (RESTORE_JUMP + 6, "three"),
        ]
        report = (await here("doctor", "--json", "--data", str(new), folder=desk)).json
    (check,) = [check for check in report["checks"] if check["name"] == "restored"]
    assert check["state"] == "warn"
    assert f"token list --data {new}" in check["advice"]


@pytest.mark.spec("OPS-5")
async def test_without_a_server_the_store_itself_is_copied_and_nothing_runs(
    places: tuple[Path, Path, Path], here: Here
) -> None:
    server_folder, desk, _ = places
    nothing = await here("backup", str(desk / "b.db"), folder=server_folder)
    assert nothing.code == 1
    assert "there is no store" in nothing.refusal
    async with serving(server_folder):
        pass
    assert (await here("sessions", "send", "/", "echo waits", folder=server_folder)).code == 0
    done = await here("backup", str(desk / "b.db"), folder=server_folder)
    assert (done.code, done.err) == (0, "")
    assert rows(desk / "b.db", "SELECT status FROM message") == [("pending",)]
    refused = await here("restore", str(desk / "b.db"), folder=server_folder)
    assert refused.code == 1
    assert "--force puts it aside" in refused.refusal
    done = await here("restore", str(desk / "b.db"), "--force", folder=server_folder)
    assert done.code == 0
    assert "callboard.db.before-restore-" in done.out
    assert "token list" in done.err
    async with serving(server_folder) as server:
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["content"] == "waits")


async def test_mistakes_are_one_line_and_leave_nothing(places: tuple[Path, Path, Path], here: Here) -> None:
    _, desk, new = places
    missing = await here("restore", "none.db", "--data", str(new), folder=desk)
    assert (missing.code, missing.refusal) == (1, f"{desk / 'none.db'}: does not exist")
    assert not new.exists()
    (desk / "text").write_text("Dear diary\n" * 99)
    text = await here("restore", "text", "--data", str(new), folder=desk)
    assert text.code == 1
    assert "not an SQLite database" in text.refusal
    assert not (new / "callboard.db").exists()
    memory = await here("backup", "b.db", "--store", "sqlite:///:memory:", folder=desk)
    assert (memory.code, "in memory" in memory.refusal) == (1, True)
    folder = await here("backup", str(new), "--force", folder=desk)
    assert (folder.code, "is a folder" in folder.refusal) == (1, True)
    async with serving(desk):
        nowhere = await here("backup", "no/such/folder/b.db", folder=desk)
        assert (nowhere.code, "can't be written: No such file" in nowhere.refusal) == (1, True)


def test_progress_tells_how_much_is_done_where_that_is_known() -> None:
    stage = Stage("copying")
    assert str(stage) == "copying"
    stage.got(50, 200)
    assert str(stage) == "fetching 25 %"
    stage.got(200, 200)
    assert str(stage) == "fetching 100 %"


@pytest.mark.parametrize("command", ["backup", "restore"])
async def test_postgresql_has_tools_of_its_own(tmp_path: Path, here: Here, command: str) -> None:
    done = await here(command, "b.db", "--store", "postgresql://me:secret@host/db", folder=tmp_path)
    assert done.code == 1
    assert all(word in done.refusal for word in ("pg_dump", "pg_restore", "README"))
    assert "secret" not in done.refusal
    assert os.listdir(tmp_path) == []


CRAMPED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
sys.argv = ["callboard", *sys.argv[1:]]
from callboard.supervisors.cli import main
main()
"""
"""No file may grow beyond 64 KiB: for whoever writes it, the disk is full."""


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("served", [True, False])
async def test_a_disk_that_fills_up_leaves_what_was_there(places: tuple[Path, Path, Path], served: bool) -> None:
    server_folder, desk, _ = places
    (desk / "b.db").write_bytes(b"the last one")

    async def back_up() -> None:
        given = ("backup", "b.db", "--data", str(server_folder), "--force")
        async with running(*given, folder=desk, prelude=("-c", CRAMPED)) as command:
            done = await command.end()
        assert done.code == 1
        assert str(desk / "b.db") in done.refusal
        assert left_over(desk) == left_over(server_folder) == []
        assert (desk / "b.db").read_bytes() == b"the last one"

    async with serving(server_folder):
        if served:
            await back_up()
    if not served:
        await back_up()


STOPPED = """
import sys, time
import trio
from callboard.storage.sqlite import copying
from callboard.supervisors.cli import backup, main

copying.STEP_PAGES = 1
steps = []
tell = backup.Stage.tell

def halt(self, doing, done, total):
    steps.append(doing)
    if len(steps) == 5:
        print("half", flush=True)
        while True:  # what ends it ends it here, as at any other step
            tell(self, doing, done, total)
            time.sleep(0.01)

backup.Stage.tell = halt
sys.argv = ["callboard", *sys.argv[1:]]
main()
"""
"""The command, which gets no further than half of its copy."""


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("command", ["backup", "restore"])
async def test_a_kill_in_the_middle_leaves_no_file_and_the_next_one_cleans_up(
    places: tuple[Path, Path, Path], here: Here, command: str
) -> None:
    server_folder, desk, new = places
    async with serving(server_folder):
        pass
    assert (await here("backup", str(desk / "whole"), folder=server_folder)).code == 0
    given = ("backup", "b.db", "--data", str(server_folder))
    result, folder = desk / "b.db", desk
    if command == "restore":
        given, result, folder = ("restore", "whole", "--data", str(new)), new / "callboard.db", new
    async with running(*given, folder=desk, prelude=("-c", STOPPED)) as killed:
        await killed.out.until("half")
        killed.signal(signal.SIGKILL)
        assert (await killed.end()).code == -signal.SIGKILL
    assert not result.exists()
    assert len(left_over(folder)) == 1
    assert (await here(*given, folder=desk)).code == 0
    assert rows(result, "PRAGMA integrity_check") == [("ok",)]
    assert left_over(folder) == []


@pytest.mark.spec("OPS-5")
async def test_ctrl_c_ends_it_and_leaves_nothing(places: tuple[Path, Path, Path], here: Here) -> None:
    server_folder, desk, _ = places
    async with serving(server_folder):
        pass
    async with running("backup", "b.db", "--data", str(server_folder), folder=desk, prelude=("-c", STOPPED)) as command:
        await command.out.until("half")
        command.signal(signal.SIGINT)
        done = await command.end()
    assert (done.code, done.err) == (1, "")
    assert left_over(desk) == []
    assert not (desk / "b.db").exists()
