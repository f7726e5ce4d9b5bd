"""Two processes on one PostgreSQL database, driven step by step: drivers, and a gate that stops one of them where a test wants it.

Not here: fixtures of the suite, any judgement. A driver is used without a commit queue, so each `apply` is one batch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio

from callboard.storage.commit import Applied, Failure
from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.sessions import Session
from callboard.storage.model.states import Outcome
from callboard.storage.model.turns import Claimed
from callboard.storage.ops import Claim, CommitTurn, Enqueue, Op
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.postgres.bridge import BEGIN, COMMIT, Answer, Connection, Statement
from callboard.storage.postgres.connect import connect
from callboard.storage.postgres.driver import PostgresDriver, open_postgres

LIMIT = 20.0
SCOPE = Scope()
ANN = Sender("ann", "member", "Ann")
When = Callable[[Sequence[Statement]], bool]
BLOCKED = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
_nonces = count(1)


def commits(statements: Sequence[Statement]) -> bool:
    """Whether an exchange ends a transaction."""
    return statements[-1][0] == COMMIT


class Gate:
    """Stops a connection before the first exchange for which `when` is true, until it is opened."""

    def __init__(self, connection: Connection, when: When = commits) -> None:
        self.reached = trio.Event()
        self._open = trio.Event()
        self._when = when
        before(connection, self._pass)

    def open(self) -> None:
        self._open.set()

    async def _pass(self, statements: Sequence[Statement]) -> None:
        if self._when(statements) and not self.reached.is_set():
            self.reached.set()
            await self._open.wait()


def before(connection: Connection, do: Callable[[Sequence[Statement]], Any]) -> None:
    """Await `do` with the statements of each exchange of `connection` before it is sent."""
    ask, ask_all = connection.ask, connection.ask_all

    async def one(sql: str, args: Sequence[Any] = ()) -> Answer:
        await do([(sql, args)])
        return await ask(sql, args)

    async def several(statements: Sequence[Statement]) -> list[Answer]:
        await do(statements)
        return await ask_all(statements)

    connection.ask, connection.ask_all = one, several  # pyright: ignore[reportAttributeAccessIssue]


class Counted:
    """How many transactions a connection has begun since it is counted, and how many ways to the server and back it took."""

    def __init__(self, connection: Connection) -> None:
        self.begun = self.ways = 0
        before(connection, self._count)

    async def _count(self, statements: Sequence[Statement]) -> None:
        self.begun += statements[0][0] == BEGIN
        self.ways += 1


class Process:
    """A driver as one of several processes has it; each call is a batch, and what it raises or refuses is returned as it is."""

    def __init__(self, driver: PostgresDriver, name: str) -> None:
        self.driver = driver
        self.name = name

    async def gate(self, when: When = commits) -> Gate:
        """Stop this process's next batch before it commits."""
        return Gate(await self.driver._writer.open(), when)

    async def counted(self) -> Counted:
        """Count this process's batches from now on."""
        return Counted(await self.driver._writer.open())

    async def batch(self, *ops: Op[Any]) -> list[Any]:
        """Results and refusals of one batch."""
        applied: Applied = await self.driver.apply(ops)
        return [outcome.error if isinstance(outcome, Failure) else outcome for outcome in applied.outcomes]

    async def apply(self, op: Op[Any]) -> Any:
        (outcome,) = await self.batch(op)
        return outcome

    async def open(self, **fields: Any) -> Session:
        return (await self.apply(open_session(SCOPE, "echo", **fields))).session

    async def post(self, session: Session, content: str = "hello", **fields: Any) -> Any:
        return await self.apply(post(session, content, **fields))

    async def claim(self, *, seconds: float = 30.0, limit: int = 100, **fields: Any) -> tuple[Claimed, ...]:
        return (await self.apply(self.claim_op(seconds=seconds, limit=limit, **fields))).claimed

    def claim_op(self, *, seconds: float = 30.0, limit: int = 100, **fields: Any) -> Claim:
        return Claim(self.name, f"n-{next(_nonces)}", limit, seconds, frozenset({"echo"}), **fields)

    async def third(self) -> Connection:
        """A connection of somebody else's to the same database."""
        return await connect(self.driver._target)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the database itself."""
        link = self.driver._free[0]
        return (await (await link.open()).execute(sql)).rows

    async def blocked(self) -> None:
        """Wait until some transaction waits for another one's lock: that happens in the server, which tells nobody."""
        with trio.fail_after(LIMIT):
            while not await self.rows(BLOCKED):
                pass


def post(session: Session, content: str = "hello", sender: Sender = ANN, **fields: Any) -> Enqueue:
    return enqueue(SCOPE, session_address(session.id), sender, content, **fields)


def commit(claimed: Claimed, answer: str | None = "done") -> CommitTurn:
    return CommitTurn(claimed.lease, Outcome.ANSWERED, answer, (claimed.head.row, *(m.row for m in claimed.carried)))


@asynccontextmanager
async def processes(url: str, number: int = 2) -> AsyncIterator[list[Process]]:
    """As many drivers on one database."""
    opened: list[Process] = []
    try:
        for name in "abcdef"[:number]:
            opened.append(Process(await open_postgres(url), name))
        yield opened
    finally:
        for process in opened:
            await process.driver.aclose()


async def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each of the calls gives, all of them at once; an exception is given as it is."""
    found: list[Any] = [None] * len(calls)

    async def one(place: int, call: Callable[[], Any]) -> None:
        try:
            found[place] = await call()
        except Exception as error:
            found[place] = error

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for place, call in enumerate(calls):
                nursery.start_soon(one, place, call)
    return found
