"""The scenarios: each measures Callboard and its floor in the same run. Not here: printing (`run`), raw SQLite (`floor`).

A `Row`'s ratio is value / floor: for rates higher is better, for times lower is.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import trio
from floor import TEXT, Floor

import callboard
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.ops import Claim
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.sqlite.migrations import migrate
from callboard.storage.store import Store, open_store

SCOPE = Scope()
SENDER = Sender("operator", "member", "operator")
PRODUCERS = 64
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".links")}


@attrs.frozen
class Row:
    """One line of the table. `n` is how many operations were measured."""

    name: str
    value: float
    unit: str
    floor: float
    n: int

    @property
    def ratio(self) -> float:
        return self.value / self.floor if self.floor else 0.0


async def echo(turn: callboard.Turn) -> str:
    """The do-nothing agent."""
    return TEXT


@asynccontextmanager
async def running(file: Path, **agents: Any) -> AsyncIterator[callboard.Runtime]:
    tuning = callboard.Tuning(pair_per_minute=0, mailbox_depth=10_000_000)
    async with callboard.open_runtime(f"sqlite:///{file}", agents=agents or {"echo": echo}, tuning=tuning) as runtime:
        yield runtime


@asynccontextmanager
async def stored(file: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{file}") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


async def _sessions(store: Store, number: int) -> list[str]:
    opened: list[str] = [""] * number

    async def one(index: int) -> None:
        opened[index] = (await store.apply(open_session(SCOPE, "echo"))).session.id

    async with trio.open_nursery() as nursery:
        for index in range(number):
            nursery.start_soon(one, index)
    return opened


async def _flood(store: Store, sessions: list[str], total: int) -> None:
    numbers = count()

    async def produce() -> None:
        while (number := next(numbers)) < total:
            await store.apply(
                enqueue(SCOPE, f"session:{sessions[number % len(sessions)]}", SENDER, TEXT, depth_limit=None)
            )

    async with trio.open_nursery() as nursery:
        for _ in range(PRODUCERS):
            nursery.start_soon(produce)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def accept(folder: Path, *, quick: bool) -> Row:
    """64 producers, each waiting for its receipt; 100 sessions; fsync."""
    total = 5_000 if quick else 30_000
    floor = Floor(folder / "floor.db", 100)
    floor.accept(1_000, batch=PRODUCERS)
    floor_rate = total / _timed(partial(floor.accept, total, batch=PRODUCERS))
    floor.close()
    async with stored(folder / "ours.db") as store:
        sessions = await _sessions(store, 100)
        await _flood(store, sessions, 1_000)
        start = time.perf_counter()
        await _flood(store, sessions, total)
        rate = total / (time.perf_counter() - start)
    return Row("accept", rate, "messages/s", floor_rate, total)


async def turn(folder: Path, *, quick: bool) -> Row:
    """Whole turns of a do-nothing agent: accept, claim, run, commit, events; 100 sessions."""
    total = 3_000 if quick else 20_000
    floor = Floor(folder / "floor.db", 100)

    def whole(number: int) -> None:
        for _ in range(number // 100):
            floor.accept(100, batch=100)
            floor.finish(floor.claim(100))

    whole(1_000)
    floor_rate = total / _timed(partial(whole, total))
    floor.close()
    async with running(folder / "ours.db") as runtime:
        sessions = await _sessions(runtime.store, 100)
        await _whole(runtime, sessions, 1_000)
        start = time.perf_counter()
        await _whole(runtime, sessions, total)
        rate = total / (time.perf_counter() - start)
    return Row("turn", rate, "turns/s", floor_rate, total)


async def _whole(runtime: callboard.Runtime, sessions: list[str], total: int) -> None:
    """Send `total` messages and wait until each session's last one is final."""
    await _flood(runtime.store, sessions, total)
    for session in sessions:
        newest = (await runtime.store.reads.inbox(SCOPE, target=session, limit=1)).items[0]
        await runtime.wait(newest.id)


async def light(folder: Path, *, quick: bool) -> Row:
    """p50 from the call of send to the first line of the agent, 50 messages a second, one at a time."""
    total = 100 if quick else 500
    floor = Floor(folder / "floor.db", 100)
    floors: list[float] = []
    for _ in range(total):
        floors.append(_timed(lambda: (floor.accept(1, batch=1), floor.finish(floor.claim(1)))) * 2 / 3)
        await trio.sleep(0.02)
    floor.close()
    started: list[float] = []

    async def agent(turn: callboard.Turn) -> None:
        started.append(time.perf_counter())

    waits: list[float] = []
    async with running(folder / "ours.db", echo=agent) as runtime:
        sessions = await _sessions(runtime.store, 100)
        for number in range(total):
            sent = time.perf_counter()
            await runtime.send(sessions[number % 100], TEXT)
            await trio.sleep(0.02)
            waits.append(started[-1] - sent)
    return Row("light", statistics.median(waits) * 1e3, "ms p50", statistics.median(floors) * 1e3, total)


async def claim(folder: Path, *, quick: bool) -> Row:
    """Cost of claiming one mailbox among 100,000 sessions and 1,000,000 pending rows, against 1,000 sessions and rows (RT-13)."""
    big = (10_000, 100_000) if quick else (100_000, 1_000_000)
    rounds = 40
    costs: list[float] = []
    for number, (sessions, rows) in enumerate(((1_000, 1_000), big)):
        file = folder / f"claim{number}.db"
        fill(file, sessions, rows)
        async with stored(file) as store:
            times: list[float] = []
            for nonce in range(rounds):
                start = time.perf_counter()
                await store.apply(Claim("bench", f"n{nonce}", 10, 300.0, frozenset({"echo"})))
                times.append((time.perf_counter() - start) / 10)
            costs.append(statistics.median(times) * 1e6)
    return Row("claim", costs[1], "us/claim", costs[0], rounds * 10)


def fill(file: Path, sessions: int, rows: int) -> None:
    """A store with pending rows, made with raw SQL after our own migrations."""

    conn = sqlite3.connect(file, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    migrate(conn)
    conn.execute("BEGIN")
    conn.execute("INSERT INTO scope (id, tenant, project) VALUES (1, 'default', 'default')")
    each = rows // sessions
    conn.executemany(
        "INSERT INTO mailbox (id, scope, recipient, due, last_seq, depth, updated_at) VALUES (?, 1, ?, ?, ?, ?, 0)",
        ((n, f"session:ses_{n}", 1000.0 + n / 1e6, each, each) for n in range(1, sessions + 1)),
    )
    conn.executemany(
        "INSERT INTO session (id, scope, mailbox, kind, agent, created_at) VALUES (?, 1, ?, 'interactive', 'echo', 0)",
        ((f"ses_{n}", n) for n in range(1, sessions + 1)),
    )
    conn.executemany(
        """INSERT INTO message (id, scope, mailbox, uid, principal, digest, transport, sender, sender_kind, sender_label, kind, wakes,
        steers, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops) VALUES (?, 1, ?, ?, 'p', x'00', 'local',
        'operator', 'member', 'op', 'member_message', 1, 1, 'pending', ?, 5, 1000, 1000, 1000, 'c', 0)""",
        ((i + 1, i % sessions + 1, f"msg_{i:032x}", i // sessions + 1) for i in range(rows)),
    )
    conn.executemany(
        "INSERT INTO entry (scope, mailbox, seq, role, content, message, at) VALUES (1, ?, ?, 'user', ?, ?, 1000)",
        ((i % sessions + 1, i // sessions + 1, TEXT, i + 1) for i in range(rows)),
    )
    conn.execute("COMMIT")
    conn.close()


async def stuck(folder: Path, *, quick: bool) -> Row:
    """p99 of 1,000 sessions' turns with one agent stuck for good, against none stuck: median of 5 paired runs (RT-11)."""
    pairs, per_run = (2, 1_000) if quick else (5, 3_000)
    ratios: list[tuple[float, float]] = []
    for number in range(pairs):
        quiet = await _p99(folder / f"quiet{number}.db", per_run, jam=False)
        jammed = await _p99(folder / f"jam{number}.db", per_run, jam=True)
        ratios.append((jammed, quiet))
    jammed, quiet = sorted(ratios, key=lambda pair: pair[0] / pair[1])[len(ratios) // 2]
    return Row("stuck", jammed * 1e3, "ms p99", quiet * 1e3, pairs * per_run)


async def _p99(file: Path, total: int, *, jam: bool) -> float:
    async def jammed(turn: callboard.Turn) -> None:
        await trio.sleep_forever()

    tuning = callboard.Tuning(stop_grace_seconds=0.0)
    agents = {"echo": echo, "jammed": jammed}
    async with callboard.open_runtime(f"sqlite:///{file}", agents=agents, tuning=tuning) as runtime:
        sessions = await _sessions(runtime.store, 1_000)
        if jam:
            stuck_session = await runtime.open_session(agent="jammed")
            await runtime.send(stuck_session.id, "for ever")
        waits: list[float] = []

        async def one(number: int) -> None:
            start = time.perf_counter()
            receipt = await runtime.send(sessions[number % 1_000], TEXT)
            await runtime.wait(receipt.id)
            waits.append(time.perf_counter() - start)

        limiter = trio.CapacityLimiter(16)

        async def limited(number: int) -> None:
            async with limiter:
                await one(number)

        async with trio.open_nursery() as nursery:
            for number in range(total):
                nursery.start_soon(limited, number)
    return statistics.quantiles(waits, n=100)[98]


WORKER = """
import sys, time, json, trio, callboard
from callboard.storage.sqlite import lock
acquire, locked = lock.acquire_lock, []
async def agent(turn):
    print(json.dumps({"turn": time.monotonic()}), flush=True)
    await trio.sleep_forever()
async def main(file):
    from callboard.storage.sqlite import driver
    def timed(path):
        held = acquire(path)
        print(json.dumps({"locked": time.monotonic()}), flush=True)
        return held
    driver.acquire_lock = timed
    async with callboard.open_runtime(f"sqlite:///{file}", agents={"echo": agent}) as runtime:
        if len(sys.argv) > 2:
            session = await runtime.open_session(agent="echo")
            await runtime.send(session.id, "once")
        await trio.sleep_forever()
trio.run(main, sys.argv[1])
"""


async def redelivery(folder: Path, *, quick: bool) -> Row:
    """From the file's lock to the first redelivered turn, after kill -9; the floor is opening the file and claiming with raw SQLite."""
    times: list[float] = []
    floors: list[float] = []
    for number in range(3 if quick else 7):
        file = folder / f"killed{number}.db"
        await trio.to_thread.run_sync(_until_turn, file, True)
        times.append(await trio.to_thread.run_sync(_until_turn, file, False))
        raw = folder / f"raw{number}.db"
        floor = Floor(raw, 100)
        floor.accept(1, batch=1)
        floor.claim(1)
        floor.close()
        floors.append(_timed(partial(_raw_redelivery, raw)))
    return Row("redelivery", statistics.median(times), "s", statistics.median(floors), len(times))


def _until_turn(file: Path, first: bool) -> float:
    """Start a worker, wait for its turn to begin, kill it; the seconds from lock to turn, on the worker's own clock."""
    arguments = [sys.executable, "-c", WORKER, str(file), *(["send"] if first else [])]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as worker:
        assert worker.stdout is not None
        seen: dict[str, float] = {}
        for line in worker.stdout:
            seen.update(json.loads(line))
            if "turn" in seen:
                break
        os.kill(worker.pid, signal.SIGKILL)
    return seen["turn"] - seen["locked"]


def _raw_redelivery(file: Path) -> None:
    conn = sqlite3.connect(file, isolation_level=None)
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("UPDATE mailbox SET due = 0, holder = NULL WHERE holder IS NOT NULL")
    conn.execute("COMMIT")
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("UPDATE mailbox SET due = ?, epoch = epoch + 1, holder = 'floor' WHERE due <= 1", (time.time() + 30,))
    conn.execute("COMMIT")
    conn.close()


SCENARIOS = {
    "accept": accept,
    "turn": turn,
    "light": light,
    "claim": claim,
    "redelivery": redelivery,
    "stuck": stuck,
}
