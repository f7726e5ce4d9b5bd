"""Scenarios of size: what grows with rows and sessions, and what does not.

Memory is what Python's allocator has given out (`tracemalloc`), so the databases' caches, which are bounded and the same for any number
of sessions, are not in it. Not here: speed, drawing (`plot`).
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

import trio
import trio.testing

import callboard
from callboard.storage.ops import Claim
from callboard.tests.bench.databases import Place
from callboard.tests.bench.kit import POLL_SECONDS, filled, flood, open_sessions, running, stored, whole
from callboard.tests.bench.rows import Row

CLAIMED = 10
"""Mailboxes to a claim."""
TURN_EVERY = 10
"""Of the sessions at rest, one in so many has had a turn; the others were opened."""


async def claim(place: Place, *, quick: bool) -> Row:
    """Cost of claiming a mailbox among 100,000 sessions and 1,000,000 pending rows, against 1,000 sessions and rows (RT-13)."""
    rounds = 40
    large = 100_000 if quick else 1_000_000
    costs = await claim_costs(place, (1_000, large), rounds)
    return Row("claim", costs[large], "us/claim", costs[1_000], rounds * CLAIMED)


async def claim_costs(place: Place, sizes: Sequence[int], rounds: int) -> dict[int, float]:
    """Median microseconds to claim one mailbox, ten at a time, by how many pending rows there are. The sizes alternate.

    There are 1,000 sessions, or one for every ten rows if that is more.
    """
    times: dict[int, list[float]] = {rows: [] for rows in sizes}
    async with AsyncExitStack() as stack:
        stores = {
            rows: await stack.enter_async_context(
                stored(await filled(place, f"claim{rows}", max(1_000, rows // 10), rows))
            )
            for rows in sizes
        }
        for nonce in range(rounds):
            for rows, store in stores.items():
                start = time.perf_counter()
                await store.apply(Claim("bench", f"n{nonce}", CLAIMED, 300.0, frozenset({"echo"})))
                times[rows].append((time.perf_counter() - start) / CLAIMED)
    return {rows: statistics.median(found) * 1e6 for rows, found in times.items()}


async def rest(place: Place, *, quick: bool) -> Row:
    """Bytes that a session at rest keeps in the process; the floor is a bare task that waits, which it would have if it stayed.

    Counted over 100,000 sessions that were opened, a tenth of which have had a turn.
    """
    number = 2_000 if quick else 100_000
    with _traced():
        async with running(place.url("ours")) as runtime:
            await _come_and_go(runtime, max(1_000, number // 10))
            memory, tasks = _memory(), _tasks()
            await _come_and_go(runtime, number)
            grown, more = _memory() - memory, _tasks() - tasks
    return Row("rest", grown / number, "bytes", await _bare_task(number // 10), number, f"{more} more tasks")


async def _come_and_go(runtime: callboard.Runtime, number: int) -> None:
    """Open sessions, run a turn in every tenth, and wait until nothing runs."""
    sessions = (await open_sessions(runtime.store, number))[::TURN_EVERY]
    await whole(runtime, sessions, len(sessions))
    while runtime.dispatcher.live:  # noqa: ASYNC110 (nobody is told when the last one has ended)
        await trio.sleep(POLL_SECONDS)


async def resident(place: Place, *, quick: bool) -> Row:
    """Bytes of an actor whose turn waits for something; the floor is a bare task that does."""
    number = 300 if quick else 2_000
    missing = 0
    all_wait, release = trio.Event(), trio.Event()

    async def agent(turn: callboard.Turn) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            all_wait.set()
        await release.wait()

    async def begin(sessions: list[str]) -> None:
        nonlocal missing, all_wait
        missing, all_wait = len(sessions), trio.Event()
        await flood(runtime.store, sessions, len(sessions))
        await all_wait.wait()

    with _traced():
        async with running(place.url("ours"), agent) as runtime:
            sessions = await open_sessions(runtime.store, 100 + number)
            await begin(sessions[:100])
            memory = _memory()
            await begin(sessions[100:])
            grown = _memory() - memory
            release.set()
    return Row("resident", grown / number, "bytes", await _bare_task(number), number)


async def _bare_task(number: int) -> float:
    """Bytes of a task that waits for an event."""
    release = trio.Event()
    with _traced():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(release.wait)
            await trio.testing.wait_all_tasks_blocked()
            memory = _memory()
            for _ in range(number):
                nursery.start_soon(release.wait)
            await trio.testing.wait_all_tasks_blocked()
            grown = _memory() - memory
            release.set()
    return grown / number


@contextmanager
def _traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living
