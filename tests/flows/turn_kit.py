"""What the tests of the turn pipeline share: a runtime on an in-memory store, an agent whose turns the tests write, a gate before the database.

Everything runs in one process and one thread, without any network. Not here: any judgement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import attrs
import outcome
import trio
from trio.testing import MockClock

from callboard import Call, Tool, Tuning, Turn, open_runtime, tool
from callboard.storage.commit import Applied, Batches, Failure
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import CallboardError, StoreDown
from callboard.storage.model.events import Event
from callboard.storage.model.messages import Kind, MessageView, Receipt
from callboard.storage.model.sessions import Entry, Session
from callboard.storage.ops import Claim, Op
from callboard.storage.ops.inbox import enqueue
from callboard.supervisors.runtime import OPERATOR, Extra, Runtime
from callboard.supervisors.tree import Node

T = TypeVar("T")
Body = Callable[[Turn], Awaitable[T]]
MEMORY = "sqlite:///:memory:"


class Puppet:
    """The agent `agent`: runs what a test wrote for its session, once for each turn, else echoes. `runs` counts attempts by session."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[Body[str | None]]] = {}
        self.runs: dict[str, int] = {}

    async def run(self, turn: Turn) -> str | None:
        self.runs[turn.session.id] = self.runs.get(turn.session.id, 0) + 1
        waiting = self.bodies.get(turn.session.id)
        return await waiting.pop(0)(turn) if waiting else f"echo {turn.text}"


class Bench:
    """Tools that write down each time they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.actions: list[str] = []

    def tool(self, kind: str, name: str | None = None, result: Any = None) -> Tool:
        name = name or kind

        async def run(call: Call, **arguments: Any) -> Any:
            self.ran.append(name)
            self.actions.append(call.action_id)
            return f"{name} {len(self.ran)}" if result is None else result

        return tool(kind, name=name)(run)


class Gate:
    """Stands before the database. `seen` are all ops; a batch with an op of `held` waits for `open`; an op of `broken` fails, alone."""

    def __init__(self, inner: Batches) -> None:
        self._inner = inner
        self._open = trio.Event()
        self.seen: list[Op[Any]] = []
        self.held: tuple[type[Op[Any]], ...] = ()
        self.broken: tuple[type[Op[Any]], ...] = ()
        self.refusal: CallboardError = StoreDown("the gate is shut")
        self.waiting = trio.Event()
        self.apart = False
        """Whether no claim rides on a batch, as with a database that can't do that."""

    def close(self, *kinds: type[Op[Any]]) -> None:
        """Let no batch with one of `kinds` pass; `waiting` is set once one has come."""
        self.held, self._open, self.waiting = kinds, trio.Event(), trio.Event()

    def open(self) -> None:
        self.held = ()
        self._open.set()

    @property
    def rides(self) -> bool:
        # What holds claims up must not hold up what they would ride with.
        return self._inner.rides and not self.apart and Claim not in (*self.held, *self.broken)

    async def apply(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied:
        if meanwhile is not None:
            meanwhile()
        if any(isinstance(op, self.held) for op in ops):
            self.waiting.set()
            await self._open.wait()
        passing = [op for op in ops if not isinstance(op, self.broken)]
        self.seen.extend(passing)
        applied = await self._inner.apply(passing)
        outcomes = iter(applied.outcomes)
        refused = Failure(self.refusal)
        return Applied([refused if isinstance(op, self.broken) else next(outcomes) for op in ops], applied.touched)


def calling(name: str, **arguments: Any) -> Body[Any]:
    """A body that calls a tool as a model does."""

    async def run(turn: Turn) -> Any:
        return await turn.tools.call(name, arguments)

    return run


def lasting(seconds: float, ended: list[float] | None = None) -> Body[str]:
    """A body that sleeps; `ended` gets the time of its end, also if it was cancelled."""

    async def run(turn: Turn) -> str:
        try:
            await trio.sleep(seconds)
        finally:
            if ended is not None:
                ended.append(trio.current_time())
        return f"attempt {turn.attempt}"

    return run


@attrs.define
class Board:
    """A running Callboard as the turn tests drive it. What it posts is from the member `ann` unless a test says otherwise."""

    runtime: Runtime
    puppet: Puppet
    gate: Gate
    ann: Sender = attrs.field(factory=lambda: Sender("ann", "member", "Ann"))

    @property
    def scope(self) -> Scope:
        return self.runtime.scope

    async def open(self, agent: str = "agent", path: str | None = None, title: str = "") -> Session:
        return await self.runtime.open_session(agent=agent, path=path, title=title)

    async def post(
        self,
        session: Session,
        content: str = "hello",
        *,
        sender: Sender | None = None,
        kind: Kind = Kind.MEMBER_MESSAGE,
        **fields: Any,
    ) -> Receipt:
        target = f"session:{session.id}"
        return await self.runtime.store.apply(
            enqueue(self.scope, target, sender or self.ann, content, kind=kind, **fields)
        )

    def plan(self, session: Session, *bodies: Body[str | None]) -> None:
        """What the agent does in the session's next attempts, one body each."""
        self.puppet.bodies.setdefault(session.id, []).extend(bodies)

    def runs(self, session: Session) -> int:
        return self.puppet.runs.get(session.id, 0)

    async def ask(self, session: Session, content: str = "hello", **fields: Any) -> MessageView:
        """Post, and wait for the message's final state."""
        return await self.final(await self.post(session, content, **fields))

    async def final(self, receipt: Receipt) -> MessageView:
        return await self.runtime.desk.wait(self.scope, receipt.id)

    async def message(self, receipt: Receipt) -> MessageView:
        return await self.runtime.store.reads.message(self.scope, receipt.id)

    async def inside(self, session: Session, body: Body[T], content: str = "hello") -> T:
        """Run `body` in a turn of the session and give what it returned, or raise what it raised; the turn commits either way."""
        results: list[outcome.Value[T] | outcome.Error] = []

        async def captured(turn: Turn) -> None:
            results.append(await outcome.acapture(body, turn))

        self.plan(session, captured)
        await self.ask(session, content)
        (result,) = results
        return result.unwrap()

    async def entries(self, session: Session) -> list[Entry]:
        found: list[Entry] = []
        while page := await self.runtime.desk.transcript(self.scope, session.id, after=len(found)):
            found.extend(page)
        return found

    async def texts(self, session: Session, role: str = "assistant") -> list[str]:
        return [entry.content for entry in await self.entries(session) if entry.role == role]

    async def events(self, session: Session, kind: str | None = None, *, after: int = 0) -> list[Event]:
        """Events of a session as the rows have them."""
        found: list[Event] = []
        more = True
        while more:
            page = await self.runtime.store.reads.events(self.scope, session.id, after=after)
            found.extend(page.events)
            more, after = page.more, page.events[-1].id if page.events else after
        return [event for event in found if kind is None or event.kind == kind]

    async def kinds(self, session: Session, *, after: int = 0) -> list[str]:
        return [event.kind for event in await self.events(session, after=after)]

    async def until(self, session: Session, kind: str, count: int = 1) -> list[Event]:
        """Follow the session until `count` events of `kind` have come; all events up to there."""
        seen: list[Event] = []
        async with self.runtime.follow(session.id) as feed:
            async for event in feed:
                assert isinstance(event, Event), event
                seen.append(event)
                count -= event.kind == kind
                if count == 0:
                    break
        return seen

    async def keep_busy(self, session: Session) -> trio.Event:
        """Keep a turn of the session running until the event is set."""
        begun, go_on = trio.Event(), trio.Event()

        async def release(scope: trio.CancelScope) -> None:
            await go_on.wait()
            scope.cancel()

        async def held(turn: Turn) -> None:
            begun.set()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(release, nursery.cancel_scope)
                await turn.sleep(3_600)
                nursery.cancel_scope.cancel()

        self.plan(session, held)
        await self.post(session, "keep busy")
        await begun.wait()
        return go_on

    def restarts(self) -> dict[str, int]:
        """How often each member of the tree has been started anew."""
        return {node.name: node.restarts for node in self.runtime.snapshot().children}

    def children(self, supervisor: str) -> tuple[Node, ...]:
        return next(node for node in self.runtime.snapshot().children if node.name == supervisor).children


@asynccontextmanager
async def running(
    agents: Mapping[str, object] | None = None,
    *,
    url: str = MEMORY,
    project: str = "default",
    tuning: Tuning | None = None,
    executor: Literal["thread", "inline"] = "inline",
    extra: Extra | None = None,
) -> AsyncIterator[Board]:
    """A board whose agents are `agent` (a `Puppet`) and those given.

    A test that waits for what never comes fails after a while: an hour on a clock that jumps, a minute on the real one.
    """
    puppet = Puppet()
    known = {"agent": puppet, **(agents or {})}
    limit = 3_600 if isinstance(trio.lowlevel.current_clock(), MockClock) else 60
    with trio.fail_after(limit):
        async with open_runtime(
            url, agents=known, project=project, tuning=tuning, executor=executor, extra=extra
        ) as runtime:
            commit = runtime.store._commit
            gate = commit._driver = Gate(commit._driver)
            yield Board(runtime, puppet, gate)


__all__ = ["MEMORY", "OPERATOR", "Bench", "Board", "Body", "Gate", "Puppet", "calling", "lasting", "running"]
