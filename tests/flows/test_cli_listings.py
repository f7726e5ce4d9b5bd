"""The client commands, answered by a running server or by the store itself: the same questions, the same JSON, the same exit codes.

The server is a real process; the commands run in this one, but for a few.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import callboard
from callboard.supervisors.demo import demonstration
from callboard.supervisors.team import open_places
from callboard.tests.flows.cli_kit import DEADLINE, Here, Local, environment, run, serving

MESSAGE_FIELDS = {"id", "message_id", "session", "status", "outcome", "turn_id", "stages", "attempts", "takeovers"}


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """A folder whose store has the team's sessions and one answered message, `m-1`."""

    async def seed() -> None:
        team = demonstration()
        async with callboard.open_runtime(f"sqlite:///{tmp_path}/callboard.db", agents=team.agents) as runtime:
            await open_places(runtime, team)
            await runtime.send("/", "echo hello", message_id="m-1")
            await runtime.wait("m-1")

    trio.run(seed)
    return tmp_path


@pytest.mark.spec("RT-17", "INB-12")
async def test_the_answers_are_the_same_with_a_server_and_without(seeded: Path, here: Here) -> None:
    commands = {
        "all": ("sessions", "list"),
        "path": ("sessions", "list", "--path", "/ops/deploy"),
        "active": ("sessions", "list", "--status", "active"),
        "two": ("sessions", "list", "--limit", "2"),
        "read": ("sessions", "read", "/"),
        "later": ("sessions", "read", "/", "--after", "1"),
        "inbox": ("inbox", "list"),
        "some": ("inbox", "list", "--target", "/", "--status", "delivered", "--limit", "1"),
        "failed": ("inbox", "list", "--status", "failed"),
        "old": ("inbox", "list", "--before", "2001-01-01T00:00:00Z"),
        "show": ("inbox", "show", "m-1"),
    }
    async with serving(seeded):
        online = {name: await here(*command, "--json", folder=seeded) for name, command in commands.items()}
    for name, command in commands.items():
        offline = await here(*command, "--json", folder=seeded)
        assert online[name].json == offline.json, name
        assert offline.err == ""
    got = {name: done.json for name, done in online.items()}
    assert {item["path"] for item in got["all"]["sessions"]} == {"/", "/ops/deploy", "/research/pricing"}
    assert set(got["all"]) == {"sessions", "has_more", "next"}
    assert [item["agent"] for item in got["path"]["sessions"]] == ["deploy"]
    assert got["active"]["sessions"] == []
    assert (len(got["two"]["sessions"]), got["two"]["has_more"]) == (2, True)
    assert [entry["content"] for entry in got["read"]["entries"]] == ["echo hello", "hello"]
    assert [entry["seq"] for entry in got["later"]["entries"]] == [2]
    assert [(item["message_id"], item["content"]) for item in got["inbox"]["messages"]] == [("m-1", "echo hello")]
    assert got["some"] == got["inbox"]
    assert got["failed"]["messages"] == got["old"]["messages"] == []
    assert set(got["show"]) >= MESSAGE_FIELDS | {"history"}
    assert list(got["show"]["stages"]) == ["accepted", "leased", "surfaced", "committed"]


def test_a_listing_goes_on_at_its_cursor(seeded: Path, local: Local) -> None:
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        answer = local("sessions", "list", "--limit", "1", "--json", *cursor, folder=seeded).json
        seen += [item["path"] for item in answer["sessions"]]
        if not answer["has_more"]:
            break
        cursor = ("--cursor", answer["next"])
    assert sorted(seen) == ["/", "/ops/deploy", "/research/pricing"]
    assert (
        "there are more: the same command with --cursor "
        in local("sessions", "list", "--limit", "1", folder=seeded).err
    )


@pytest.mark.spec("INB-1")
async def test_what_is_sent_without_a_server_waits_for_the_next_one(seeded: Path) -> None:
    send = ("sessions", "send", "/", "echo later", "--message-id", "m-2", "--json")
    done = await run(*send, folder=seeded)
    assert done.json == {"message_id": "m-2", "created": True, "status": "pending", "seq": 3}
    assert done.err == "no server runs here: it waits for the next `callboard serve`\n"
    assert (await run(*send, folder=seeded)).json == {**done.json, "created": False}
    async with serving(seeded) as server:
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["message_id"] == "m-2")
        assert [entry["content"] for entry in await server.transcript("/")][2:] == ["echo later", "later"]
        online = await run("sessions", "send", "/ops/deploy", "-", folder=seeded, stdin="echo from a pipe")
        assert (online.code, online.err) == (0, "")
        assert online.out.startswith("accepted as msg_")
        await server.until("/ops/deploy", lambda _, data: data.get("content") == "from a pipe")


async def test_stopping_a_turn(seeded: Path, here: Here) -> None:
    async with serving(seeded) as server:
        assert "runs no turn" in (await here("sessions", "stop", "/", folder=seeded)).refusal
        await server.post("/", "sleep 1000")
        await server.until("/", lambda _, data: data.get("content") == "sleep 1000")
        await server.until("/", lambda kind, data: kind == "attempt.claimed" and data["message_id"] != "m-1")
        waiting = await server.post("/", "echo behind it")
        done = await here("sessions", "stop", "/", "--drop-queued", "--json", folder=seeded)
        assert done.json == {"status": "stopping"}
        await server.until("/", lambda kind, _: kind == "turn.stopped")
        shown = (await here("inbox", "show", waiting, "--json", folder=seeded)).json
        assert (shown["status"], shown["reason"]) == ("failed", "dropped")


@pytest.mark.spec("INB-12")
async def test_the_inbox_of_a_server_is_looked_after(seeded: Path, here: Here) -> None:
    async with serving(seeded) as server:
        running = await server.post("/", "sleep 1000")
        await server.until("/", lambda kind, data: kind == "attempt.claimed" and data["message_id"] == running)
        waiting = await server.post("/", "echo one")
        assert (await here("inbox", "cancel", waiting, folder=seeded)).out == f"{waiting}: failed (cancelled)\n"
        refused = (await here("inbox", "cancel", running, folder=seeded)).refusal
        session = await server.session("/")
        assert refused == f"{running} is part of a running turn; to stop that: callboard sessions stop {session}"
        requeued = (await here("inbox", "requeue", waiting, "--json", folder=seeded)).json
        assert (requeued["created"], requeued["status"]) == (True, "pending")


@pytest.mark.spec("INB-4")
async def test_requeueing_twice_makes_one_message_whoever_answers(seeded: Path, here: Here) -> None:
    (message,) = (await here("inbox", "list", "--json", folder=seeded)).json["messages"]
    first = (await here("inbox", "requeue", "m-1", "--json", folder=seeded)).json
    # By its other id, and then asked of a server: it is the same one.
    again = await here("inbox", "requeue", message["id"], folder=seeded)
    assert (again.out, again.err) == (f"already requeued as {first['message_id']} (pending)\n", "")
    async with serving(seeded) as server:
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["message_id"] != "m-1")
        online = await here("inbox", "requeue", "m-1", "--data", str(seeded), folder=seeded)
        assert online.out == f"already requeued as {first['message_id']} (delivered)\n"
        hint = f"to run that one again: callboard inbox requeue {first['message_id']} --data {seeded}\n"
        assert (online.code, online.err) == (0, hint)
        assert len((await here("inbox", "list", "--json", folder=seeded)).json["messages"]) == 2
        third = (await here("inbox", "requeue", first["message_id"], "--json", folder=seeded)).json
        assert third["created"], "the copy is a message of its own"


def test_cancelling_what_is_over_tells_how_it_ended(seeded: Path, local: Local) -> None:
    done = local("inbox", "cancel", "m-1", folder=seeded)
    assert (done.code, done.refusal) == (1, "m-1 is delivered (answered) already, and nothing of it waits")
    local("sessions", "send", "/", "echo two", "--message-id", "m-2", folder=seeded)
    assert local("sessions", "stop", "/", "--drop-queued", folder=seeded).code == 1
    assert local("inbox", "cancel", "m-2", folder=seeded).out == "m-2: failed (cancelled)\n"
    assert local("inbox", "cancel", "m-2", folder=seeded).out == "m-2: failed (cancelled)\n", "it is as asked"


async def test_cancelling_what_failed_tells_why_and_what_to_do(seeded: Path, here: Here) -> None:
    async with serving(seeded) as server:
        running = await server.post("/", "sleep 1000")
        await server.until("/", lambda kind, data: kind == "attempt.claimed" and data["message_id"] == running)
        waiting = await server.post("/", "echo one")
        assert (await here("sessions", "stop", "/", "--drop-queued", folder=seeded)).code == 0
        await server.until("/", lambda kind, _: kind == "turn.stopped")
        done = await here("inbox", "cancel", waiting, "--data", ".", folder=seeded)
    again = f"callboard inbox requeue {waiting} --data ."
    assert done.refusal == f"{waiting} is failed (dropped) already, and nothing of it waits; to run it again: {again}"


def test_hints_have_the_place_that_was_given(
    seeded: Path, local: Local, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("else where")
    place = f"--data '{elsewhere}'"
    for command in (("sessions", "list"), ("chat",), ("console",)):
        refusal = local(*command, "--data", str(elsewhere), folder=seeded).refusal
        assert refusal.endswith(f"start one: callboard serve {place}"), refusal
    sent = local("sessions", "send", "/", "echo x", "--data", str(seeded), folder=elsewhere)
    assert sent.err == f"no server runs here: it waits for the next `callboard serve --data {seeded}`\n"
    checks = local("doctor", "--json", "--data", str(elsewhere), folder=seeded)
    advice = {check["name"]: check.get("advice", "") for check in json.loads(checks.out)["checks"]}
    assert advice["server"] == f"start one: callboard serve {place}"
    assert advice["store"] == f"it is made by: callboard serve {place}"
    store = local("chat", "--store", "sqlite:///other.db", folder=elsewhere).refusal
    assert store.endswith("start one: callboard serve --store sqlite:///other.db")


def test_a_hint_is_called_as_this_command_was(seeded: Path, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    (seeded / "bin dir").mkdir()
    script = seeded / "bin dir" / "callboard"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.argv", ["bin dir/callboard"])
    assert local("chat", folder=seeded).refusal.endswith("start one: 'bin dir/callboard' serve")
    monkeypatch.setenv("PATH", str(script.parent))
    assert local("chat", folder=seeded).refusal.endswith("start one: callboard serve")


@pytest.mark.spec("INB-12")
def test_the_inbox_of_a_store_is_looked_after(seeded: Path, local: Local) -> None:
    again = local("inbox", "requeue", "m-1", "--json", folder=seeded).json
    (pending,) = local("inbox", "list", "--status", "pending", "--json", folder=seeded).json["messages"]
    assert (pending["message_id"], pending["content"]) == (again["message_id"], "echo hello")
    assert pending["requeued_from"].startswith("msg_")
    cancelled = local("inbox", "cancel", pending["id"], "--json", folder=seeded).json
    assert (cancelled["status"], cancelled["reason"]) == ("failed", "cancelled")
    text = local("inbox", "show", pending["id"], folder=seeded).out
    assert text.startswith(f"{pending['message_id']} ")
    assert "failed (cancelled)" in text
    text = local("inbox", "show", "m-1", folder=seeded).out
    for stage in ("accepted ", "leased ", "surfaced ", "committed "):
        assert f"  {stage}" in text
    assert "runs no turn" in local("sessions", "stop", "/", folder=seeded).refusal


REFUSALS = [
    (("sessions", "read", "/nowhere"), "no session has this path"),
    (("sessions", "read", "ses_nowhere"), "there is no such session here"),
    (("sessions", "send", "ses_nowhere", "x"), "there is no such session here"),
    (("sessions", "send", "/", ""), "content: must not be empty"),
    (("sessions", "send", "/", "x", "--message-id", "a b"), "message_id: "),
    (("sessions", "send", "/", "echo other", "--message-id", "m-1"), "this message id was used"),
    (("sessions", "list", "--path", "nowhere"), "path: must start with /"),
    (("sessions", "list", "--cursor", "?"), "cursor: is not a cursor of this listing"),
    (("inbox", "show", "a/../b"), "message: must be 1 to 128 of letters"),
    (("inbox", "show", "nothing"), "there is no such message here"),
    (("sessions", "read", "a/../b"), "session: must be 1 to 128 of letters"),
    (("sessions", "read", "/a/../b"), "session: has a segment . or .."),
    (("inbox", "requeue", "nothing"), "there is no such message here"),
    (("inbox", "list", "--before", "yesterday"), "before: must be a time"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSALS)
def test_a_refusal_is_one_line_and_exit_1(seeded: Path, local: Local, arguments: tuple[str, ...], words: str) -> None:
    done = local(*arguments, folder=seeded)
    assert (done.code, words in done.refusal) == (1, True), done


async def test_a_server_refuses_in_the_same_words(seeded: Path, here: Here) -> None:
    async with serving(seeded):
        for arguments, words in REFUSALS:
            done = await here(*arguments, folder=seeded)
            assert (done.code, words in done.refusal) == (1, True), done


@pytest.mark.parametrize(
    "arguments", [("sessions", "list"), ("sessions", "send", "/", "x"), ("inbox", "list"), ("chat",)]
)
def test_without_a_server_and_without_a_store_nothing_is_made(
    tmp_path: Path, local: Local, arguments: tuple[str, ...]
) -> None:
    done = local(*arguments, folder=tmp_path)
    assert (done.code, "no server runs for" in done.refusal) == (1, True)
    assert list(tmp_path.iterdir()) == []


async def test_another_folder_is_named(
    tmp_path_factory: pytest.TempPathFactory, seeded: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    async with serving(seeded):
        assert (await here("sessions", "list", "--json", "--data", str(seeded), folder=other)).json["sessions"]
        assert (await here("sessions", "list", folder=other)).code == 1
        monkeypatch.setenv("CALLBOARD_DATA", str(seeded))
        assert (await here("sessions", "list", "--json", folder=other)).json["sessions"]


async def test_what_a_killed_server_left_is_recognised(seeded: Path, here: Here) -> None:
    async with serving(seeded) as server:
        server.command.signal(signal.SIGKILL)
        await server.command.process.wait()
    stale = json.loads((seeded / "server.json").read_text())
    # The same if its process id was given to somebody else; or if the file is no more than a piece of it.
    for content in (json.dumps(stale), json.dumps(stale | {"pid": os.getpid()}), json.dumps(stale)[:20], "[]", ""):
        (seeded / "server.json").write_text(content)
        done = await here("sessions", "list", "--json", folder=seeded)
        assert len(done.json["sessions"]) == 3


async def test_a_stranger_at_the_address_of_a_killed_server_is_told_nothing(seeded: Path, here: Here) -> None:
    """Even if it speaks HTTP, and the process id lives again: the folder has no server, so the store itself answers."""
    heard: list[bytes] = []

    async def somebody(stream: trio.SocketStream) -> None:
        heard.append(bytes(await stream.receive_some()))
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, somebody, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        (seeded / "server.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        (seeded / "operator.token").write_text("x" * 43 + "\n")
        (seeded / "operator.token").chmod(0o600)
        done = await here("sessions", "list", "--json", folder=seeded)
        told = await here("chat", folder=seeded)
        nursery.cancel_scope.cancel()
    assert len(done.json["sessions"]) == 3
    assert "no server runs" in told.refusal
    assert heard == []


@pytest.mark.spec("RT-17")
async def test_a_store_in_use_by_no_server_of_this_folder_names_its_owner(seeded: Path, here: Here) -> None:
    async with serving(seeded) as server:
        (seeded / "server.json").unlink()
        for command in (("sessions", "list"), ("migrate",)):
            done = await here(*command, folder=seeded)
            assert (done.code, f"pid {server.pid}" in done.refusal) == (1, True)


def test_for_people_there_are_tables_and_lines(seeded: Path, local: Local) -> None:
    local("sessions", "send", "/ops/deploy", "a \x1b[31mred\x1b[0m\nand blue", "--message-id", "m-2", folder=seeded)
    listed = local("sessions", "list", folder=seeded).out.splitlines()
    assert listed[0].split() == ["PATH", "AGENT", "KIND", "STATUS", "UPDATED", "ID", "TITLE"]
    assert len(listed) == 4
    read = local("sessions", "read", "/ops/deploy", folder=seeded)
    assert read.out == "1 operator [pending]: a \ufffd[31mred\ufffd[0m\nand blue\n"
    assert (
        local("sessions", "read", "/", folder=seeded).out == "1 operator: echo hello\n2 front-desk (assistant): hello\n"
    )
    inbox = local("inbox", "list", folder=seeded)
    assert inbox.out.splitlines()[1].endswith("a \ufffd[31mred\ufffd[0m and blue")
    assert "\x1b" not in read.out + inbox.out


def test_a_reader_that_has_seen_enough_is_no_error(seeded: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "callboard", "sessions", "list"]
    done = subprocess.run(
        command, cwd=seeded, env=environment(), stdout=writer, stderr=subprocess.PIPE, timeout=DEADLINE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_migrate_makes_a_store_and_then_has_nothing_to_do(tmp_path: Path, local: Local) -> None:
    first = local("migrate", folder=tmp_path)
    assert (first.code, "made with 0001_initial" in first.out) == (0, True)
    assert local("migrate", folder=tmp_path).out == f"{tmp_path}/callboard.db: nothing to do\n"
    done = local("migrate", "--json", folder=tmp_path)
    assert done.json == {"store": f"sqlite:///{tmp_path}/callboard.db", "migrated": []}
    done = local("migrate", "--json", "--store", "sqlite:///other.db", folder=tmp_path)
    assert done.json["migrated"][0] == "0001_initial"
    assert local("migrate", "--store", "sqlite:///:memory:", folder=tmp_path).code == 1
