"""What the tests do to a worker from inside: die or stop at a chosen commit, step its wall clock, tell what was committed.

Runs in the worker process only. Here: everything that reaches into the store. Not here: agents (`worker_agents`), commands (`worker`).
A commit is one `COMMIT` of the writing connection; a claim that finds nothing is not counted, because when it comes depends on time.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import attrs
import trio

IDLE_CHANGES = 2
"""Rows that a claim of nothing changes: its nonce, and now and then the clock's floor."""


def say(said: str, **fields: Any) -> None:
    """One line to the test, whole or not at all even under SIGKILL (the kernel does not split short writes to a pipe)."""
    os.write(1, json.dumps({"said": said, **fields}).encode() + b"\n")


def strike(number: int) -> None:
    """A signal to this very thread: one to the process may be seen by another thread first, and this one would go on for a moment."""
    signal.pthread_kill(threading.get_ident(), number)


class Wall:
    """The wall clock of this process, which the tests may step. To be installed before callboard is imported."""

    def __init__(self) -> None:
        self._real = time.time
        self._real_ns = time.time_ns
        self.skew = 0.0

    def install(self) -> None:
        time.time = lambda: self._real() + self.skew
        time.time_ns = lambda: self._real_ns() + int(self.skew * 1e9)


@attrs.define
class Trap:
    """What happens at the `n`-th commit (of batches that hold an op named `op`, if given), just before or just after it."""

    where: str = "never"
    n: int = 0
    op: str | None = None
    signal: int = signal.SIGKILL
    count: int = attrs.field(default=0, init=False)

    def reach(self, where: str) -> None:
        if where == self.where and self.count == self.n:
            if self.signal != signal.SIGKILL:
                say("trapped")
            strike(self.signal)


class _Watched:
    """A connection that tells the trap of its commits."""

    def __init__(self, connection: sqlite3.Connection, ops: Sequence[Any], trap: Trap) -> None:
        self._connection = connection
        self._ops = [type(op).__name__ for op in ops]
        self._trap = trap
        self._before = connection.total_changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql != "COMMIT" or not self._counts():
            return self._connection.execute(sql, *args)
        self._trap.count += 1
        self._trap.reach("before")
        cursor = self._connection.execute(sql, *args)
        self._trap.reach("after")
        return cursor

    def _counts(self) -> bool:
        if self._trap.op is not None:
            return self._trap.op in self._ops
        if all(name == "Claim" for name in self._ops):
            return self._connection.total_changes - self._before > IDLE_CHANGES
        return True


class Hooks:
    """What is installed in this process, once; `trap` is set anew for each opening."""

    def __init__(self) -> None:
        self.trap = Trap()
        self.locked_at = 0.0
        self._claims = 0
        self._renewed = trio.Event()

    def arm(self, trap: Trap) -> None:
        self.trap = trap
        self._claims = 0

    def install(self) -> None:
        from callboard.storage.model.errors import CallboardError
        from callboard.storage.sqlite import driver

        apply, commit, lock = driver.SqliteDriver.apply, driver.SqliteDriver._apply, driver.acquire_lock

        def locking(path: str) -> Any:
            held = lock(path)
            self.locked_at = time.monotonic()
            return held

        def committing(this: Any, ops: Sequence[Any], now: float, conn: sqlite3.Connection, **given: Any) -> Any:
            return commit(this, ops, now, cast("sqlite3.Connection", _Watched(conn, ops, self.trap)), **given)

        async def applying(this: Any, ops: Sequence[Any], *meanwhile: Any) -> Any:
            try:
                applied = await apply(this, ops, *meanwhile)
            except CallboardError as error:
                say("not_committed", error=error.code, ops=[type(op).__name__ for op in ops])
                raise
            for op, outcome in zip(ops, applied.outcomes, strict=True):
                self._tell(type(op).__name__, op, outcome)
            return applied

        for owner, name, hook in (
            (driver, "acquire_lock", locking),
            (driver.SqliteDriver, "_apply", committing),
            (driver.SqliteDriver, "apply", applying),
        ):
            setattr(owner, name, hook)

    async def renewals(self, times: int) -> None:
        for _ in range(times):
            self._renewed = trio.Event()
            await self._renewed.wait()

    def _tell(self, name: str, op: Any, outcome: Any) -> None:
        if name == "Renew":
            self._renewed.set()
        elif name == "VoidLeases":
            say("voided", leases=outcome)
        elif name == "Claim" and hasattr(outcome, "claimed"):
            self._claims += 1
            if outcome.claimed or self._claims == 1:
                seconds = time.monotonic() - self.locked_at
                taken = [[one.session, one.head.message_id, one.lease.attempt] for one in outcome.claimed]
                say("claimed", round=self._claims, after_lock=seconds, turns=taken)
        elif name in {"CommitTurn", "Retry", "Fail", "HandBack"} and hasattr(outcome, "end"):
            say("ended", end=outcome.end, session=op.lease.recipient.removeprefix("session:"), attempt=op.lease.attempt)
