"""What the crash tests share: workers as real processes that are killed.

Here: starting, asking, hearing and killing workers. Not here: their rows (`rows`), and what must hold of those (`invariants`).
Nothing sleeps: a test waits for a line that a worker has printed, or for its end.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

Line = dict[str, Any]
DEADLINE = 60.0
"""Seconds within which a line must come; only a hanging worker ever needs them."""
HERE = Path(__file__).resolve().parent
LINKS = HERE.parents[1] / ".links"


class Gone(Exception):
    """The worker ended before it said what was waited for."""


class Refused(Exception):
    """A command was refused; `line` is the reply."""

    def __init__(self, line: Line) -> None:
        super().__init__(f"{line['error']}: {line['message']}")
        self.line = line
        self.code = line["error"]


class Worker:
    """One process. `said` are its lines so far, also those that a killed one had printed before."""

    def __init__(self, zygote: Zygote, program: str) -> None:
        self._zygote = zygote
        self.pid, stdin, stdout = zygote.fork(program)
        self.said: list[Line] = []
        self.ended = trio.Event()
        self._stdin = trio.lowlevel.FdStream(stdin)
        self._stdout = trio.lowlevel.FdStream(stdout)
        self._code: int | None = None
        self._numbers = 0
        self._news = trio.Event()

    async def pump(self) -> None:
        """Read until the process has no stdout any more. Lines are whole: a killed worker's last one is printed or not."""
        waiting = b""
        async with self._stdin, self._stdout:
            async for chunk in self._stdout:
                *lines, waiting = (waiting + chunk).split(b"\n")
                self.said += [json.loads(line) for line in lines]
                self._tell()
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def ask(self, do: str, **fields: Any) -> Line:
        """Give a command and wait for its reply. Raises `Refused`, `Gone`."""
        reply = await self.heard("reply", n=await self.tell(do, **fields))
        if "error" in reply:
            raise Refused(reply)
        return reply

    async def tell(self, do: str, **fields: Any) -> int:
        """Give a command and wait for nothing; returns its number. A worker that is gone is found out by whoever waits for it."""
        self._numbers += 1
        number = self._numbers
        line = json.dumps({"do": do, "n": number, **fields}).encode() + b"\n"
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stdin.send_all(line)
        return number

    async def give(self, job: Line) -> None:
        """Give the one line that a program without commands takes."""
        await self._stdin.send_all(json.dumps(job).encode() + b"\n")

    async def dies(self, do: str, **fields: Any) -> None:
        """Give a command, and wait until the process has killed itself at the trap that it was opened with."""
        await self.tell(do, **fields)
        assert await self.gone() == -signal.SIGKILL

    async def heard(self, said: str, **fields: Any) -> Line:
        """The first line that says this with these fields, whether it has come or is to come. Raises `Gone`."""
        found: list[Line] = await self.until(lambda: self.lines(said, **fields)[:1])
        return found[0]

    async def count(self, n: int, *kinds: str) -> None:
        """Wait until it has said `n` lines of these kinds. Raises `Gone`."""
        await self.until(lambda: sum(line["said"] in kinds for line in self.said) >= n)

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something true can be seen in `said`, and return that. Raises `Gone`."""
        with trio.fail_after(DEADLINE):
            while not (found := holds()):
                if self.ended.is_set():
                    raise Gone(f"worker {self.pid} ended; its last lines: {self.said[-5:]}")
                await self._news.wait()
        return found

    def lines(self, said: str, **fields: Any) -> list[Line]:
        """The lines so far that say this with these fields."""
        return [
            line
            for line in self.said
            if line["said"] == said and all(line.get(name) == value for name, value in fields.items())
        ]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and read what it had still said."""
        self.signal(signal.SIGKILL)
        assert await self.gone() == -signal.SIGKILL

    async def gone(self) -> int:
        """Wait for its end; the exit code, or minus the signal."""
        with trio.fail_after(DEADLINE):
            await self.ended.wait()
        return self.reap()

    def reap(self) -> int:
        """Its exit code; waits without yielding, so its end must be near."""
        if self._code is None:
            self._code = self._zygote.wait(self.pid)
        return self._code

    def dispose(self) -> None:
        """End it whatever it does, also if it is paused."""
        if self._code is None:
            self.signal(signal.SIGKILL)
            self.reap()

    async def close(self) -> None:
        """Stop its runtime cleanly, then the process."""
        await self.ask("close")
        self.signal(signal.SIGTERM)
        assert await self.gone() == 0


class Zygote:
    """The process that all workers are forked from. See `worker_fork`."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", str(HERE / "worker.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                # What is unordered stands in the same order in all of them, so that a day can be repeated to the step.
                env={**os.environ, "PYTHONPATH": str(LINKS), "PYTHONHASHSEED": "0"},
            )

    def fork(self, program: str) -> tuple[int, int, int]:
        """A new worker, which runs `commands` or `day`: its pid, and our ends of its stdin and stdout."""
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        socket.send_fds(self._control, [b"fork " + program.encode()], [stdin, stdout])
        os.close(stdin)
        os.close(stdout)
        return self._answer(), to_stdin, from_stdout

    def wait(self, pid: int) -> int:
        """The exit code of a worker that has ended or is about to, or minus its signal."""
        self._control.send(b"wait %d" % pid)
        return self._answer()

    def _answer(self) -> int:
        answer = self._control.recv(64)
        if not answer:
            raise Gone("the process that forks workers has ended; its stderr says why")
        return int(answer)

    def close(self) -> None:
        self._control.close()
        self._process.wait(DEADLINE)


class Workers:
    """Starts workers; those that still run at the end of the test are killed."""

    def __init__(self, zygote: Zygote, nursery: trio.Nursery) -> None:
        self._zygote = zygote
        self._nursery = nursery
        self._started: list[Worker] = []

    def start(self, program: str = "commands") -> Worker:
        """A worker that has opened nothing yet."""
        worker = Worker(self._zygote, program)
        self._started.append(worker)
        self._nursery.start_soon(worker.pump)
        return worker

    async def open(self, file: Path, **options: Any) -> Worker:
        """A worker that has opened `file`; see the command `open` for the options. Raises `Refused`, `Gone`."""
        worker = self.start()
        await worker.ask("open", path=str(file), **options)
        return worker

    def end(self) -> None:
        for worker in self._started:
            worker.dispose()


@asynccontextmanager
async def workers_of(zygote: Zygote) -> AsyncIterator[Workers]:
    async with trio.open_nursery() as nursery:
        workers = Workers(zygote, nursery)
        try:
            yield workers
        finally:
            workers.end()
            nursery.cancel_scope.cancel()
