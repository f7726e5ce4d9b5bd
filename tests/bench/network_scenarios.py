"""Scenarios over sockets. The clients are a process of their own (`subscribers`): processor time that is measured here is the server's.

Invariant: every frame that is counted was received by a client.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


async def fanout(place: Place, *, quick: bool) -> Row:
    """A token of 80 bytes to 1,000 websockets that follow one session: frames a second, from its commit's start to the last client.

    Each token is committed by itself before the next one. The floor sends the same bytes to as many plain sockets, one blocking send a
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
        session = await runtime.open_session(agent="echo")
        address = urlsplit(front.url)
        async with _crowd(address.port or 0, clients, frames, SECRET, session.id) as crowd, _plain(clients, frames) as raw:
            await runtime.send(session.id, "stream")

            async def ours() -> float:
                before, start = time.process_time(), time.perf_counter()
                await ask.send(each)
                await crowd.all()
                seconds = time.perf_counter() - start
                cpu.append((time.process_time() - before) / frames)
                return frames / seconds

            async def floor() -> float:
                before, start = time.process_time(), time.perf_counter()
                raw.send(each)
                await raw.crowd.all()
                seconds = time.perf_counter() - start
                raw_cpu.append((time.process_time() - before) / frames)
                return frames / seconds

            await ours()
            cpu.clear()
            rate, floor_rate = await alternating(rounds, ours, floor)
            ask.close()
    note = f"CPU {_median(cpu) * 1e6:.1f} us a frame, floor {_median(raw_cpu) * 1e6:.1f} us"
    return Row("fanout", rate, "frames/s", floor_rate, rounds * frames, note)
