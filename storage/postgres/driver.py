"""The PostgreSQL driver: batches on a writing connection, reads on a few more.

Lives here: which ops share a transaction, reads in one snapshot, hints and clock while the store runs, opening and closing. Not here:
one transaction (`batch.py`), opening connections again (`link.py`), what an op does (`handlers`).

Invariants: what surely wrote nothing is sent again while its time lasts; a batch whose COMMIT had no answer is never sent again: its
outcome is unknown. Other processes use the same database, so nothing is voided when it is opened.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
import trio

from ..changes import Changes
from ..commit import Applied, Failure
from ..model.addresses import Scope
from ..model.errors import CallboardError, StoreDown, StoreError
from ..model.limits import COMMIT_SECONDS
from ..ops.base import Op
from ..rows import Row
from .batch import Batch
from .bridge import Connection, Statement
from .clock import EVERY_SECONDS, ServerClock
from .connect import Target
from .link import SETTINGS, Link
from .listen import listen
from .locks import UPKEEP
from .migrations import migrate, pending
from .statements import statements

T = TypeVar("T")
READERS: Final = 3
READ_SECONDS: Final = 10.0
OPEN_SECONDS: Final = 10.0
SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Not COMMIT: of a read that was lost nothing is unknown.
SNAPSHOT_ENDS: Final = "END"


class PostgresDriver:
    """A database that several processes may share."""

    rides = True

    def __init__(self, target: Target) -> None:
        self.name = target.shown
        self.file = None
        self.migrated: tuple[str, ...] = ()
        self._target = target
        self._process = secrets.token_hex(8)
        self._clock = ServerClock()
        self._writer = Link(target, SETTINGS)
        self._scopes: dict[Scope, int] = {}
        self._free = deque(Link(target, SETTINGS) for _ in range(READERS))
        self._readers = trio.Semaphore(READERS)
        self._closed = False

    async def start(self) -> None:
        """Migrate, and ask for the server's time."""
        connection = await self._writer.open(OPEN_SECONDS)
        self.migrated = tuple(map(str, await migrate(connection)))
        await self._clock.measure(connection)

    def announce(self, url: str) -> None:
        """Nothing: no process is refused."""

    def now(self) -> float:
        """Store time in seconds since the epoch: the server's."""
        return self._clock.now()

    async def apply(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied:
        """Commit `ops` in one transaction, but upkeep in one of its own; an op that is refused fails alone. The caller shields it.

        `meanwhile` is called once all of it is carried out and COMMIT is on its way.

        Raises `StoreDown`, `OutcomeUnknown` or a kind of `StoreError` for all of `ops`; for upkeep beside others it is its own outcome.
        """
        self._check()
        upkeep = [place for place, op in enumerate(ops) if type(op) in UPKEEP]
        if not upkeep or len(upkeep) == len(ops):
            return await self._commit(ops, meanwhile)
        others = [place for place in range(len(ops)) if place not in set(upkeep)]
        done = await self._commit([ops[place] for place in others], meanwhile)
        try:
            beside = await self._commit([ops[place] for place in upkeep])
        except CallboardError as error:
            beside = Applied([Failure(error)] * len(upkeep), {})
        outcomes = dict(zip((*others, *upkeep), (*done.outcomes, *beside.outcomes), strict=True))
        # Upkeep tells nobody and counts nothing.
        return Applied([outcomes[place] for place in range(len(ops))], done.touched, done.tally)

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]:
        """Rows of each statement, all from one snapshot. Raises `StoreDown`, kinds of `StoreError`."""
        self._check()
        known = statements()
        asked: list[Statement] = []
        for name, given in queries:
            statement = known[name]
            asked.append((statement.text, [given[parameter] for parameter in statement.names]))

        async def work(connection: Connection) -> list[list[Row]]:
            if len(asked) == 1:
                return [(await connection.execute(*asked[0])).rows]
            answers = await connection.executes([(SNAPSHOT, ()), *asked, (SNAPSHOT_ENDS, ())])
            return [answer.rows for answer in answers[1:-1]]

        return await self._reading(work)

    async def attend(self, changes: Changes, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """While the store runs: hand hints of other processes to `changes`, and follow the server's clock."""
        async with trio.open_nursery() as nursery:
            await nursery.start(_listening(self._target, self._process, changes))
            task_status.started()
            while True:
                await trio.sleep(EVERY_SECONDS)
                with suppress(CallboardError):
                    await self._reading(self._clock.measure)

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        for link in (self._writer, *self._free):
            link.close()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _reading(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._readers:
            link = self._free.popleft()
            try:
                with trio.move_on_after(READ_SECONDS):
                    return await link.use(work, seconds=READ_SECONDS)
                raise StoreDown(f"the database did not answer within {READ_SECONDS:g} s", path=self.name)
            except psycopg.Error as exc:
                raise StoreError(f"the database refused a read ({exc})", path=self.name) from exc
            finally:
                self._free.append(link)

    async def _commit(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied:
        batch = Batch(ops, self._process, self._scopes, meanwhile)
        try:
            return await self._writer.use(batch.commit, seconds=COMMIT_SECONDS)
        except psycopg.Error as exc:
            raise StoreError(f"the database refused a batch ({exc})", path=self.name) from exc

    def _check(self) -> None:
        if self._closed:
            raise StoreDown("the store is closed", path=self.name)


def _listening(target: Target, process: str, changes: Changes) -> Callable[..., Any]:
    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        def hint(recipient: str, aspect: int) -> None:
            changes.publish({recipient: aspect})

        await listen(target, process, on_hint=hint, on_all=changes.publish_all, task_status=task_status)

    return run


async def open_postgres(url: str) -> PostgresDriver:
    """Connect and migrate. Raises `InvalidField` for a bad URL, `StoreDown`, or the kind of `StoreError` that says what is wrong."""
    driver = PostgresDriver(Target.parse(url))
    try:
        await driver.start()
    except BaseException:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await driver.aclose()
        raise
    return driver


async def pending_at(url: str) -> tuple[str, ...]:
    """The migrations that opening the database would apply; it is not changed. Raises as `open_postgres`."""
    link = Link(Target.parse(url))
    try:
        return tuple(map(str, await pending(await link.open(OPEN_SECONDS))))
    finally:
        link.close()
