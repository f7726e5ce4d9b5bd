"""What the scenarios share: a store or a runtime that is open, sessions, and a crowd that sends.

Not here: what is measured, and any database's own ways (`databases`).
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.store import Store, open_store
from callboard.tests.bench.databases import TEXT, Place

SCOPE = Scope()
SENDER = Sender("operator", "member", "operator")
PRODUCERS = 64
OPENERS = 256
POLL_SECONDS = 0.002
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / ".links")}
"""For programs of ours that a scenario starts: they find the same package."""


async def echo(turn: callboard.Turn) -> str:
    """The do-nothing agent."""
    return TEXT


@asynccontextmanager
async def running(url: str, agent: Any = echo, *, extra: Any = None, **tuning: Any) -> AsyncIterator[callboard.Runtime]:
    """A runtime whose limits are out of the way; `agent` is called "echo"."""
    chosen = callboard.Tuning(**{"pair_per_minute": 0, "mailbox_depth": 10_000_000, **tuning})
    async with callboard.open_runtime(url, agents={"echo": agent}, tuning=chosen, extra=extra) as runtime:
        yield runtime


@asynccontextmanager
async def stored(url: str) -> AsyncIterator[Store]:
    """A store without a runtime."""
    async with open_store(url) as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


async def filled(place: Place, name: str, sessions: int, rows: int) -> str:
    """The URL of a database with our schema, `sessions` sessions and `rows` pending messages."""
    async with open_store(place.url(name)):
        pass
    await trio.to_thread.run_sync(place.fill, name, sessions, rows)
    return place.url(name)


async def open_sessions(store: Store, number: int) -> list[str]:
    """Ids of `number` new sessions of "echo"."""
    opened: list[str] = [""] * number
    numbers = count()

    async def work() -> None:
        while (index := next(numbers)) < number:
            opened[index] = (await store.apply(open_session(SCOPE, "echo"))).session.id

    async with trio.open_nursery() as nursery:
        for _ in range(min(OPENERS, number)):
            nursery.start_soon(work)
    return opened


async def flood(store: Store, sessions: list[str], total: int) -> list[float]:
    """Send `total` messages to `sessions` in turn, 64 at a time, each waiting for its receipt; the seconds that each has waited."""
    numbers = count()
    waits: list[float] = []

    async def produce() -> None:
        while (number := next(numbers)) < total:
            start = time.perf_counter()
            await store.apply(
                enqueue(SCOPE, f"session:{sessions[number % len(sessions)]}", SENDER, TEXT, depth_limit=None)
            )
            waits.append(time.perf_counter() - start)

    async with trio.open_nursery() as nursery:
        for _ in range(PRODUCERS):
            nursery.start_soon(produce)
    return waits


async def whole(runtime: callboard.Runtime, sessions: list[str], total: int) -> None:
    """Send `total` messages and wait until as many turns are committed."""
    wanted = answered(runtime) + total
    await flood(runtime.store, sessions, total)
    # Looked at and not told: whoever is told of each commit is in the way that is measured.
    while answered(runtime) < wanted:  # noqa: ASYNC110
        await trio.sleep(POLL_SECONDS)


def answered(runtime: callboard.Runtime) -> int:
    """How many turns with an answer were committed since the start."""
    return runtime.store.tallies.get(("delivered", "answered"), 0)
