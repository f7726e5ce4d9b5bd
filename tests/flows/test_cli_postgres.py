"""The command line on a PostgreSQL store: the same commands, no file, and no password in anything that is printed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import callboard
from callboard.tests.contract.postgres_server import Server, session_server
from callboard.tests.flows.cli_kit import Done, run, running, serving
from callboard.tests.flows.edge_kit import AGENTS

PASSWORD = "pass-word-1"
WITHOUT = "import sys; sys.modules['psycopg'] = None; from callboard.supervisors.cli import main; main()"


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database, with a password in its URL, which this server does not ask for."""
    with session_server().database() as found:
        yield found.replace("postgres@", f"postgres:{PASSWORD}@")


def named(report: dict[str, list[dict[str, str]]], name: str) -> dict[str, str]:
    (check,) = [check for check in report["checks"] if check["name"] == name]
    return check


async def secretly(*arguments: str, folder: Path) -> Done:
    """Run a command, which must not print the password."""
    done = await run(*arguments, folder=folder)
    assert PASSWORD not in done.out + done.err, done
    return done


@pytest.mark.spec("RT-17", "OPS-1")
async def test_two_folders_serve_one_store_and_commands_ask_either(tmp_path: Path, url: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with serving(one, "--store", url) as first, serving(two, CALLBOARD_STORE=url) as second:
        assert (await first.session("/")) == (await second.session("/"))
        posted = await secretly("sessions", "send", "/ops/deploy", "echo both", "--json", folder=one)
        message = posted.json["message_id"]
        await second.until("/ops/deploy", lambda kind, _: kind == "turn.completed")
        shown = (await secretly("inbox", "show", message, "--json", folder=two)).json
        assert shown["status"] == "delivered"
        # Where no server runs, the store itself is asked; what is sent there is taken by those who serve it.
        sent = await secretly("sessions", "send", "/ops/deploy", "echo from outside", "--store", url, folder=tmp_path)
        assert sent.code == 0
        assert sent.err == "no server runs here: a process that serves this store takes it\n"
        await first.until("/ops/deploy", lambda kind, data: kind == "turn.completed" and data["seq"] == 4)
        report = (await secretly("doctor", "--json", folder=two)).json
        assert len(report["processes"]) == 2
        assert report["state"] == "ok", report
        assert report["settings"]["store"].startswith("postgresql:///t")
        outside = await secretly("doctor", "--store", url, folder=tmp_path)
        assert "2 claim" in outside.out
        for served in (first, second):
            assert PASSWORD not in served.command.out.text + served.command.err.text
        assert not [name for name in os.listdir(one) if "callboard.db" in name]
    assert (await secretly("doctor", "--store", url, "--json", folder=tmp_path)).json["processes"] == []


@pytest.mark.spec("OPS-5")
async def test_commands_do_not_make_a_schema_and_migrate_does(tmp_path: Path, url: str) -> None:
    refused = (await secretly("inbox", "list", "--store", url, folder=tmp_path)).refusal
    assert "0001_initial" in refused
    assert "callboard migrate --store" in refused
    report = json.loads((await secretly("doctor", "--json", "--store", url, folder=tmp_path)).out)
    assert named(report, "schema")["state"] == "warn"
    made = (await secretly("migrate", "--store", url, "--json", folder=tmp_path)).json
    assert made["migrated"][0] == "0001_initial"
    assert (await secretly("migrate", "--store", url, folder=tmp_path)).out.endswith("nothing to do\n")
    assert (await secretly("inbox", "list", "--store", url, "--json", folder=tmp_path)).json["messages"] == []
    assert "pg_dump" in (await secretly("backup", "x.bak", "--store", url, folder=tmp_path)).refusal
    assert os.listdir(tmp_path) == []


async def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for url in (
        f"postgresql://ann:{PASSWORD}@127.0.0.1:1/callboard",
        f"postgresql://ann:{PASSWORD}@/callboard?host={tmp_path}/nowhere",
    ):
        for words in (("serve", "--port", "0"), ("migrate",), ("sessions", "list"), ("inbox", "list", "--json")):
            done = await secretly(*words, "--store", url, folder=tmp_path)
            assert (done.code, done.refusal.startswith("postgresql://")) == (1, True), done
        report = json.loads((await secretly("doctor", "--json", "--store", url, folder=tmp_path)).out)
        assert named(report, "store")["state"] == "fail"
    for wrong in ("postgresql://ann:%zz" + PASSWORD + "@host/db", f"postgresql://{PASSWORD}:x:y@[::1/db"):
        done = await secretly("migrate", "--store", wrong, folder=tmp_path)
        assert done.code == 1
        assert done.refusal


async def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    for words in (("serve", "--port", "0"), ("inbox", "list"), ("migrate",)):
        async with running(
            *words, "--store", "postgresql://host/db", folder=tmp_path, prelude=("-c", WITHOUT)
        ) as command:
            done = await command.end()
        assert done.code == 1
        assert done.refusal == "store: needs the extra postgres (psycopg is missing): pip install 'callboard[postgres]'"


@pytest.mark.spec("RT-16", "RT-17")
async def test_an_embedding_program_opens_the_same_store(url: str) -> None:
    def threaded() -> str:
        with callboard.open_portal(url, agents=AGENTS) as portal:
            session = portal.open_session(path="/", agent="desk")
            sent = portal.send(session.id, "echo hello", message_id="m-1")
            assert portal.wait(sent.message_id).outcome == "answered"
            return portal.read("/")[-1].content

    assert await trio.to_thread.run_sync(threaded) == "hello"
    async with callboard.open_runtime(url, agents=AGENTS) as runtime:
        again = await runtime.send("/", "echo hello", message_id="m-1")
        assert not again.created
        assert PASSWORD not in runtime.store.name


async def test_a_password_is_in_no_name_of_a_server(tmp_path: Path) -> None:
    """Not even where the server refuses it."""
    server = Server.launch()
    (server.data / "pg_hba.conf").write_text("local all all scram-sha-256\n")
    await trio.to_thread.run_sync(server.restart)
    url = server.url().replace("postgres@", f"postgres:{PASSWORD}@")
    done = await secretly("migrate", "--store", url, folder=tmp_path)
    assert done.code == 1
    assert "password" in done.refusal
    server.stop("immediate")
