"""The points at which the explorer strikes a day: every boundary of a commit, and every await of the tasks that deliver.

Runs in the worker process only. Here: counting them, dying at the chosen one, SQLite's, and what makes a day repeat itself to the step. Not
here: the day (`worker_day`), PostgreSQL's (`worker_postgres`), which points are tried (`explorer`). Invariant: point n of a day is the same
place in every run of it, where nothing but the process takes time.
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
from trio.testing import MockClock
from worker_hooks import say, strike
from worker_postgres import watch_postgres

DELIVERING = ("session:", "callboard/dispatcher", "callboard/keeper")
"""How the tasks are called that take a message from its row to the commit of its turn; an end is settled inside them."""


@attrs.define
class Points:
    """Counts the points; at number `at` it strikes, and calls `halfway` at number `half`.

    `how`: "kill" and "stop" the process itself, "cut" its connection to the database; "restart" is for whoever hears of it to do.
    """

    at: int | None
    half: int | None
    halfway: Callable[[], None]
    how: str = "kill"
    cut: Callable[[], None] = attrs.field(init=False)
    labels: list[str] = attrs.field(factory=list[str], init=False)
    commits: int = attrs.field(default=0, init=False)

    def reach(self, label: str) -> None:
        self.labels.append(label)
        number = len(self.labels)
        if number == self.half:
            self.halfway()
        if number == self.at:
            say("struck", how=self.how, point=number, label=label)
            self._strike()

    def _strike(self) -> None:
        match self.how:
            case "kill":
                strike(signal.SIGKILL)
            case "stop":
                strike(signal.SIGSTOP)
            case "cut":
                self.cut()
            case _:
                pass

    def named(self, ops: Sequence[Any]) -> str:
        """What a batch is called."""
        return "+".join(type(op).__name__ for op in ops) or "nothing"


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


def watch_sqlite(points: Points, _: str) -> trio.abc.Clock:
    """Make each transaction of the SQLite driver reach four points; the clock for the day."""
    from callboard.storage.sqlite import driver

    commit, carry_out = driver.SqliteDriver._apply, driver.carry_out

    def committing(this: Any, ops: Sequence[Any], now: float, conn: sqlite3.Connection, **given: Any) -> Any:
        pointed = cast("sqlite3.Connection", _Pointed(conn, points, points.named(ops)))
        return commit(this, ops, now, pointed, **given)

    def carrying_out(tx: Any, ops: Sequence[Any]) -> list[Any]:
        outcomes = carry_out(tx, ops)
        points.reach(f"after the ops of {points.named(ops)}")
        return outcomes

    for owner, name, hook in ((driver.SqliteDriver, "_apply", committing), (driver, "carry_out", carrying_out)):
        setattr(owner, name, hook)
    return MockClock(autojump_threshold=0)


WATCHED: dict[str, Callable[[Points, str], trio.abc.Clock]] = {"sqlite": watch_sqlite, "postgresql": watch_postgres}
"""By the scheme of a store's URL."""


def repeatable(seed: str) -> None:
    """Let whatever is left to chance in this process follow from `seed`: the order in which Trio runs tasks, back-off, ids."""
    chance = random.Random(seed)
    random.seed(chance.random())
    os.urandom = chance.randbytes
    scheduler._r.seed(chance.random())
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # pyright: ignore[reportAttributeAccessIssue]
