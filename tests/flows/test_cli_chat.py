"""`callboard chat` as a real process, over real restarts of the server: every line is one message, every answer is shown once."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from callboard.tests.flows.cli_kit import Command, Done, environment, run, running, serving

COUNT = " ".join(map(str, range(1, 31)))
LONG_COUNT = " ".join(map(str, range(1, 91)))
"""So long that a chat finds the server again while it is being streamed."""


async def kill(command: Command) -> None:
    """End a server as a crash does."""
    command.signal(signal.SIGKILL)
    with trio.fail_after(30):
        await command.process.wait()


async def test_lines_from_a_pipe_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = await run("chat", folder=tmp_path, stdin="echo hello\n\n  count 3  \nechö\n echo last without newline")
        lines = done.out.splitlines()
        assert (done.code, done.err) == (0, "")
        assert (lines[:2], lines[3:]) == (["hello", "1 2 3"], ["last without newline"])
        assert lines[2].startswith("I know: ")
        posts = [entry["content"] for entry in await server.transcript("/") if entry["role"] == "user"]
        assert posts == ["echo hello", "count 3", "echö", "echo last without newline"]
        other = await run("chat", "/ops/deploy", folder=tmp_path, stdin="echo elsewhere\n/quit\necho never sent\n")
        assert (other.code, other.out) == (0, "elsewhere\n")
        by_id = await run("chat", await server.session("/ops/deploy"), folder=tmp_path, stdin="echo by id")
        assert by_id.out == "by id\n"


async def test_no_input_is_no_conversation(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert await run("chat", folder=tmp_path) == Done(0, "", "")


@pytest.mark.spec("EVT-4")
async def test_a_server_killed_in_the_middle_of_an_answer_leaves_exactly_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as first, running("chat", folder=tmp_path) as chat:
        await chat.say("count 30\n")
        await chat.hang_up()
        await chat.out.until("1 2 3 4 5")
        await kill(first.command)
        async with serving(tmp_path, port=first.port) as second:
            done = await chat.end()
            entries = await second.transcript("/")
    assert (done.code, done.err) == (0, "")
    dropped, again, answer = done.out.splitlines()
    assert again == "(starting again)"
    assert COUNT.startswith(dropped)
    assert dropped != COUNT
    assert answer == COUNT
    assert [(entry["role"], entry["content"]) for entry in entries] == [("user", "count 30"), ("assistant", COUNT)]


@pytest.mark.spec("INB-4")
async def test_a_line_typed_while_the_server_is_away_is_sent_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as first, running("chat", folder=tmp_path) as chat:
        await chat.say("echo before\n")
        await chat.out.until("before\n")
        await kill(first.command)
        await chat.say("echo after\n")
        async with serving(tmp_path, port=first.port) as second:
            await chat.out.until("after\n")
            await chat.hang_up()
            done = await chat.end()
            entries = await second.transcript("/")
    assert (done.code, done.out) == (0, "before\nafter\n")
    assert [entry["content"] for entry in entries] == ["echo before", "before", "echo after", "after"]


async def test_several_kills_while_it_waits_for_one_answer(tmp_path: Path) -> None:
    async with running("chat", folder=tmp_path) as early:
        assert "no server runs" in (await early.end()).refusal
    async with serving(tmp_path) as first:
        port = first.port
        async with running("chat", folder=tmp_path) as chat:
            await chat.say("count 90\n")
            await chat.hang_up()
            await chat.out.until("1 2 3")
            await kill(first.command)
            for _ in range(2):
                seen = chat.out.text.count("(starting again)")  # before it serves, as the turn may run at once
                async with serving(tmp_path, port=port) as server:
                    await chat.out.until(lambda text, seen=seen: text.count("(starting again)") > seen)
                    await chat.out.until(lambda text: "1 2 3" in text.rpartition("(starting again)")[2])
                    await kill(server.command)
            async with serving(tmp_path, port=port):
                done = await chat.end()
    assert done.code == 0
    assert done.out.count(LONG_COUNT) == 1
    assert done.out.splitlines()[-1] == LONG_COUNT


async def test_a_message_that_fails_makes_the_exit_code_1(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, running("chat", folder=tmp_path) as chat:
        await server.post("/", "sleep 1000")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        await chat.say("echo waiting behind it\n")
        await chat.hang_up()
        await server.until("/", lambda kind, data: kind == "message.created" and data["message_id"].startswith("chat-"))
        listed = (await run("inbox", "list", "--status", "pending", "--json", folder=tmp_path)).json["messages"]
        assert (await run("inbox", "cancel", listed[0]["message_id"], folder=tmp_path)).code == 0
        done = await chat.end()
        assert (done.code, done.out, done.err) == (1, "", "failed: cancelled\n")


async def test_a_line_that_is_refused_is_told_and_the_next_one_sent(tmp_path: Path) -> None:
    async with serving(tmp_path):
        done = await run("chat", folder=tmp_path, stdin=f"echo {'x' * 20_000}\necho still here\n")
    assert (done.code, done.out) == (1, "still here\n")
    assert done.err == "callboard: content: has 20005 characters, 20000 are allowed\n"


async def test_what_others_say_meanwhile_is_not_part_of_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, running("chat", folder=tmp_path) as chat:
        await chat.say("echo mine\n")
        await chat.out.until("mine\n")
        await server.post("/", "echo theirs")
        await server.until("/", lambda kind, data: kind == "turn.completed" and data.get("content") == "theirs")
        await chat.say("echo mine again\n")
        await chat.hang_up()
        assert (await chat.end()).out == "mine\nmine again\n"


async def test_ctrl_c_stops_the_turn_and_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, running("chat", folder=tmp_path) as chat:
        await chat.say("count 1000\necho never sent\n")
        await chat.out.until("1 2 3")
        chat.signal(signal.SIGINT)
        done = await chat.end()
        entries = await server.transcript("/")
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert [entry["role"] for entry in entries] == ["user", "assistant"]
    assert entries[1]["content"] + "\n" == done.out


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nowhere", "no session has this path"), ("/Not/A/Path", "session: has a segment"), ("ses_x", "no such session")],
)
async def test_a_session_that_does_not_exist_is_one_line(tmp_path: Path, path: str, words: str) -> None:
    async with serving(tmp_path):
        done = await run("chat", path, folder=tmp_path, stdin="echo x\n")
    assert done.code == 1
    assert words in done.refusal


async def test_a_server_json_of_a_killed_server_is_recognised(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await kill(server.command)
        assert (tmp_path / "server.json").exists()
        done = await run("chat", folder=tmp_path)
        assert (done.code, "no server runs" in done.refusal) == (1, True)


class Terminal(Command):
    """A chat whose input and output are a terminal."""

    def __init__(self, process: trio.Process, master: trio.lowlevel.FdStream) -> None:
        super().__init__(process)
        self.master = master

    async def say(self, text: str) -> None:
        await self.master.send_all(text.encode())


@asynccontextmanager
async def terminal(
    folder: Path, kind: str = "dumb", *, ends: tuple[int, int] | None = None, **variables: str
) -> AsyncIterator[Terminal]:
    """`callboard chat` on a terminal; one that is not dumb can edit lines."""
    ours, theirs = ends or pty.openpty()
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "callboard", "chat"],
            cwd=folder,
            env=environment(TERM=kind, **variables),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        master = trio.lowlevel.FdStream(ours)
        chat = Terminal(process, master)

        async def pump() -> None:
            try:
                async for chunk in master:
                    chat.out.text += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
                    chat.out.tell()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # how Linux says that nobody has the other side any more
            chat.out.end()

        nursery.start_soon(pump)
        try:
            yield chat
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                await trio.aclose_forcefully(master)
            nursery.cancel_scope.cancel()


async def test_on_a_terminal_everybody_is_seen_and_a_turn_can_be_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "echo from before")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        async with terminal(tmp_path) as chat:
            await chat.out.until("operator: echo from before\nfront-desk: from before\n/> ")
            await server.post("/", "echo from elsewhere")
            await chat.out.until("operator: echo from elsewhere\nfrom elsewhere\n/> ")
            await chat.say("/stop\n")
            await chat.out.until("(nothing runs)")
            await chat.say("count 1000\n")
            await chat.out.until("1 2 3")
            await chat.say("/stop\n")
            await chat.out.until("(stopped)")
            await chat.say("count 1000\n")
            await chat.out.until(lambda text: text.count("1 2 3") == 2)
            chat.signal(signal.SIGINT)
            await chat.out.until(lambda text: text.count("(stopped)") == 2)
            await chat.say("echo still talking\n")
            await chat.out.until("\nstill talking\n")
            chat.signal(signal.SIGINT)
            assert await chat.process.wait() == 0
            await chat.out.until(lambda _: chat.out.over)
        text = chat.out.text
        assert "connection lost" not in text
        assert "Traceback" not in text
        assert text.count("\nstill talking\n") == 1


async def test_on_a_terminal_a_lost_connection_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as first, terminal(tmp_path) as chat:
        await chat.out.until("> ")
        await kill(first.command)
        await chat.out.until("(connection lost, trying again)")
        async with serving(tmp_path, port=first.port):
            await chat.out.until("(connected again)")
            await chat.say("echo hello\n")
            await chat.out.until("\nhello\n")
            await chat.say("\x04")
            assert await chat.process.wait() == 0


async def test_on_a_terminal_it_says_what_may_be_typed(tmp_path: Path) -> None:
    async with serving(tmp_path), terminal(tmp_path) as chat:
        await chat.out.until("Talking to /. /help lists what may be typed, /quit ends.\n/> ")
        await chat.say("/help\n")
        text = await chat.out.until("sent with one of them.\n/> ")
        assert all(f"\n{command}  " in text for command in ("/help", "/stop", "/quit", "/where", "/go PATH", "/back"))
        await chat.say("/exit\n")
        await chat.out.until("(/exit is not a command, and was not sent; /help lists them)\n/> ")
        await chat.say("/ops/deploy is a path\n")
        await chat.out.until("I know: echo TEXT")
        await chat.say("/quit\n")
        assert await chat.process.wait() == 0


async def test_a_line_can_be_edited_and_called_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with serving(tmp_path) as server, terminal(tmp_path, "xterm", HOME=str(home)) as chat:
        await chat.out.until("> ")
        left = "\x1b[D"
        await chat.say(f"echo hllo{left * 3}e\n")
        await chat.out.until(lambda text: text.endswith("hello\n/> "))
        await chat.say("\x1b[A again\n")
        await chat.out.until(lambda text: text.endswith("hello again\n/> "))
        await chat.say("echo half of a")
        await chat.out.until(lambda text: text.endswith("echo half of a"))
        await server.post("/", "echo from elsewhere")
        # What is typed so far is there again below, as if nobody had interrupted.
        await chat.out.until(
            lambda text: text.endswith("operator: echo from elsewhere\nfrom elsewhere\n/> echo half of a")
        )
        await chat.say(" line\n")
        await chat.out.until(lambda text: text.endswith("half of a line\n/> "))
        await chat.say("count 1000\n")
        await chat.out.until("1 2 3")
        await chat.say("/stop\n")
        await chat.out.until(lambda text: text.endswith("(stopped)\n/> "))
        chat.signal(signal.SIGINT)
        assert await chat.process.wait() == 0
        posts = [entry["content"] for entry in await server.transcript("/") if entry["role"] == "user"]
    assert posts == ["echo hello", "echo hello again", "echo from elsewhere", "echo half of a line", "count 1000"]
    assert list(home.iterdir()) == [], "what was typed is not kept"


async def test_the_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    async with serving(tmp_path), terminal(tmp_path, "xterm", ends=(ours, os.dup(theirs))) as chat:
        await chat.out.until("> ")
        await chat.say("x")
        await chat.out.until("> x")
        assert termios.tcgetattr(theirs) != before, "the line is being edited"
        chat.signal(signal.SIGINT)
        assert await chat.process.wait() == 0
        assert termios.tcgetattr(theirs) == before
    os.close(theirs)


@pytest.mark.spec("HND-4")
async def test_lines_from_a_pipe_follow_a_handoff(tmp_path: Path) -> None:
    lines = (
        "take me to deploy\necho deployed\n//go nowhere\n/go /research/pricing\necho priced\n/back\n/up\necho home\n"
    )
    async with serving(tmp_path) as server:
        done = await run("chat", folder=tmp_path, stdin=lines)
        assert (done.code, done.err) == (0, "")
        out = done.out.splitlines()
        assert (out[0], out[1], out[3:]) == ("Taking you to deploy.", "deployed", ["priced", "home"])
        posts = {
            path: [entry["content"] for entry in await server.transcript(path) if entry["role"] == "user"]
            for path in ("/", "/ops/deploy", "/research/pricing")
        }
        assert posts == {
            "/": ["take me to deploy", "echo home"],
            "/ops/deploy": ["echo deployed", "/go nowhere"],
            "/research/pricing": ["echo priced"],
        }
        lost = await run("chat", folder=tmp_path, stdin="/go /nowhere\n/back\necho here\n")
        assert (lost.code, lost.out) == (1, "here\n")
        assert lost.err == "(path: no session has this path)\n(there is nothing before)\n"


@pytest.mark.spec("HND-4", "HND-5")
async def test_a_terminal_shows_where_it_is_and_goes_where_it_is_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with terminal(tmp_path, "xterm") as chat:
            await chat.out.until("/> ")
            await chat.say("take me to deploy\n")
            await chat.out.until("(opened /ops/deploy)")
            await chat.out.until("/: Taking you to deploy.")
            await chat.out.until(lambda text: text.endswith("/ops/deploy> "))
            await chat.say("echo hello\n")
            await chat.out.until(lambda text: text.endswith("hello\n/ops/deploy> "))
            await chat.say("/where\n")
            await chat.out.until("(/ops/deploy, deploy)")
            await chat.say("/up\n")
            await chat.out.until("(opened /)")
            await chat.say("/up\n")
            await chat.out.until("(this is the top)")
            await chat.say("/back\n")
            await chat.out.until(lambda text: text.count("(opened /ops/deploy)") == 2)
            await chat.say("//where\n")
            await chat.out.until("I know: echo TEXT")
            await chat.say("/go /\n")
            await chat.out.until(lambda text: text.count("(opened /)") == 2)
            # Another chat in the same folder is another client: it is asked, not moved.
            async with terminal(tmp_path) as other:
                await other.out.until(lambda text: text.endswith("/> "))
                await chat.say("take me to pricing\n")
                await chat.out.until("(opened /research/pricing)")
                await other.out.until("(/ offers to take you to /research/pricing: /go /research/pricing)\n/> ")
            await chat.say("/go /\n")
            await chat.out.until(lambda text: text.count("(opened /)") == 3)
            await chat.say("/quit\n")
            assert await chat.process.wait() == 0
        # What comes while the terminal is away is found when it is back; what it has acted on moves it no more.
        async with terminal(tmp_path) as chat:
            await chat.out.until(lambda text: text.endswith("/> "))
            await chat.say("echo still here\n")
            await chat.out.until(lambda text: text.endswith("\nstill here\n/> "))
            await chat.say("/quit\n")
            assert await chat.process.wait() == 0
        await server.post("/", "take me to deploy")
        await server.until(
            "/",
            lambda kind, data: (
                kind == "turn.completed"
                and bool(data.get("handoff"))
                and data["handoff"]["path"] == "/ops/deploy"
                and data.get("seq", 0) > 6
            ),
        )
        async with terminal(tmp_path) as chat:
            await chat.out.until(lambda text: "(opened /ops/deploy)" in text and text.endswith("/ops/deploy> "))
            await chat.say("/quit\n")
            assert await chat.process.wait() == 0
