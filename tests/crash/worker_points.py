"""The points at which the explorer kills a day: every boundary of a commit, and every await of the tasks that deliver.

Runs in the worker process only. Here: counting them, dying at the chosen one, and what makes a day repeat itself to the step. Not here:
the day (`worker_day`), and which points are tried (`explorer`). Invariant: point n of a day is the same place in every run of it.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import trio
from trio._core import _run as scheduler
from worker_hooks import say

DELIVERING = ("session:", "callboard/dispatcher", "callboard/keeper")
"""How the tasks are called that take a message from its row to the commit of its turn; an end is settled inside them."""


@attrs.define
class Points:
    """Counts the points; the process kills itself at number `at`, and calls `halfway` at number `half`."""

    at: int | None
    half: int | None
    halfway: Callable[[], None]
    labels: list[str] = attrs.field(factory=list[str], init=False)
    commits: int = attrs.field(default=0, init=False)

    def reach(self, label: str) -> None:
        self.labels.append(label)
        number = len(self.labels)
        if number == self.half:
            self.halfway()
        if number == self.at:
            say("killed", point=number, label=label)
            os.kill(os.getpid(), signal.SIGKILL)


class Steps(trio.abc.Instrument):
    """Each step of a delivering task is a point at its begin, where it goes on after an await, and at its end, where it waits again."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "goes on")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "waits")

    def _step(self, task: trio.lowlevel.Task, what: str) -> None:
        if task.name.startswith(DELIVERING):
            # The ids of sessions differ from run to run.
            name = task.name.partition(":")[0].removeprefix("callboard/")
            self._points.reach(f"{name} {what} after commit {self._points.commits}")


class _Pointed:
    """A connection that reaches the points of its transaction."""

    def __init__(self, connection: sqlite3.Connection, points: Points, ops: str) -> None:
        self._connection = connection
        self._points = points
        self._ops = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            self._points.reach(f"before the begin of {self._ops}")
        if sql != "COMMIT":
            return self._connection.execute(sql, *args)
        self._points.reach(f"before the commit of {self._ops}")
        cursor = self._connection.execute(sql, *args)
        self._points.commits += 1
        self._points.reach(f"after the commit of {self._ops}")
        return cursor


def watch_sqlite(points: Points) -> None:
    """Make each transaction of the SQLite driver reach four points."""
    from callboard.storage.sqlite import driver

    commit, carry_out = driver.SqliteDriver._apply, driver.carry_out

    def committing(this: Any, ops: Sequence[Any], now: float, conn: sqlite3.Connection, *, last: bool = False) -> Any:
        pointed = cast("sqlite3.Connection", _Pointed(conn, points, _named(ops)))
        return commit(this, ops, now, pointed, last=last)

    def carrying_out(tx: Any, ops: Sequence[Any]) -> list[Any]:
        outcomes = carry_out(tx, ops)
        points.reach(f"after the ops of {_named(ops)}")
        return outcomes

    for owner, name, hook in ((driver.SqliteDriver, "_apply", committing), (driver, "carry_out", carrying_out)):
        setattr(owner, name, hook)


WATCHED: dict[str, Callable[[Points], None]] = {"sqlite": watch_sqlite}
"""By the scheme of a store's URL."""


def repeatable(seed: str) -> None:
    """Let whatever is left to chance in this process follow from `seed`: the order in which Trio runs tasks, back-off, ids."""
    chance = random.Random(seed)
    random.seed(chance.random())
    os.urandom = chance.randbytes
    scheduler._r.seed(chance.random())
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # pyright: ignore[reportAttributeAccessIssue]


def _named(ops: Sequence[Any]) -> str:
    return "+".join(type(op).__name__ for op in ops) or "nothing"
