"""What else can strike a day on a server than the end of its process: it stands still, its connection is cut, the server restarts.

Each is an explorer whose points are the boundaries of commits alone. Here: what is done at a point, and what must hold then beyond what
must hold of any day. Not here: the points (`worker_points`), the day, running and judging (`explorer`).
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Literal

import trio

from callboard.tests.contract.postgres_server import Server
from callboard.tests.crash.explorer import Explorer, events_of, seen_in
from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Worker, Workers
from callboard.tests.crash.rows import Rows
from callboard.tests.crash.stores import PgStores, Stores

TABLES = ("mailbox", "message", "entry", "event", "marker", "attempt", "step", "session", "approval")
"""What a process that was replaced must not change any more."""


class Paused(Explorer):
    """The process stands still past its leases, in the middle of what it commits; another one does all that is left; then it goes on."""

    how = "stop"

    async def _run(self, name: str, point: int) -> None:
        first = await self._begin(name, "1", at=point)
        try:
            await first.until(lambda: first.lines("struck") or first.lines("done"))
            self._note(first, point)
            second = await self._live(name, f"2.{point}")
            with self._stores.rows(name) as rows:
                check(rows)
                done = _contents(rows)
            first.signal(signal.SIGCONT)
            await self._end(first, "1")
            with self._stores.rows(name) as rows:
                changed = [table for table, lines in _contents(rows).items() if lines != done[table]]
            assert not changed, f"the process that was replaced has changed {', '.join(changed)}"
        finally:
            first.dispose()
        self._judge(name, [first, second])

    def _check_followers(self, rows: Rows, lives: list[Worker]) -> None:
        for life in lives:
            assert seen_in([life]) == events_of(rows), "a follower has not seen each event once"


class Cut(Explorer):
    """The connection is lost; the process goes on, and needs no other one to come to the end."""

    how = "cut"

    async def _run(self, name: str, point: int) -> None:
        life = await self._live(name, "1", at=point)
        self._note(life, point)
        self._judge(name, [life])


class Restarted(Explorer):
    """The server restarts, as after a crash of its own or in order, while the process goes on. All lanes would feel it: one at a time."""

    how = "restart"
    most = 48
    """Each restart takes a second or more."""

    def __init__(self, workers: Workers, database: str, folder: Path, seed: int) -> None:
        self._server = Server.launch(durable=False)
        self._one = trio.Lock()
        super().__init__(workers, database, folder, seed)

    def close(self) -> None:
        self._server.stop("immediate")

    def _stores_in(self, folder: Path) -> Stores:
        return PgStores(folder, self._server)

    async def _run(self, name: str, point: int) -> None:
        mode: Literal["immediate", "fast"] = "immediate" if point % 2 else "fast"
        async with self._one:
            life = await self._begin(name, "1", at=point)
            await life.until(lambda: life.lines("struck") or life.lines("done"))
            if self._note(life, point):
                await trio.to_thread.run_sync(self._server.restart, mode)
            await self._end(life, "1")
        self._judge(name, [life])


def _contents(rows: Rows) -> dict[str, list[str]]:
    return {table: sorted(str(tuple(row)) for row in rows.all(f"SELECT * FROM {table}")) for table in TABLES}


EXPLORERS: dict[str, dict[str, type[Explorer]]] = {
    "sqlite": {"kill": Explorer},
    "postgresql": {"kill": Explorer, "stop": Paused, "cut": Cut, "restart": Restarted},
}
"""By database, and by what strikes the day."""
