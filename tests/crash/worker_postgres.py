"""The points of a commit on PostgreSQL, and the clock of a day that is lived on its server.

Runs in the worker process only. Here: what reaches into the driver and its connections. Not here: what a point is (`worker_points`), the
server's side of the clock (`stores`). Invariant: time passes for the process and for the server alike, so that a lease is over for both.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import trio
from psycopg import pq
from psycopg.pq.abc import PGconn
from psycopg.waiting import Wait

from callboard.storage.postgres import connect
from callboard.storage.postgres.batch import Batch
from callboard.storage.postgres.bridge import BEGIN, COMMIT, Answer, Connection, Statement

if TYPE_CHECKING:
    from worker_points import Points

AWAY_SECONDS = 0.02
"""Between two questions whether a server that is away is back."""


class ServersClock(trio.abc.Clock):
    """Real time while an exchange with the server is on its way; what would be waited for otherwise is jumped over, here and there.

    While the server is away time is real too: it is the server that takes it.
    """

    def __init__(self, url: str) -> None:
        self.exchanges = 0
        self._url = url.encode()
        self._ahead = 0.0
        self._server: PGconn | None = None

    def start_clock(self) -> None:
        """Nothing: it always goes."""

    def current_time(self) -> float:
        return time.perf_counter() + self._ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Trio asks this when no task can run."""
        left = deadline - self.current_time()
        if self.exchanges or not 0 < left < math.inf:
            return left
        microseconds = math.ceil(left * 1e6)
        if not self._told(microseconds):
            return min(left, AWAY_SECONDS)
        self._ahead += microseconds / 1e6
        return 0.0

    def _told(self, microseconds: int) -> bool:
        """Whether the server's clock has been put forward; a connection that was lost is opened again once."""
        text = b"SELECT setval('warp.ahead', last_value + %d) FROM warp.ahead" % microseconds
        for _ in range(2):
            if self._server is None:
                self._server = pq.PGconn.connect(self._url)
            if self._server.status == pq.ConnStatus.OK and self._server.exec_(text).status == pq.ExecStatus.TUPLES_OK:
                return True
            self._server.finish()
            self._server = None
        return False


def watch_postgres(points: Points, url: str) -> trio.abc.Clock:
    """Make each transaction of the writing connection reach five points; the clock for the day."""
    clock = ServersClock(url)
    writing: dict[Connection, str] = {}
    commit, ask_all, exchange, drive = Batch.commit, Connection.ask_all, Connection._exchange, connect._drive

    def reach(connection: Connection, what: str) -> None:
        points.cut = lambda: cut(connection)
        points.reach(f"{what} of {writing[connection]}")

    async def committing(this: Batch, connection: Connection) -> Any:
        writing[connection] = points.named(this.ops)
        try:
            return await commit(this, connection)
        finally:
            del writing[connection]

    async def asking(this: Connection, statements: Sequence[Statement]) -> list[Answer]:
        if this not in writing:
            return await ask_all(this, statements)
        begins, ends = statements[0][0] == BEGIN, statements[-1][0] == COMMIT
        if begins:
            reach(this, "before the begin")
        if ends:
            reach(this, "before the commit")
        answers = await ask_all(this, statements)
        if begins:
            reach(this, "with the locks")
        if ends:
            points.commits += 1
            reach(this, "after the commit")
        return answers

    async def exchanging(this: Connection, generator: Generator[Wait, Any, Any]) -> Any:
        clock.exchanges += 1
        try:
            if this in writing and this._committing:
                generator = _sent(generator, lambda: reach(this, "with the commit sent and no answer"))
            return await exchange(this, generator)
        finally:
            clock.exchanges -= 1

    async def connecting(generator: Any) -> Any:
        clock.exchanges += 1
        try:
            return await drive(generator)
        finally:
            clock.exchanges -= 1

    for owner, name, hook in (
        (Batch, "commit", committing),
        (Connection, "ask_all", asking),
        (Connection, "_exchange", exchanging),
        (connect, "_drive", connecting),
    ):
        setattr(owner, name, hook)
    return clock


def cut(connection: Connection) -> None:
    """Cut a connection as a network does: what was sent may still arrive, and no answer comes."""
    with socket.socket(fileno=os.dup(connection._pgconn.socket)) as end:
        end.shutdown(socket.SHUT_RDWR)


def _sent(generator: Generator[Wait, Any, Any], told: Any) -> Generator[Wait, Any, Any]:
    """The same exchange; tells when all of it has left and only an answer is waited for."""
    wanted = next(generator)
    while wanted != Wait.R:
        wanted = generator.send((yield wanted))
    told()
    while True:
        try:
            wanted = generator.send((yield wanted))
        except StopIteration as end:
            return end.value
