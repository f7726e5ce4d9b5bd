"""What the store's contract tests share: a `kit` with one word for each thing they do, and databases that outlive a store.

Nothing here knows which database it is: the same tests run on each one that the `store` fixture opens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import pytest
import trio
from psycopg.conninfo import conninfo_to_dict

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import CallboardError
from callboard.storage.model.events import Event
from callboard.storage.model.messages import Kind, MessageView, Receipt
from callboard.storage.model.sessions import Entry, Session
from callboard.storage.model.states import Outcome
from callboard.storage.model.turns import Claimed
from callboard.storage.ops import Claim, CommitTurn, Op, OpenSession
from callboard.storage.ops.deliveries import Ended
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.postgres.bridge import Connection
from callboard.storage.postgres.connect import Target, connect
from callboard.storage.store import Store, open_store
from callboard.tests.contract.pg_kit import Process, processes
from callboard.tests.contract.postgres_server import Server, session_server

AGENT = "echo"


class Kit:
    """A store as the tests drive it. Everything is in `scope` unless a test says otherwise."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scope = Scope()
        self.ann = Sender("ann", "member", "Ann")
        self._claims = 0

    async def open(self, agent: str = AGENT, *, scope: Scope | None = None, **fields: Any) -> Session:
        opened = await self.store.apply(open_session(scope or self.scope, agent, **fields))
        return opened.session

    async def child(self, parent: Session, task: str = "task", **fields: Any) -> Session:
        """A running child of `parent` with its task in its mailbox, as the tool `agent` makes it."""
        made: OpenSession = open_session(self.scope, AGENT, parent=parent.id, **fields)
        opened = await self.store.apply(made)
        await self.post(opened.session, task, sender=self.as_sender(parent), kind=Kind.AGENT_MESSAGE)
        return opened.session

    async def post(
        self, session: Session, content: str = "hello", *, sender: Sender | None = None, **fields: Any
    ) -> Receipt:
        target = session_address(session.id)
        return await self.store.apply(enqueue(session.scope, target, sender or self.ann, content, **fields))

    async def claims(
        self, holder: str = "worker", *, limit: int = 100, seconds: float = 30.0, **fields: Any
    ) -> tuple[Claimed, ...]:
        return (await self.store.apply(self.claim_op(holder, limit=limit, seconds=seconds, **fields))).claimed

    def claim_op(self, holder: str = "worker", *, limit: int = 100, seconds: float = 30.0, **fields: Any) -> Claim:
        self._claims += 1
        given: dict[str, Any] = {"nonce": f"n-{self._claims}", "agents": frozenset({AGENT}), **fields}
        return Claim(holder=holder, limit=limit, lease_seconds=seconds, **given)

    async def claim(self, session: Session, holder: str = "worker", *, seconds: float = 30.0, **fields: Any) -> Claimed:
        """Claim what is due, which must be `session` alone."""
        (claimed,) = await self.claims(holder, seconds=seconds, **fields)
        assert claimed.session == session.id
        return claimed

    def commit_op(
        self,
        claimed: Claimed,
        answer: str | None = "done",
        *,
        outcome: Outcome = Outcome.ANSWERED,
        also: Sequence[int] = (),
        **fields: Any,
    ) -> CommitTurn:
        """The end of a turn that consumed its head, what came along with it, and the rows in `also`."""
        consumed = (claimed.head.row, *(message.row for message in claimed.carried), *also)
        given: dict[str, Any] = {"consumed": consumed, **fields}
        return CommitTurn(lease=claimed.lease, outcome=outcome, answer=answer, **given)

    async def commit(self, claimed: Claimed, answer: str | None = "done", **fields: Any) -> Ended:
        return await self.store.apply(self.commit_op(claimed, answer, **fields))

    async def turn(self, session: Session, content: str = "hello", answer: str | None = "done") -> Receipt:
        """One whole turn: a message, its claim, its commit."""
        receipt = await self.post(session, content)
        await self.commit(await self.claim(session), answer)
        return receipt

    async def together(self, *ops: Op[Any]) -> list[Any]:
        """Apply `ops` in one batch; each answers with its result or its error."""
        answers: list[Any] = [None] * len(ops)

        async def one(n: int, op: Op[Any]) -> None:
            try:
                answers[n] = await self.store.apply(op)
            except CallboardError as refusal:
                answers[n] = refusal

        batches = self.store.statistics()["batches"]
        async with trio.open_nursery() as nursery:
            for n, op in enumerate(ops):
                nursery.start_soon(one, n, op)
        assert self.store.statistics()["batches"] == batches + 1
        return answers

    async def message(self, id: str) -> MessageView:
        return await self.store.reads.message(self.scope, id)

    async def entries(self, session: Session) -> list[Entry]:
        return await self.store.reads.transcript(session.scope, session.id)

    async def events(self, session: Session, after: int = 0) -> list[Event]:
        return list((await self.store.reads.events(session.scope, session.id, after=after)).events)

    async def kinds(self, session: Session, after: int = 0) -> list[str]:
        return [event.kind for event in await self.events(session, after)]

    def as_sender(self, session: Session) -> Sender:
        return Sender(session.id, "session", session.title or session.agent)

    async def snapshot(self, *scopes: Scope, gone: Sequence[str] = ()) -> dict[str, Any]:
        """All that can be read of the scopes (the kit's own by default); `gone` names deleted sessions to look at too."""
        reads = self.store.reads
        seen: dict[str, Any] = {"stuck": await reads.stuck(), "counts": await reads.counts(self.store.now() + 1)}
        seen["members"] = (await self.store.access.members(self.scope.tenant, limit=200)).items
        seen["credentials"] = (await self.store.access.credentials(self.scope.tenant, limit=200)).items
        for scope in scopes or (self.scope,):
            sessions = await reads.sessions(scope, limit=200)
            messages = await reads.inbox(scope, limit=200)
            assert not sessions.has_more
            assert not messages.has_more
            seen[f"{scope}"] = (sessions.items, messages.items)
            seen[f"rules of {scope}"] = await reads.rules(scope)
            for session in (*(session.id for session in sessions.items), *gone):
                transcript = await reads.transcript(scope, session)
                seen[session] = transcript, await reads.events(scope, session), await reads.stop_of(scope, session)
            for message in messages.items:
                seen[message.id] = await reads.attempts(scope, message.id), await reads.steps(scope, message.id)
        return seen


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Store]:
    """A store that runs while the block lasts."""
    async with open_store(url) as opened, trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


Databases = Callable[[str], str]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], AbstractContextManager[str]]]:
    """Lends databases: each is made from a template, and emptied for the next one, which is quicker than to make another."""
    with ExitStack() as made:
        free: list[str] = []

        @contextmanager
        def lend() -> Iterator[str]:
            server = session_server()
            url = free.pop() if free else made.enter_context(server.database(server.template("callboard", migrated)))
            try:
                yield url
            finally:
                empty(server, url)
                free.append(url)

        yield lend


@pytest.fixture
async def one(postgres: Callable[[], AbstractContextManager[str]]) -> AsyncIterator[Process]:
    """A driver on a PostgreSQL database, to be driven batch by batch."""
    with postgres() as url:
        async with processes(url, 1) as (process,):
            yield process


@pytest.fixture(scope="session")
def server() -> Server:
    """The PostgreSQL server that all workers share."""
    return session_server()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """A PostgreSQL database of this test's own that holds nothing, not even a schema."""
    with server.database() as made:
        yield made


@pytest.fixture
async def conn(url: str) -> AsyncIterator[Connection]:
    """A connection to it."""
    opened = await connect(Target.parse(url))
    yield opened
    opened.close()


def empty(server: Server, url: str) -> None:
    """Cut whoever is connected and delete all rows but the list of migrations."""
    database = conninfo_to_dict(url)["dbname"]
    server.cut(str(database))
    tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database=str(database))
    deletes = "".join(f"DELETE FROM {name};" for (name,) in tables if name != "migration")
    # As for a replica: the order does not matter to what references what.
    server.execute(f"SET session_replication_role = replica; {deletes}", database=str(database))


@pytest.fixture
def databases(tmp_path: Path, postgres: Callable[[], AbstractContextManager[str]]) -> Iterator[Databases]:
    """The URL of this test's own database of a kind: "memory", "file" or "postgres"."""
    with ExitStack() as lent:

        def url(kind: str) -> str:
            if kind == "postgres":
                return lent.enter_context(postgres())
            return {"memory": "sqlite:///:memory:", "file": f"sqlite:///{tmp_path}/store.db"}[kind]

        yield url


def migrated(url: str) -> None:
    """Bring the database at `url` up to date; also from within a Trio program."""

    async def once() -> None:
        async with open_store(url):
            pass

    with ThreadPoolExecutor(1) as thread:
        thread.submit(trio.run, once).result()


@pytest.fixture(params=["file", "postgres"])
async def store(request: pytest.FixtureRequest, databases: Databases) -> AsyncIterator[Store]:
    """A running store on each database of the suite. In memory, which differs in who reads, only what asks for it by name is run."""
    async with running(databases(request.param)) as opened:
        yield opened


@pytest.fixture
def kit(store: Store) -> Kit:
    return Kit(store)


Reopen = Callable[[], AbstractAsyncContextManager[Kit]]


@pytest.fixture(params=["file", "postgres"])
def reopen(request: pytest.FixtureRequest, databases: Databases) -> Reopen:
    """Opens one and the same database anew at each call: what is committed must be there again."""
    url = databases(request.param)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Kit]:
        async with running(url) as opened:
            yield Kit(opened)

    return opening


@pytest.fixture
def other_scopes() -> tuple[Scope, Scope]:
    """A second project of the same tenant, and a project of the same name of a second tenant."""
    return Scope("default", "other"), Scope("other", "default")
