"""Scenarios over sockets. The clients are a process of their own (`subscribers`): processor time that is measured here is the server's.

Invariant: every frame that is counted was received by a client.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import trio

import callboard
from callboard.actors.edges.edge import Pace
from callboard.actors.edges.subscriptions import encode
from callboard.storage.model.events import Event
from callboard.supervisors.front import Front, FrontSettings
from callboard.tests.bench.databases import Place
from callboard.tests.bench.kit import ENVIRONMENT, running
from callboard.tests.bench.rows import Row, alternating

CLIENTS = Path(__file__).with_name("subscribers.py")
HOST = "127.0.0.1"
TOKEN = "x" * 80
SECRET = "b" * 43
END_SECONDS = 5.0
ID = "0" * 32
DATA = {"turn_id": f"turn_{ID}", "message_id": f"msg_{ID}", "attempt": 1, "text": TOKEN}
FRAME = encode(Event(f"ses_{ID}", 1_000, "turn.token", DATA, 0.0))
"""What each client is sent for a token."""


async def fanout(place: Place, *, quick: bool) -> Row:
    """A token of 80 bytes to 1,000 websockets that follow one session: frames a second, from the first commit to the last client.

    Each token is committed by itself before the next one is. The floor sends the same bytes to as many plain sockets, one blocking send a
    frame. The note says what processor time a frame costs the server in all, commits and reads included.
    """
    clients, rounds, each = (250, 3, 40) if quick else (1_000, 5, 200)
    frames = clients * each
    ask, asked = trio.open_memory_channel[int](1)
    cpu: list[float] = []
    raw_cpu: list[float] = []

    async def agent(turn: callboard.Turn) -> None:
        async for tokens in asked:
            for _ in range(tokens):
                await turn.emit(TOKEN)
                await turn.flush()

    front = Front(FrontSettings(token=SECRET, port=0, pace=Pace(ping=600.0)))
    async with running(place.url("ours"), agent, extra=front) as runtime, ask:
        session = (await runtime.open_session(agent="echo")).id
        port = urlsplit(front.url).port
        async with _crowd(port, clients, frames, SECRET, session) as crowd, _plain(clients, frames) as (raw, sockets):
            await runtime.send(session, "stream")

            async def ours() -> float:
                before, start = time.process_time(), time.perf_counter()
                await ask.send(each)
                await crowd.line()
                cpu.append((time.process_time() - before) / frames)
                return frames / (time.perf_counter() - start)

            async def floor() -> float:
                before, start = time.process_time(), time.perf_counter()
                for _ in range(each):
                    for connected in sockets:
                        connected.sendall(FRAME)
                raw_cpu.append((time.process_time() - before) / frames)
                await raw.line()
                return frames / (time.perf_counter() - start)

            await ours()
            cpu.clear()
            rate, floor_rate = await alternating(rounds, ours, floor)
            ask.close()
    note = f"CPU {statistics.median(cpu) * 1e6:.1f} us a frame, floor {statistics.median(raw_cpu) * 1e6:.1f} us"
    return Row("fanout", rate, "frames/s", floor_rate, rounds * frames, note)


class _Crowd:
    """The clients' process."""

    def __init__(self, said: trio.abc.ReceiveStream) -> None:
        self._said = said
        self._read = b""

    async def line(self) -> str:
        """The next line that it prints. Raises `RuntimeError` if it has ended: what it has said on stderr tells why."""
        while b"\n" not in self._read:
            data = await self._said.receive_some()
            if not data:
                raise RuntimeError("the clients have ended before they had all their frames")
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


@asynccontextmanager
async def _crowd(port: int | None, clients: int, frames: int, *follow: str) -> AsyncIterator[_Crowd]:
    command = [sys.executable, str(CLIENTS), HOST, str(port), str(clients), str(frames), *follow]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
    try:
        assert process.stdout is not None
        crowd = _Crowd(process.stdout)
        await crowd.line()
        yield crowd
    finally:
        process.kill()
        with trio.move_on_after(END_SECONDS, shield=True):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()


@asynccontextmanager
async def _plain(clients: int, frames: int) -> AsyncIterator[tuple[_Crowd, list[socket.socket]]]:
    """Clients of plain sockets, and our ends of these."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=clients))
        async with _crowd(listener.getsockname()[1], clients, frames) as crowd:
            sockets = [stack.enter_context(listener.accept()[0]) for _ in range(clients)]
            for connected in sockets:
                # As Trio sets it. Without, the kernel holds frames back until earlier ones are acknowledged, and sends many at once.
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield crowd, sockets
