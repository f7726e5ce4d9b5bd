"""One PostgreSQL connection as Trio sees it: psycopg's protocol generators, awaited by Trio's readiness waits. No thread.

Here: `Connection`, and `in_greenlet`, which lets a synchronous function ask it. Not here: how it is opened (`connect.py`), values
(`values.py`), what errors mean (`faults.py`), transactions, reconnecting. It stands on `psycopg.pq` and `psycopg.generators` instead of
psycopg's connection and cursor, which need asyncio and cost more than a statement's way to the server and back.

Invariants: one task uses a connection at a time; whatever leaves an exchange unfinished (a cancellation above all) closes the
connection, because what the server made of it is unknown and its answer would be taken for the next one's; a lost connection says
`OutcomeUnknown` if COMMIT had been sent and had no answer, else `StoreDown`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import greenlet
import psycopg
import trio
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from ..model.errors import CallboardError
from ..rows import Row
from .faults import lost, map_postgres_error
from .values import dump, loader

T = TypeVar("T")
Statement = tuple[str, Sequence[Any]]

BEGIN: Final = "BEGIN"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
PREPARED_MOST: Final = 1_000
"""Statements that a connection keeps prepared; the store's own are a few hundred, and what comes after them is parsed each time."""


class Answer(NamedTuple):
    """What a statement gave: its rows (none if it returns none), and how many rows it touched."""

    rows: list[Row]
    rowcount: int


class Notification(NamedTuple):
    """What another connection said with NOTIFY."""

    channel: str
    payload: str


class Connection:
    """An open connection in autocommit. Parameters are `$1`, `$2`, …; each statement is prepared at its first use.

    Its methods raise `StoreDown`, `OutcomeUnknown` and the kinds of `StoreError` for failures of the store, and psycopg's own error for
    a data error, after which the connection can be used on. Two uses at once are a `trio.BusyResourceError`.
    """

    def __init__(self, pgconn: PGconn, shown: str) -> None:
        self.shown = shown
        self._pgconn = pgconn
        self._names: dict[str, bytes] = {}
        self._loader = loader()
        self._heard: deque[pq.PGnotify] = deque()
        self._busy = False
        self._committing = False  # whether the newest exchange had a COMMIT; asked only when one has failed
        pgconn.notify_handler = self._heard.append

    @property
    def closed(self) -> bool:
        """Whether it was closed, here or by a failure. It never opens again."""
        return self._pgconn.status != pq.ConnStatus.OK

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, a failed one included."""
        return self._pgconn.transaction_status not in (pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN)

    @property
    def backend(self) -> int:
        """The server's process id of this connection."""
        return self._pgconn.backend_pid

    async def execute(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        """Run one statement. Cancelled before it is sent, it never runs; later, the connection is closed and its outcome is unknown."""
        try:
            return await self.ask(sql, args)
        except psycopg.Error as exc:
            self.fail(exc)

    async def executes(self, statements: Sequence[Statement]) -> list[Answer]:
        """Run statements in one exchange: one way to the server and back for all. The first that fails is raised, and those after it never ran.

        Outside a transaction they are one of their own: all or none.
        """
        try:
            return await self.ask_all(statements)
        except psycopg.Error as exc:
            self.fail(exc)

    async def script(self, sql: str) -> None:
        """Run a text of several statements without parameters; outside a transaction they are one of their own."""
        try:
            await self._begin(commits=False)
            self._pgconn.send_query(sql.encode())
            for result in await self._exchange(generators.execute(self._pgconn)):
                self._check(result)
        except psycopg.Error as exc:
            self.fail(exc)

    async def notifies(self) -> AsyncGenerator[Notification]:
        """What the channels that this connection listens to say, one after the other. Cancelling it leaves the connection usable."""
        try:
            while True:
                while self._heard:
                    heard = self._heard.popleft()
                    yield Notification(heard.relname.decode(), heard.extra.decode(errors="replace"))
                await self._hear()
        except psycopg.Error as exc:
            self.fail(exc)

    def close(self) -> None:
        """Close it, without waiting for anything; a task that waits for its answer gets `StoreDown`. A second call does nothing."""
        if self._pgconn.status != pq.ConnStatus.BAD:
            descriptor = self._pgconn.socket
            trio.lowlevel.notify_closing(descriptor)
        self._pgconn.finish()

    # -- for whoever maps errors later, as a batch does -------------------------------------------------------------

    async def ask(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        """`execute` with psycopg's errors for all failures."""
        values = [dump(value) for value in args]
        await self._begin(commits=sql == COMMIT)
        name = self._names.get(sql)
        if name is None:
            if len(self._names) >= PREPARED_MOST:
                self._pgconn.send_query_params(sql.encode(), values)
                return self._answer((await self._exchange(generators.execute(self._pgconn)))[0])
            name = await self._prepare(sql)
        self._pgconn.send_query_prepared(name, values)
        return self._answer((await self._exchange(generators.execute(self._pgconn)))[0])

    async def ask_all(self, statements: Sequence[Statement]) -> list[Answer]:
        """`executes` with psycopg's errors for all failures."""
        if not statements:
            return []
        valued = [(sql, [dump(value) for value in args]) for sql, args in statements]
        for sql, _ in valued:
            if sql not in self._names and len(self._names) < PREPARED_MOST:
                await self._begin(commits=False)
                await self._prepare(sql)
        await self._begin(commits=any(sql == COMMIT for sql, _ in statements))
        self._pgconn.enter_pipeline_mode()
        for sql, values in valued:
            name = self._names.get(sql)
            if name is None:
                self._pgconn.send_query_params(sql.encode(), values)
            else:
                self._pgconn.send_query_prepared(name, values)
        self._pgconn.pipeline_sync()
        results = await self._exchange(_pipelined(self._pgconn, len(valued)))
        try:
            return [self._answer(result) for result in results]
        finally:
            if not self.closed:
                self._pgconn.exit_pipeline_mode()

    def mapped(self, exc: psycopg.Error) -> CallboardError | None:
        """What `exc`, just raised by this connection, means; None for a data error."""
        return map_postgres_error(exc, self.shown, committing=self._committing)

    def fail(self, exc: psycopg.Error) -> NoReturn:
        """Raise what `exc` means, or `exc` itself if it is a data error; a connection that is lost is closed here too."""
        ours = self.mapped(exc)
        if lost(exc):
            self.close()
        if ours is None:
            raise exc
        raise ours from exc

    # -- the protocol -----------------------------------------------------------------------------------------------

    async def _begin(self, *, commits: bool) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._busy:
            raise trio.BusyResourceError("another task uses this connection")
        if self.closed:
            self._committing = False
            raise psycopg.OperationalError("the connection is closed")
        self._committing = commits

    async def _prepare(self, sql: str) -> bytes:
        name = b"s%d" % len(self._names)
        self._pgconn.send_prepare(name, sql.encode())
        for result in await self._exchange(generators.execute(self._pgconn)):
            self._check(result)
        self._names[sql] = name
        return name

    async def _exchange(self, generator: PQGen[T]) -> T:
        """Send what was queued and take the answer; anything but an answer closes the connection."""
        self._busy = True
        done = False
        try:
            descriptor = self._pgconn.socket
            wanted = next(generator)
            while True:
                if wanted == Wait.R:
                    await trio.lowlevel.wait_readable(descriptor)
                    ready = Ready.R
                else:
                    ready = await _either(descriptor, wanted)
                wanted = generator.send(ready)
        except StopIteration as end:
            done = True
            return cast("T", end.value)
        except trio.ClosedResourceError:
            raise psycopg.OperationalError("the connection was closed meanwhile") from None
        finally:
            self._busy = False
            if not done:
                self.close()

    def _answer(self, result: PGresult) -> Answer:
        self._check(result)
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._loader.set_pgresult(result)
            rows = self._loader.load_rows(0, result.ntuples, tuple)
            return Answer(rows, result.ntuples)
        return Answer([], result.command_tuples or 0)

    def _check(self, result: PGresult) -> None:
        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
            return
        error = error_from_result(result, encoding="utf-8")
        if lost(error):
            self.close()
        raise error

    async def _hear(self) -> None:
        if self._busy:
            raise trio.BusyResourceError("another task uses this connection")
        self._committing = False
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        self._busy = True
        try:
            await trio.lowlevel.wait_readable(self._pgconn.socket)
            self._pgconn.consume_input()
            while heard := self._pgconn.notifies():
                self._heard.append(heard)
        except trio.ClosedResourceError:
            raise psycopg.OperationalError("the connection was closed meanwhile") from None
        except psycopg.Error:
            self.close()
            raise
        finally:
            self._busy = False


class Ask:
    """What a synchronous function in a greenlet asks its connection with. Errors are psycopg's own."""

    __slots__ = ("_parent",)

    def __init__(self, parent: greenlet.greenlet) -> None:
        self._parent = parent

    def __call__(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        """As `Connection.execute`."""
        (answer,) = self._parent.switch([(sql, args)])
        return answer

    def all(self, statements: Sequence[Statement]) -> list[Answer]:
        """As `Connection.executes`."""
        return self._parent.switch(statements) if statements else []


async def in_greenlet(connection: Connection, fn: Callable[[Ask], T]) -> T:
    """Run `fn`, whose calls of its argument are awaited on `connection`, and return its result; its exceptions are raised here.

    It runs in this task: Trio's current task, the cancel scopes around the call and context variables are the same inside. A
    cancellation is raised in `fn` at its statement, and the connection is closed: nobody would end the transaction. psycopg's errors for
    a failure of the store pass through `fn` as they are and leave it as ours, so that nothing in between takes them for one op's refusal.
    """
    parent = greenlet.getcurrent()
    child = greenlet.greenlet(fn, parent)
    # A greenlet begins with an empty context, in which variables (the logger's, the tracer's) have lost their values.
    child.gr_context = parent.gr_context
    try:
        asked = child.switch(Ask(parent))
        while not child.dead:
            try:
                answers = [await connection.ask(*asked[0])] if len(asked) == 1 else await connection.ask_all(asked)
            except BaseException as exc:
                asked = child.throw(type(exc), exc, exc.__traceback__)
            else:
                asked = child.switch(answers)
    except psycopg.Error as exc:
        connection.fail(exc)
    except trio.Cancelled:
        connection.close()
        raise
    return cast("T", asked)


def _pipelined(pgconn: PGconn, count: int) -> PQGen[list[PGresult]]:
    """Send what was queued and take `count` answers and the end of the pipeline."""
    yield from generators.send(pgconn)
    results: list[PGresult] = []
    for _ in range(count):
        results += yield from generators.fetch_many(pgconn)
    yield from generators.fetch_many(pgconn)
    return results


async def _either(descriptor: int, wanted: Wait) -> Ready:
    """Wait until the socket is as the generator wants it: only a long statement fills the socket, and then both ways count."""
    if wanted == Wait.W:
        await trio.lowlevel.wait_writable(descriptor)
        return Ready.W
    found: list[Ready] = []

    async def until(wait: Callable[[int], Any], ready: Ready) -> None:
        await wait(descriptor)
        found.append(ready)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(until, trio.lowlevel.wait_readable, Ready.R)
        nursery.start_soon(until, trio.lowlevel.wait_writable, Ready.W)
    return Ready.RW if len(found) > 1 else found[0]
