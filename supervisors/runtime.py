"""The composition root and the public API: what runs, in which order, and what an embedding program calls.

The tree, started from top to bottom and stopped in reverse; when one fails, it and those below it are started again:
store → tails → pulse → sessions → keeper → dispatcher → janitor → front.

Invariant: no globals, no signal handlers, no logging set-up: a program may run several runtimes (RT-16).
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from ..actors.desk import Desk
from ..actors.dispatch.dispatcher import Dispatcher
from ..actors.dispatch.janitor import Janitor
from ..actors.dispatch.keeper import Keeper
from ..actors.ports import Tuning
from ..actors.session.agents.base import Runs, agents_from, purposes_of
from ..actors.session.tokens import Pulse
from ..actors.tail import Feed
from ..storage.model.addresses import Scope, Sender
from ..storage.model.errors import CallboardError, RuntimeFailed
from ..storage.model.messages import MessageView, Receipt
from ..storage.model.policies import AgentsMay, By, Edge
from ..storage.model.sessions import Entry, Session
from ..storage.ops import PruneProcesses
from ..storage.ops.namespace import set_policy
from ..storage.store import Store, open_store
from .figures import Figures, Meters
from .telemetry import log_failure, log_tree_event
from .tree import (
    ChildSpec,
    DynamicSupervisor,
    Escalated,
    IntensityExceeded,
    Node,
    StartFailed,
    Strategy,
    Supervisor,
    TreeEvent,
    open_tree,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from .tracing import Traces

ROOT: Final = "callboard"
OPERATOR: Final = Sender("operator", "member", "operator")
FOLLOWERS_MOST: Final = 20_000
GOODBYE_SECONDS: Final = 2.0
Extra = Callable[["Runtime"], list[ChildSpec]]


class Runtime:
    """A running Callboard. Get one from `open_runtime`; every method acts in its project, as the operator."""

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, Runs],
        tuning: Tuning,
        scope: Scope,
        extra: Extra | None,
        traces: Traces | None = None,
    ) -> None:
        self.process = f"{socket.gethostname()}.{os.getpid()}.{token_hex(3)}"
        self.scope = scope
        self.store = store
        self.agents = agents
        self.figures = Figures()
        self.failure: RuntimeFailed | None = None
        """Why the root gives up, from the moment of that decision: the block ends only when every child has."""
        self.ending = trio.Event()
        """Set with `failure`, and when the block around the runtime is left, by whatever way."""
        tails = DynamicSupervisor("tails", max_children=FOLLOWERS_MOST, grace_seconds=1.0)
        sessions = DynamicSupervisor(
            "sessions",
            max_children=tuning.live_turns,
            grace_seconds=5.0,
            on_failure=log_failure,
            observer=log_tree_event,
        )
        pulse = Pulse()
        meter = self.figures if traces is None else Meters((self.figures, traces))
        store.observer = None if traces is None else traces.committed
        self.desk = Desk(store, agents.keys(), tails, tuning, meter, purposes_of(agents), home=scope)
        self.dispatcher = Dispatcher(self.desk, agents, sessions, pulse, self.process)
        keeper = Keeper(store, self.dispatcher.live, tuning)
        janitor = Janitor(store, events=tuning.event_keep_seconds, messages=tuning.message_keep_seconds)
        self._root = Supervisor(
            ROOT,
            [
                ChildSpec("store", store.run, grace_seconds=15.0),
                tails.spec(),
                ChildSpec("pulse", pulse.run),
                sessions.spec(),
                ChildSpec("keeper", keeper.run),
                ChildSpec("dispatcher", self.dispatcher.run),
                ChildSpec("janitor", janitor.run),
                *(extra(self) if extra else ()),
            ],
            strategy=Strategy.REST_FOR_ONE,
            observer=self._observe,
        )

    async def open_session(self, *, agent: str, path: str | None = None, title: str = "") -> Session:
        """Open a session, or get the one at `path`. Raises `UnknownAgent`, `PathTaken` (another agent has it), `InvalidField`."""
        return (await self.desk.open(self.scope, agent, path=path, title=title, by=By.OPERATOR)).session

    async def rename_session(self, session: str, *, path: str | None = None, title: str | None = None) -> Session:
        """Give a session (an id or a path) another path or title; its id stays, and the old path leads to it for 30 days.

        Raises `UnknownTarget`, `PathTaken`, `InvalidField`, `Conflict` for the root.
        """
        return await self.desk.rename(self.scope, await self._id(session), title, path=path, by=By.OPERATOR)

    async def set_policy(
        self,
        prefix: str = "/",
        *,
        edge: Literal["collaborate", "handoff_only"] | None = None,
        agents: Literal["none", "create", "rename"] | None = None,
        handoff: bool | None = None,
        confirm: bool | None = None,
    ) -> None:
        """Set all that is said at a prefix of paths: what is left out comes from the prefix above. Raises `InvalidField`."""
        op = set_policy(
            self.scope,
            prefix,
            edge=None if edge is None else Edge(edge),
            agents=None if agents is None else AgentsMay(agents),
            handoff=handoff,
            confirm=confirm,
        )
        await self.store.apply(op)

    async def list_sessions(self, *, active: bool = False, limit: int = 200) -> tuple[Session, ...]:
        """Sessions of the project, newest change first."""
        return (await self.store.reads.sessions(self.scope, active=active, limit=limit)).items

    async def send(self, session: str, content: str, *, message_id: str | None = None) -> Receipt:
        """Post to a session (an id or a path); returns once the message is a committed row.

        Sending the same `message_id` again is the same send. Raises `UnknownTarget`, `InvalidField`, `MessageConflict`, `MailboxFull`.
        """
        target = await self._id(session)
        return await self.desk.send(self.scope, target, content, OPERATOR, message_id=message_id)

    def follow(self, session: str, *, after: int = 0) -> AbstractAsyncContextManager[Feed]:
        """Events of a session (by id) above `after`: first from rows, then live. Each has `id`, `kind` and `data`.

        A cursor that can't be served gives one item of kind `resync`. Raises `WouldDeadlock` inside a turn.
        """
        return self.desk.follow(self.scope, session, after=after)

    async def read(self, session: str, *, after: int = 0) -> list[Entry]:
        """The transcript of a session above entry `after`, oldest first."""
        return await self.desk.transcript(self.scope, await self._id(session), after=after)

    async def receipt(self, message_id: str) -> MessageView:
        """Which stage a message is in. Raises `NotFound`, `AmbiguousId`."""
        return await self.desk.receipt(self.scope, message_id, principal=OPERATOR.principal)

    async def wait(self, message_id: str) -> MessageView:
        """Wait until a message is final. Raises `NotFound`, `WouldDeadlock` inside a turn."""
        return await self.desk.wait(self.scope, message_id, principal=OPERATOR.principal)

    async def stop(self, session: str, *, drop_queued: bool = False) -> str:
        """Store a stop for the running turn and return the turn's id. Raises `UnknownTarget`, `Inactive`."""
        return (await self.desk.stop(self.scope, await self._id(session), drop_queued=drop_queued)).turn

    def snapshot(self) -> Node:
        """The supervision tree at this moment."""
        return self._root.snapshot()

    async def _id(self, session: str) -> str:
        return (await self.desk.find(self.scope, session)).id if session.startswith("/") else session

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Runtime]:
        """Keep the tree alive around a block; turns that still run at its end get their grace, then their messages go back."""
        try:
            async with open_tree(self._root):
                try:
                    yield self
                finally:
                    self.ending.set()
                    await self._drain()
        except (IntensityExceeded, StartFailed) as error:
            raise _gave_up(error) from error
        except ExceptionGroup as both:
            # The block met the end of the tree too, usually as StoreDown.
            for error in both.exceptions:
                if isinstance(error, (IntensityExceeded, StartFailed)):
                    raise _gave_up(error) from both
            raise

    def _observe(self, event: TreeEvent) -> None:
        log_tree_event(event)
        if isinstance(event, Escalated) and event.supervisor == ROOT:
            self.failure = _gave_up(event.error)
            self.failure.__cause__ = event.error
            self.ending.set()

    async def _drain(self) -> None:
        tuning = self.desk.tuning
        limit = tuning.stop_grace_seconds + tuning.stuck_after_seconds + tuning.lease_seconds
        with trio.move_on_after(limit, shield=True):
            await self.dispatcher.shut_down(tuning.stop_grace_seconds)
        with (
            trio.move_on_after(GOODBYE_SECONDS, shield=True),
            suppress(CallboardError),
        ):  # else it counts as dead for a day
            await self.store.apply(PruneProcesses(left=self.process))


@asynccontextmanager
async def open_runtime(
    url: str,
    *,
    agents: Mapping[str, Any],
    project: str = "default",
    tuning: Tuning | None = None,
    executor: Literal["thread", "inline"] = "thread",
    extra: Extra | None = None,
    tracer_provider: TracerProvider | None = None,
) -> AsyncIterator[Runtime]:
    """Open the store at `url`, start everything and stop it cleanly at the end of the block.

    `agents` maps names to objects with `run(turn)`, or functions `(turn) -> str | None`, async or plain. `extra` adds children to the tree.
    `tracer_provider` is one of OpenTelemetry's SDK (extra `otel`): it is given a trace of each message from its send to the answer.
    Raises `InvalidField` for what is no agent, `StoreError` kinds for a store that can't be used, `RuntimeFailed` if the root gives up.
    """
    known = agents_from(agents)
    traces = None if tracer_provider is None else traces_into(tracer_provider)
    async with open_store(url, executor=executor) as store:
        runtime = Runtime(store, known, tuning or Tuning(), Scope(project=project), extra, traces)
        async with runtime.running():
            yield runtime


def _gave_up(error: Exception) -> RuntimeFailed:
    return RuntimeFailed(f"the runtime gave up: {error}")


def traces_into(provider: TracerProvider) -> Traces:
    """The meter that writes traces to `provider`. Imported here: nobody else needs OpenTelemetry installed."""
    from .tracing import Traces

    return Traces(provider)
