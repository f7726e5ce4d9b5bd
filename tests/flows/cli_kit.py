"""What the tests of the command line share: `callboard` as real child processes, heard line by line.

Not here: any judgement. Nothing sleeps: a test waits for a line of output, for an event of a session, or for the end of a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

from callboard import client

LINKS = Path(__file__).resolve().parents[2] / ".links"
DEADLINE = 60.0
"""Seconds within which a line or an end must come; only a hanging process ever needs them."""
Local = Callable[..., "Done"]
"""The fixture `local`: a command run in this process."""
Here = Callable[..., Awaitable["Done"]]
"""The fixture `here`: the same from a test that runs in Trio."""
TERMINAL = ("turn.completed", "turn.failed", "turn.stopped")


@attrs.frozen
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of JSON on stdout."""
        assert (self.code, self.out.count("\n")) == (0, 1), self
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        """What it was refused with: exactly one line on stderr and nothing on stdout."""
        assert self.out == "", self
        assert self.err.startswith("callboard: "), self
        assert self.err.count("\n") == 1, self
        assert "Traceback" not in self.err
        return self.err.removeprefix("callboard: ").rstrip("\n")


class Heard:
    """The output of a running process, as far as it has come."""

    def __init__(self) -> None:
        self.text = ""
        self.over = False
        self._news = trio.Event()

    async def pump(self, stream: trio.abc.ReceiveStream) -> None:
        async with stream:
            async for chunk in stream:
                self.text += bytes(chunk).decode("utf-8", "replace")
                self.tell()
        self.end()

    def end(self) -> None:
        """Nothing more will come."""
        self.over = True
        self.tell()

    def tell(self) -> None:
        """Something has come."""
        self._news.set()
        self._news = trio.Event()

    async def until(self, found: str | Callable[[str], bool]) -> str:
        """Wait for a text (or what a function finds in it); returns all output so far."""
        with trio.fail_after(DEADLINE):
            while not (found(self.text) if callable(found) else found in self.text):
                assert not self.over, f"it ended after {self.text!r}"
                await self._news.wait()
        return self.text

    async def line(self) -> str:
        """The first line."""
        return (await self.until("\n")).partition("\n")[0]


class Command:
    """One running `callboard`."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.out, self.err = Heard(), Heard()

    async def say(self, text: str) -> None:
        """Type something."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(text.encode())

    async def hang_up(self) -> None:
        """End its input."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def end(self) -> Done:
        """Wait until it has ended."""
        with trio.fail_after(DEADLINE):
            code = await self.process.wait()
            await self.out.until(lambda _: self.out.over)
            await self.err.until(lambda _: self.err.over)
        return Done(code, self.out.text, self.err.text)


def environment(**variables: str) -> dict[str, str]:
    """What a command is run with: nothing of a setting that the test's own surroundings have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CALLBOARD_")}
    return {**kept, "PYTHONPATH": str(LINKS), "PYTHONUNBUFFERED": "1", **variables}


@asynccontextmanager
async def running(
    *arguments: str, folder: Path, prelude: Sequence[str] = ("-m", "callboard"), **variables: str
) -> AsyncIterator[Command]:
    """A command in `folder`, killed at the end of the block if it still runs."""
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [sys.executable, *prelude, *arguments],
            cwd=folder,
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        command = Command(process)
        assert process.stdout is not None
        assert process.stderr is not None
        nursery.start_soon(command.out.pump, process.stdout)
        nursery.start_soon(command.err.pump, process.stderr)
        try:
            yield command
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                assert process.stdin is not None
                await trio.aclose_forcefully(process.stdin)
            # Nothing may await after this: a `Cancelled` would take the place of the failure that is on its way out.
            nursery.cancel_scope.cancel()


async def run(*arguments: str, folder: Path, stdin: str = "", **variables: str) -> Done:
    """Run a command to its end."""
    async with running(*arguments, folder=folder, **variables) as command:
        with suppress(trio.BrokenResourceError):
            await command.say(stdin)
        await command.hang_up()
        return await command.end()


@attrs.frozen
class Serving:
    """A `callboard serve --json` that serves."""

    command: Command
    url: str
    pid: int
    token_file: Path
    folder: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def http(self) -> httpx.AsyncClient:
        token = self.token_file.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=DEADLINE, trust_env=False)

    async def session(self, path: str) -> str:
        """The id of the session at a path."""
        async with self.http as http:
            return (await http.get("/v1/sessions", params={"path": path})).json()["sessions"][0]["id"]

    async def transcript(self, path: str) -> list[dict[str, Any]]:
        session = await self.session(path)
        async with self.http as http:
            return (await http.get(f"/v1/sessions/{session}/transcript")).json()["entries"]

    async def post(self, path: str, content: str) -> str:
        """Post a message; returns its id."""
        session = await self.session(path)
        async with self.http as http:
            answer = await http.post(f"/v1/sessions/{session}/messages", json={"content": content})
            assert answer.status_code == 202, answer.text
            return answer.json()["message_id"]

    async def until(self, path: str, found: Callable[[str, dict[str, Any]], bool]) -> None:
        """Wait for an event of a session (kind, data)."""
        session = await self.session(path)
        with trio.fail_after(DEADLINE):
            async with client.connect(self.url, self.token_file.read_text().strip()) as board:
                async for event in board.subscribe(session):
                    if found(event.kind, event.data):
                        return
        raise AssertionError("a subscription never ends by itself")


async def announced(command: Command, folder: Path) -> Serving:
    """Wait until a `callboard serve --json` serves."""
    try:
        first = json.loads(await command.out.line())
    except AssertionError:
        raise AssertionError(f"it does not serve: {command.err.text}") from None
    return Serving(command, first["url"], first["pid"], Path(first["token_file"]), folder)


@asynccontextmanager
async def serving(folder: Path, *arguments: str, port: int = 0, **variables: str) -> AsyncIterator[Serving]:
    """A server in `folder` until the end of the block; then it is stopped, and must end cleanly if it still runs."""
    given = ("serve", "--json", "--port", str(port), *arguments)
    async with running(*given, folder=folder, **variables) as command:
        yield await announced(command, folder)
        if command.process.returncode is None:
            command.signal(signal.SIGTERM)
            done = await command.end()
            assert done.code == 0, done
