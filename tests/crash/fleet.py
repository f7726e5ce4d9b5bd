"""Processes that serve one store together: real `callboard serve`s, which are killed, paused and started again.

Here: starting them all at once, and what is done to one of them. Not here: what they are asked to do (`fleet_load`), judging.
Invariant: when the block of `fleet_of` ends, none of its processes lives, whatever happened to it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

HERE = Path(__file__).resolve().parent
LINKS = HERE.parents[1] / ".links"
START_SECONDS = 60.0
STOP_SECONDS = 30.0


@attrs.frozen
class Blow:
    """What was done to a process, named by its id, and when (seconds since the epoch)."""

    at: float
    kind: str
    pid: int


class Member:
    """One place in the fleet: a folder and, from its first start on, a port. Its process comes and goes."""

    def __init__(self, name: str, folder: Path, options: list[str], variables: dict[str, str]) -> None:
        self.name = name
        self.folder = folder
        self.url = ""
        self.pids: list[int] = []
        self._options = options
        self._variables = variables
        self._process: trio.Process | None = None

    @property
    def token(self) -> str:
        return (self.folder / "operator.token").read_text().strip()

    @property
    def pid(self) -> int:
        return self.pids[-1]

    async def start(self) -> None:
        """Start it, and wait until it serves; after the first time on the same port."""
        port = self.url.rpartition(":")[2] or "0"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CALLBOARD_")}
        with (self.folder / "log").open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "callboard", "serve", "--json", "--port", port, *self._options],
                cwd=self.folder,
                env={**kept, "PYTHONPATH": f"{LINKS}:{HERE}", **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.pids.append(self._process.pid)
        said = b""
        assert self._process.stdout is not None
        with trio.fail_after(START_SECONDS):
            # Its agents may say something before it does: they write past Python's own stdout.
            while not (found := re.search(rb'^{"url": "([^"]*)", .*}$', said, re.MULTILINE)):
                chunk = await self._process.stdout.receive_some()
                assert chunk, f"{self.name} does not serve: {(self.folder / 'log').read_text()[-2_000:]}"
                said += chunk
        self.url = found[1].decode()

    async def drain(self) -> None:
        """Read what its agents say, until it ends: a full pipe would block them."""
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(trio.ClosedResourceError):
            async for _ in self._process.stdout:
                pass

    def signal(self, number: int) -> Blow:
        """Send a signal; when it was sent."""
        os.kill(self.pid, number)
        return Blow(time.time(), signal.Signals(number).name, self.pid)

    async def kill(self) -> Blow:
        """SIGKILL, and wait for its end."""
        blow = self.signal(signal.SIGKILL)
        assert self._process is not None
        await self._process.wait()
        return blow

    async def stop(self) -> None:
        """End it in order."""
        assert self._process is not None
        self._process.terminate()
        with trio.move_on_after(STOP_SECONDS):
            await self._process.wait()
        assert self._process.returncode == 0, f"{self.name} ended with {self._process.returncode}"

    def dispose(self) -> None:
        """End it whatever it does, also if it is paused."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@attrs.frozen
class Fleet:
    """Its members, and where their agents' tools write."""

    members: list[Member]
    side: Path
    _nursery: trio.Nursery

    async def start(self, *members: Member) -> None:
        """Start some at the same time."""
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(self._start, member)

    async def _start(self, member: Member) -> None:
        await member.start()
        self._nursery.start_soon(member.drain)

    @property
    def pids(self) -> set[int]:
        return {pid for member in self.members for pid in member.pids}


@asynccontextmanager
async def fleet_of(
    size: int, url: str, folder: Path, *, team: str = "fleet_team:team", **settings: Any
) -> AsyncIterator[Fleet]:
    """So many members on the store at `url`, not started yet. `settings` are those of `callboard serve`."""
    side = folder / "fleet.side"
    variables = {
        "FLEET_SIDE": str(side),
        **{f"CALLBOARD_{name.upper()}": str(value) for name, value in settings.items()},
    }
    members: list[Member] = []
    for n in range(size):
        name = f"member-{n}"
        (folder / name).mkdir()
        members.append(Member(name, folder / name, ["--data", ".", "--store", url, "--team", team], variables))
    async with trio.open_nursery() as nursery:
        try:
            yield Fleet(members, side, nursery)
        finally:
            for member in members:
                member.dispose()
            nursery.cancel_scope.cancel()
