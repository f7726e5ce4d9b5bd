"""Scenarios of coming back: after a kill, and with very much waiting. Not here: the process that is killed (`redelivery_worker`)."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import trio

import callboard
from callboard.tests.bench.databases import Place
from callboard.tests.bench.kit import ENVIRONMENT, filled, running
from callboard.tests.bench.rows import Row, alternating, timed

WORKER = Path(__file__).with_name("redelivery_worker.py")


async def redelivery(place: Place, *, quick: bool) -> Row:
    """From when a killed process's message may be taken again to its turn's first line.

    That is from the lock of the file, or from the end of the lease where several processes share a database. The floor opens the same
    database, voids the lease and claims in raw SQL.
    """
    times: list[float] = []
    floors: list[float] = []
    for number in range(2 if quick else 7):
        name = f"killed{number}"
        await trio.to_thread.run_sync(_until_turn, place.url(name), "send")
        free = await trio.to_thread.run_sync(place.lease_end, name)
        seen = await trio.to_thread.run_sync(_until_turn, place.url(name))
        times.append(seen["turn"] - (seen["locked"] if free is None else free))
        floor = place.floor(f"raw{number}", 100)
        floor.accept(1, batch=1)
        floor.claim(1)
        floors.append(timed(floor.recover))
    return Row("redelivery", statistics.median(times), "s", statistics.median(floors), len(times))


def _until_turn(url: str, *arguments: str) -> Mapping[str, float]:
    """Start a worker, wait for its turn to begin, kill it; what it has said. Raises `RuntimeError` if it never comes to that."""
    command = [sys.executable, str(WORKER), url, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as worker:
        assert worker.stdout is not None
        seen: dict[str, float] = {}
        for line in worker.stdout:
            seen.update(json.loads(line))
            if "turn" in seen:
                break
        os.kill(worker.pid, signal.SIGKILL)
    if "turn" not in seen:
        raise RuntimeError("the worker has ended before its turn began; its stderr says why")
    return seen


async def start(place: Place, *, quick: bool) -> Row:
    """From opening a runtime on 1,000,000 pending messages of 100,000 sessions to its first turn; the floor is the same on 1,000 of each.

    The file is still in the system's cache, as it is after a restart of the process alone.
    """
    rounds, rows = (2, 10_000) if quick else (5, 1_000_000)
    large = await filled(place, "large", rows // 10, rows)
    small = await filled(place, "small", 1_000, 1_000)
    entered: list[float] = []

    async def ours() -> float:
        opened, first = await _first_turn(large)
        entered.append(opened)
        return first

    async def floor() -> float:
        return (await _first_turn(small))[1]

    value, under = await alternating(rounds, ours, floor)
    return Row("start", value, "s", under, rounds, f"the runtime is open after {statistics.median(entered):.3f} s")


async def _first_turn(url: str) -> tuple[float, float]:
    """Seconds until a runtime is open, and until its first turn runs."""
    began = trio.Event()

    async def agent(turn: callboard.Turn) -> None:
        began.set()

    before = time.perf_counter()
    async with running(url, agent):
        opened = time.perf_counter() - before
        await began.wait()
        return opened, time.perf_counter() - before
