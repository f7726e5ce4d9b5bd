"""The client commands, answered by a running server or by the store itself: the same questions, the same JSON, the same exit codes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.tests.flows.cli_kit import Done, Serving, run, serving

MESSAGE_FIELDS = {"id", "message_id", "session", "status", "outcome", "turn_id", "stages", "attempts", "takeovers"}


async def both(folder: Path, server: Serving, *commands: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Each command's JSON while the server runs, and after it has stopped."""
    online = [(await run(*command, "--json", folder=folder)).json for command in commands]
    server.command.signal(signal.SIGTERM)
    assert (await server.command.end()).code == 0
    offline = [(await run(*command, "--json", folder=folder)).json for command in commands]
    return list(zip(online, offline, strict=True))


@pytest.mark.spec("RT-17")
async def test_the_answers_are_the_same_with_a_server_and_without(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        message = await server.post("/", "echo hello")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        session = await server.session("/")
        pairs = await both(
            tmp_path,
            server,
            ("sessions", "list"),
            ("sessions", "list", "--path", "/ops/deploy"),
            ("sessions", "list", "--status", "active"),
            ("sessions", "list", "--limit", "2"),
            ("sessions", "read", "/"),
            ("sessions", "read", session, "--after", "1"),
            ("inbox", "list"),
            ("inbox", "list", "--target", "/", "--status", "delivered", "--limit", "1"),
            ("inbox", "list", "--status", "failed"),
            ("inbox", "list", "--before", "2001-01-01T00:00:00Z"),
            ("inbox", "show", message),
        )
    for online, offline in pairs:
        assert online == offline
    everything, deploy, active, two, transcript, later, inbox, _, failed, old, shown = (online for online, _ in pairs)
    assert {item["path"] for item in everything["sessions"]} == {"/", "/ops/deploy", "/research/pricing"}
    assert set(everything) == {"sessions", "has_more", "next"}
    assert [item["agent"] for item in deploy["sessions"]] == ["deploy"]
    assert active["sessions"] == []
    assert (len(two["sessions"]), two["has_more"]) == (2, True)
    assert [entry["content"] for entry in transcript["entries"]] == ["echo hello", "hello"]
    assert [entry["seq"] for entry in later["entries"]] == [2]
    assert [item["message_id"] for item in inbox["messages"]] == [message]
    assert inbox["messages"][0]["content"] == "echo hello"
    assert failed["messages"] == old["messages"] == []
    assert set(shown) >= MESSAGE_FIELDS | {"history"}
    assert list(shown["stages"]) == ["accepted", "leased", "surfaced", "committed"]


async def test_a_listing_goes_on_at_its_cursor(tmp_path: Path) -> None:
    async with serving(tmp_path):
        seen: list[str] = []
        cursor: tuple[str, ...] = ()
        while True:
            answer = (await run("sessions", "list", "--limit", "1", "--json", *cursor, folder=tmp_path)).json
            seen += [item["path"] for item in answer["sessions"]]
            if not answer["has_more"]:
                break
            cursor = ("--cursor", answer["next"])
        assert sorted(seen) == ["/", "/ops/deploy", "/research/pricing"]
        told = await run("sessions", "list", "--limit", "1", folder=tmp_path)
        assert "there are more: --cursor " in told.err


@pytest.mark.spec("INB-1", "RT-9")
async def test_what_is_sent_without_a_server_waits_for_the_next_one(tmp_path: Path) -> None:
    async with serving(tmp_path):
        pass
    done = await run("sessions", "send", "/", "echo later", "--message-id", "m-1", "--json", folder=tmp_path)
    assert done.json == {"message_id": "m-1", "created": True, "status": "pending", "seq": 1}
    assert "it waits for the next `callboard serve`" in done.err
    again = await run("sessions", "send", "/", "echo later", "--message-id", "m-1", "--json", folder=tmp_path)
    assert again.json == {"message_id": "m-1", "created": False, "status": "pending", "seq": 1}
    other = await run("sessions", "send", "/", "echo other", "--message-id", "m-1", folder=tmp_path)
    assert (other.code, "this message id was used" in other.refusal) == (1, True)
    async with serving(tmp_path) as server:
        await server.until("/", lambda kind, data: kind == "turn.completed" and data["message_id"] == "m-1")
        assert [entry["content"] for entry in await server.transcript("/")] == ["echo later", "later"]


async def test_sending_to_a_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = await run("sessions", "send", "/ops/deploy", "-", folder=tmp_path, stdin="echo from a pipe")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("accepted as msg_")
        await server.until("/ops/deploy", lambda kind, data: data.get("content") == "from a pipe")


async def test_stopping_a_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert "runs no turn" in (await run("sessions", "stop", "/", folder=tmp_path)).refusal
        await server.post("/", "sleep 1000")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        waiting = await server.post("/", "echo behind it")
        done = await run("sessions", "stop", "/", "--drop-queued", "--json", folder=tmp_path)
        assert done.json == {"status": "stopping"}
        await server.until("/", lambda kind, _: kind == "turn.stopped")
        shown = (await run("inbox", "show", waiting, "--json", folder=tmp_path)).json
        assert (shown["status"], shown["reason"]) == ("failed", "dropped")
    done = await run("sessions", "stop", "/", folder=tmp_path)
    assert (done.code, "runs no turn" in done.refusal) == (1, True)


@pytest.mark.spec("INB-12")
async def test_the_inbox_is_looked_after_with_and_without_a_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "sleep 1000")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        waiting = await server.post("/", "echo one")
        cancelled = await run("inbox", "cancel", waiting, folder=tmp_path)
        assert (cancelled.code, cancelled.out) == (0, f"{waiting}: failed (cancelled)\n")
        running = (await run("inbox", "list", "--status", "processing", "--json", folder=tmp_path)).json["messages"]
        assert "processing" in (await run("inbox", "cancel", running[0]["id"], folder=tmp_path)).refusal
        requeued = (await run("inbox", "requeue", waiting, "--json", folder=tmp_path)).json
        assert (requeued["created"], requeued["status"]) == (True, "pending")
        (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 1\n")
    # The sleeper was given back by the stop and waits before the requeued one.
    print((await run("inbox", "list", folder=tmp_path)))
    pending = (await run("inbox", "list", "--status", "pending", "--json", folder=tmp_path)).json["messages"]
    assert [message["content"] for message in pending] == ["echo one", "sleep 1000"]
    assert pending[0]["requeued_from"].startswith("msg_")
    assert (await run("inbox", "cancel", pending[1]["id"], "--json", folder=tmp_path)).json["reason"] == "cancelled"
    text = (await run("inbox", "show", pending[1]["id"], folder=tmp_path)).out
    for part in ("failed (cancelled)", "accepted ", "leased ", "attempt 1 "):
        assert part in text
    async with serving(tmp_path) as server:
        await server.until("/", lambda kind, data: kind == "turn.completed" and data.get("content") == "one")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sessions", "read", "/nowhere"), "no session has this path"),
        (("sessions", "read", "ses_nowhere"), "there is no such session here"),
        (("sessions", "send", "ses_nowhere", "x"), "there is no such session here"),
        (("sessions", "send", "/", ""), "content: must not be empty"),
        (("sessions", "send", "/", "x", "--message-id", "a b"), "message_id: "),
        (("sessions", "list", "--path", "nowhere"), "path: must start with /"),
        (("sessions", "list", "--cursor", "?"), "cursor: is not a cursor of this listing"),
        (("inbox", "show", "nothing"), "there is no such message here"),
        (("inbox", "requeue", "nothing"), "there is no such message here"),
        (("inbox", "list", "--before", "yesterday"), "before: must be a time"),
    ],
)
async def test_a_refusal_is_one_line_and_the_same_from_both(
    tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...], words: str
) -> None:
    # One folder for all of these: what is refused changes nothing.
    folder = tmp_path_factory.getbasetemp() / "refusals"
    if not folder.exists():
        folder.mkdir()
        async with serving(folder):
            pass
    done = await run(*arguments, folder=folder)
    assert (done.code, words in done.refusal) == (1, True), done


async def test_a_server_refuses_in_the_same_words(tmp_path: Path) -> None:
    async with serving(tmp_path):
        for arguments, words in (
            (("sessions", "read", "ses_nowhere"), "there is no such session here"),
            (("sessions", "send", "/", ""), "content: must not be empty"),
            (("inbox", "show", "a/../b"), "there is no such message here"),
            (("inbox", "list", "--before", "yesterday"), "before: must be a time"),
        ):
            done = await run(*arguments, folder=tmp_path)
            assert (done.code, words in done.refusal) == (1, True), done


async def test_without_a_server_and_without_a_store_nothing_is_made(tmp_path: Path) -> None:
    for arguments in (("sessions", "list"), ("sessions", "send", "/", "x"), ("inbox", "list")):
        done = await run(*arguments, folder=tmp_path)
        assert (done.code, "no server runs for" in done.refusal) == (1, True)
    assert list(tmp_path.iterdir()) == []


async def test_another_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    async with serving(tmp_path, "--data", "there"):
        assert (await run("sessions", "list", "--json", "--data", "../there", folder=tmp_path / "here")).json[
            "sessions"
        ]
        assert (await run("sessions", "list", folder=tmp_path / "here")).code == 1
        done = await run("sessions", "list", "--json", folder=tmp_path / "here", CALLBOARD_DATA=str(tmp_path / "there"))
        assert done.json["sessions"]


async def test_what_a_killed_server_left_is_recognised(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "hang 1000")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        server.command.signal(signal.SIGKILL)
        await server.command.process.wait()
    assert (tmp_path / "server.json").exists()
    assert len((await run("sessions", "list", "--json", folder=tmp_path)).json["sessions"]) == 3
    # The same if its process id was given to somebody else, or to nobody; or if the file is no more than a piece of it.
    stale = json.loads((tmp_path / "server.json").read_text())
    for content in (json.dumps(stale | {"pid": os.getpid()}), json.dumps(stale)[:20], "[]", ""):
        (tmp_path / "server.json").write_text(content)
        assert len((await run("sessions", "list", "--json", folder=tmp_path)).json["sessions"]) == 3


async def test_the_token_goes_only_to_a_server_that_answers(tmp_path: Path) -> None:
    """At the address of a killed server there may be another program: it must not be told the token."""
    async with serving(tmp_path):
        pass
    heard: list[bytes] = []

    async def somebody(stream: trio.SocketStream) -> None:
        heard.append(bytes(await stream.receive_some()))
        await stream.send_all(b"SSH-2.0-somebody\r\n")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, somebody, 0)
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        (tmp_path / "server.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        done = await run("sessions", "list", folder=tmp_path)
        nursery.cancel_scope.cancel()
    assert (done.code, "does not answer" in done.refusal) == (1, True)
    assert heard
    assert b"uthorization" not in b"".join(heard)


async def test_a_store_in_use_by_no_server_of_this_folder_names_its_owner(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        (tmp_path / "server.json").unlink()
        done = await run("sessions", "list", folder=tmp_path)
        assert (done.code, f"pid {server.pid}" in done.refusal) == (1, True)


async def test_for_people_there_are_tables_and_lines(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "echo \x1b[31mred\x1b[0m\nand blue")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        listed = await run("sessions", "list", folder=tmp_path)
        assert listed.out.splitlines()[0].split() == ["PATH", "AGENT", "KIND", "STATUS", "UPDATED", "ID", "TITLE"]
        assert len(listed.out.splitlines()) == 4
        read = await run("sessions", "read", "/", folder=tmp_path)
        assert read.out.splitlines()[-2:] == ["2 front-desk (assistant): \ufffd[31mred\ufffd[0m", "and blue"]
        inbox = await run("inbox", "list", folder=tmp_path)
        assert inbox.out.splitlines()[1].endswith("echo \ufffd[31mred\ufffd[0m and blue")
        assert "\x1b" not in read.out + inbox.out


async def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    async with serving(tmp_path):
        command = "callboard sessions list"
        shell = f'"$PYTHON" -m {command} --json | head -c 1'
        result = await trio.run_process(
            ["bash", "-c", f"set -o pipefail; {shell}; true"],
            cwd=tmp_path,
            env={**os.environ, "PYTHON": os.environ.get("PYTHON", "python3")},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert b"Traceback" not in result.stderr


@pytest.mark.spec("OPS-5")
async def test_migrate_makes_a_store_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    first = await run("migrate", folder=tmp_path)
    assert (first.code, "made with 0001_initial" in first.out) == (0, True)
    assert (await run("migrate", folder=tmp_path)).out == f"{tmp_path}/callboard.db: nothing to do\n"
    done = await run("migrate", "--json", folder=tmp_path)
    assert done.json == {"store": f"sqlite:///{tmp_path}/callboard.db", "migrated": []}
    done = await run("migrate", "--json", "--store", "sqlite:///other.db", folder=tmp_path)
    assert done.json["migrated"][0] == "0001_initial"
    assert (await run("migrate", "--store", "sqlite:///:memory:", folder=tmp_path)).code == 1
    async with serving(tmp_path) as server:
        assert f"pid {server.pid}" in (await run("migrate", folder=tmp_path)).refusal


def test_a_done_command_shows_itself() -> None:
    assert "code=1" in repr(Done(1, "", "x"))
