"""Scenarios of a runtime at work: rates and waits, each beside its floor.

Not here: sizes, restarts, the network. Every scenario takes its place (`databases`) and whether it has to be quick.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import trio

import callboard
from callboard.tests.bench.databases import TEXT, Floor, Place
from callboard.tests.bench.kit import PRODUCERS, flood, open_sessions, running, stored, whole
from callboard.tests.bench.rows import Pair, Row, alternating, middle, timed

SPIN_SECONDS = 0.001


async def accept(place: Place, *, quick: bool) -> Row:
    """64 producers, each waiting for its receipt; 100 sessions; fsync."""
    rounds, each = (3, 1_000) if quick else (5, 6_000)
    floor = place.floor("floor", 100)
    floor.accept(1_000, batch=PRODUCERS)

    async def under() -> float:
        return each / timed(partial(floor.accept, each, batch=PRODUCERS))

    async with stored(place.url("ours")) as store:
        sessions = await open_sessions(store, 100)
        await flood(store, sessions, 1_000)

        async def ours() -> float:
            start = time.perf_counter()
            await flood(store, sessions, each)
            return each / (time.perf_counter() - start)

        rate, floor_rate = await alternating(rounds, ours, under)
    return Row("accept", rate, "messages/s", floor_rate, rounds * each)


async def turn(place: Place, *, quick: bool) -> Row:
    """Whole turns of a do-nothing agent: accept, claim, run, commit, events; 100 sessions."""
    rounds, each = (3, 600) if quick else (5, 4_000)
    return await _turns(place, "turn", sessions=100, rounds=rounds, each=each)


async def hot(place: Place, *, quick: bool) -> Row:
    """The same on one mailbox: 64 producers, and turns one after the other; the floor claims and commits each by itself."""
    rounds, each = (3, 64) if quick else (5, 640)
    return await _turns(place, "hot", sessions=1, rounds=rounds, each=each)


async def _turns(place: Place, name: str, *, sessions: int, rounds: int, each: int) -> Row:
    floor = place.floor("floor", sessions)
    _raw_turns(floor, sessions, each)

    async def under() -> float:
        return each / timed(partial(_raw_turns, floor, sessions, each))

    async with running(place.url("ours")) as runtime:
        opened = await open_sessions(runtime.store, sessions)
        await whole(runtime, opened, each)

        async def ours() -> float:
            start = time.perf_counter()
            await whole(runtime, opened, each)
            return each / (time.perf_counter() - start)

        rate, floor_rate = await alternating(rounds, ours, under)
    return Row(name, rate, "turns/s", floor_rate, rounds * each)


def _raw_turns(floor: Floor, sessions: int, total: int) -> None:
    batch = max(sessions, PRODUCERS)
    for _ in range(total // batch):
        floor.accept(batch, batch=batch)
        for _ in range(batch // sessions):
            floor.finish(floor.claim(sessions))


async def light(place: Place, *, quick: bool) -> Row:
    """p50 from the call of send to the first line of the agent, at most 50 messages a second, one at a time."""
    total = 60 if quick else 500
    floor = place.floor("floor", 100)
    waits: list[float] = []
    floors: list[float] = []
    began = trio.Event()

    async def agent(turn: callboard.Turn) -> None:
        waits.append(time.perf_counter() - sent)
        began.set()

    async with running(place.url("ours"), agent) as runtime:
        sessions = await open_sessions(runtime.store, 100)
        for number in range(total):
            # Of the three commits of a turn, two are behind the agent's first line.
            floors.append(timed(lambda: (floor.accept(1, batch=1), floor.finish(floor.claim(1)))) * 2 / 3)
            began = trio.Event()
            sent = time.perf_counter()
            await runtime.send(sessions[number % 100], TEXT)
            await began.wait()
            await trio.sleep(0.02)
    return Row("light", statistics.median(waits) * 1e3, "ms p50", statistics.median(floors) * 1e3, total)


async def busy_loop(place: Place, *, quick: bool) -> Row:
    """Accepting beside a task that never leaves the loop idle, in slices of 1 ms; the floor is the same without it."""
    rounds, each = (3, 300) if quick else (5, 3_000)
    waits: list[float] = []

    async with stored(place.url("ours")) as store:
        sessions = await open_sessions(store, 100)

        async def rate() -> float:
            start = time.perf_counter()
            waits.extend(await flood(store, sessions, each))
            return each / (time.perf_counter() - start)

        async def beside() -> float:
            waits.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_spin)
                found = await rate()
                nursery.cancel_scope.cancel()
            return found

        await rate()
        value, floor = await alternating(rounds, beside, rate)
    note = f"longest wait beside it {max(waits) * 1e3:.0f} ms"
    return Row("busy_loop", value, "messages/s", floor, rounds * each, note)


async def _spin() -> None:
    while True:
        end = time.perf_counter() + SPIN_SECONDS
        while time.perf_counter() < end:
            pass
        await trio.lowlevel.checkpoint()


async def stuck(place: Place, *, quick: bool) -> Row:
    """p99 of 1,000 sessions' turns with one agent stuck for good, against none stuck: median of 5 paired runs (RT-11)."""
    pairs, sessions, total = (1, 300, 400) if quick else (5, 1_000, 3_000)
    found: list[Pair] = []
    for number in range(pairs):
        quiet = await _p99(place.url(f"quiet{number}"), sessions, total, jam=False)
        jammed = await _p99(place.url(f"jam{number}"), sessions, total, jam=True)
        found.append((jammed, quiet))
    jammed, quiet = middle(found)
    return Row("stuck", jammed * 1e3, "ms p99", quiet * 1e3, pairs * total)


async def _p99(url: str, sessions: int, total: int, *, jam: bool) -> float:
    jam_session: list[str] = []

    async def agent(turn: callboard.Turn) -> str:
        if turn.session.id in jam_session:
            await trio.sleep_forever()
        return TEXT

    async with running(url, agent, stop_grace_seconds=0.0) as runtime:
        opened = await open_sessions(runtime.store, sessions)
        if jam:
            jam_session.append((await runtime.open_session(agent="echo")).id)
            await runtime.send(jam_session[0], "for ever")
        waits: list[float] = []
        limiter = trio.CapacityLimiter(16)

        async def one(number: int) -> None:
            async with limiter:
                start = time.perf_counter()
                receipt = await runtime.send(opened[number % sessions], TEXT)
                await runtime.wait(receipt.id)
                waits.append(time.perf_counter() - start)

        async with trio.open_nursery() as nursery:
            for number in range(total):
                nursery.start_soon(one, number)
    return statistics.quantiles(waits, n=100)[98]
