"""`callboard doctor`: with a server, without one, and with whatever may be broken; it always answers, and says what to do."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callboard.supervisors.cli.announce import take_folder
from callboard.tests.flows.cli_kit import Done, run, serving

SECRET = "a-secret-text"
FIELDS = {"name", "state", "detail", "advice"}


def report(done: Done) -> dict[str, Any]:
    """The report, whose shape and exit code are checked."""
    assert done.err == "", done
    found = json.loads(done.out)
    assert set(found) == {"state", "checks", "processes", "settings"}
    assert all({"name", "state", "detail"} <= set(check) <= FIELDS for check in found["checks"])
    assert done.code == (1 if found["state"] == "fail" else 0)
    assert all(check["state"] == "ok" or check["advice"] for check in found["checks"])
    return found


def named(found: dict[str, Any], name: str) -> dict[str, Any]:
    (check,) = [check for check in found["checks"] if check["name"] == name]
    return check


@pytest.mark.spec("OPS-4")
async def test_a_running_server_is_examined_through_itself(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("live_turns = 7\n")
    async with serving(tmp_path) as server:
        await server.post("/", f"echo {SECRET}")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        found = report(await run("doctor", "--json", folder=tmp_path))
        plain = await run("doctor", folder=tmp_path)
        token = server.token_file.read_text().strip()
    assert found["state"] == "ok", found
    names = [check["name"] for check in found["checks"]]
    assert names == [
        "settings", "token", "files", "server", "versions", "tree", "store", "schema", "integrity", "processes", "leases", "lag",
        "oldest", "stuck", "clock", "disk", "queue", "turns",
    ]  # fmt: skip
    assert server.url in named(found, "server")["detail"]
    assert named(found, "turns")["detail"] == "0 live of 7"
    assert found["settings"]["live_turns"] == 7
    assert all(name in named(found, "versions")["detail"] for name in ("callboard", "Python", "SQLite", "Trio"))
    for text in (json.dumps(found), plain.out):
        assert token not in text
        assert SECRET not in text
    assert plain.code == 0
    assert [line.split()[:2] for line in plain.out.splitlines()] == [["ok", name] for name in names]


@pytest.mark.spec("OPS-4")
async def test_without_a_server_the_store_itself_is_examined(tmp_path: Path) -> None:
    empty = report(await run("doctor", "--json", folder=tmp_path))
    assert (named(empty, "store")["state"], named(empty, "server")["state"]) == ("warn", "warn")
    assert os.listdir(tmp_path) == [], "asking makes nothing"
    async with serving(tmp_path):
        pass
    assert (await run("sessions", "send", "/", "echo later", folder=tmp_path)).code == 0
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert found["state"] == "warn"
    assert named(found, "integrity")["state"] == "ok"
    assert "1 due" in named(found, "lag")["detail"]
    assert "until the next" in named(found, "lag")["detail"]


@pytest.mark.spec("OPS-4")
async def test_a_damaged_store_fails_and_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path):
        pass
    file = tmp_path / "callboard.db"
    with closing(sqlite3.connect(file)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'mailbox_due'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute("PRAGMA journal_mode=DELETE")
    with file.open("r+b") as opened:
        opened.seek((page - 1) * size)
        opened.write(b"\xff" * size)
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert found["state"] == "fail"
    broken = [check for check in found["checks"] if check["state"] == "fail"]
    assert {check["name"] for check in broken} <= {"integrity", "store"}
    assert broken
    file.write_bytes(b"not a database at all, " * 100)
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert "not" in named(found, "store")["detail"]
    assert named(found, "disk")["state"] == "ok", "the rest is examined all the same"


async def test_what_others_may_read_is_no_secret_any_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.token_file.chmod(0o644)
        found = report(await run("doctor", "--json", folder=tmp_path))
        assert named(found, "token")["state"] == "fail"
        assert "0644" in named(found, "token")["detail"]
        server.token_file.chmod(0o600)


async def test_files_that_others_may_open_are_told_and_left_as_they_are(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    async with serving(tmp_path):
        assert named(report(await run("doctor", "--json", folder=tmp_path)), "files")["state"] == "ok"
        (tmp_path / "callboard.db").chmod(0o644)
        (tmp_path / "server.lock").chmod(0o644)
    async with serving(tmp_path):
        pass
    found = named(report(await run("doctor", "--json", folder=tmp_path)), "files")
    assert (found["state"], found["advice"]) == ("warn", f"chmod 600 {tmp_path}/callboard.db {tmp_path}/server.lock")
    assert stat.S_IMODE((tmp_path / "callboard.db").stat().st_mode) == 0o644, "a start changes nothing"
    os.chmod(tmp_path, 0o700)
    found = named(report(await run("doctor", "--json", folder=tmp_path)), "files")
    assert found["state"] == "ok", "nobody else comes into the folder"


async def test_a_server_that_was_killed_is_told_from_one_that_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.command.process.kill()
        await server.command.end()
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert named(found, "server")["state"] == "warn"
    assert named(found, "integrity")["state"] == "ok"
    announced = json.loads((tmp_path / "server.json").read_text())
    with await take_folder(tmp_path):
        # It has the folder, as a server has that hangs, and does not listen.
        (tmp_path / "server.json").write_text(json.dumps({**announced, "pid": os.getpid()}))
        found = report(await run("doctor", "--json", folder=tmp_path))
    assert (named(found, "server")["state"], found["state"]) == ("fail", "fail")
    assert "server.json" in named(found, "server")["advice"]


async def test_a_store_that_another_folder_serves_is_named_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serving(tmp_path) as server:
        found = report(
            await run("doctor", "--json", "--data", "other", "--store", "sqlite:///callboard.db", folder=tmp_path)
        )
        assert named(found, "store")["state"] == "fail"
        assert str(server.pid) in named(found, "store")["detail"]


@pytest.mark.spec("OPS-3")
async def test_settings_are_shown_without_secrets_and_a_mistake_in_them_fails(tmp_path: Path) -> None:
    key = "sk-" + "verysecret"
    url = f"https://user:{key}@models.example/v1"
    (tmp_path / "callboard.toml").write_text(f'model_url = "{url}"\nmodel = "m"\nmodel_key = "{key}"\n')
    done = await run("doctor", "--json", folder=tmp_path)
    found = report(done)
    assert key not in done.out
    assert found["settings"]["model_key"] == "set"
    assert found["settings"]["model_url"] == "https://models.example/v1"
    assert "model = m" in named(found, "settings")["detail"]
    (tmp_path / "callboard.toml").write_text("prot = 1\n")
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert (named(found, "settings")["state"], found["state"]) == ("fail", "fail")
    assert "the nearest is port" in named(found, "settings")["detail"]
    assert (await run("doctor", "--store", "nonsense", folder=tmp_path)).code == 1


async def test_a_schema_that_is_older_is_told_and_left_alone(tmp_path: Path) -> None:
    assert (await run("migrate", folder=tmp_path)).code == 0
    file = tmp_path / "callboard.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not name.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {name}")
        connection.execute("PRAGMA application_id=0")
        connection.commit()
        connection.execute("VACUUM")
    before = file.read_bytes()
    found = report(await run("doctor", "--json", folder=tmp_path))
    assert named(found, "schema")["state"] == "warn"
    assert "0001_initial" in named(found, "schema")["detail"]
    assert file.read_bytes() == before
