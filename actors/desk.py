"""The desk: what edges, tools and embedding programs ask for, in the words of people: open, send, follow, read, stop, receipt.

Lives here: resolving addresses, limits of each door, waiting rules. Not here: who may (edges), rows (storage), turns (session).
Invariant: a send returns after its row is committed (INB-1).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, Protocol

import attrs
import trio

from ..storage.model.addresses import PEER, Scope, Sender, check_path, session_address, session_at
from ..storage.model.approvals import Approval
from ..storage.model.errors import (
    Conflict,
    InvalidField,
    NotFound,
    PathTaken,
    UnknownAgent,
    UnknownTarget,
    WouldDeadlock,
)
from ..storage.model.events import TERMINAL
from ..storage.model.ids import message_of_turn, turn_id
from ..storage.model.limits import PAGE_LIMIT
from ..storage.model.messages import Kind, MessageView, Receipt, check_text
from ..storage.model.policies import ROOT, By
from ..storage.model.sessions import Entry, Session, SessionKind
from ..storage.model.states import OPEN
from ..storage.model.turns import StepKind
from ..storage.ops import AnswerApproval, Cancel, DeleteSession, Navigate, RequestStop, Requeue
from ..storage.ops.inbox import enqueue
from ..storage.ops.namespace import Navigated
from ..storage.ops.sessions import Opened, open_session, update_session
from ..storage.ops.upkeep import Pruned, PruneMessages, Stopping
from ..storage.reads import page_limit
from ..storage.store import Store
from .ports import Meter, Spawn, Tuning, Unwatched
from .tail import Feed, Tails

PRUNE_SECONDS: Final = 5.0
"""A person waits for it: then they are told that there is more to do."""

CURSOR_MOST: Final = 2**62
"""Beyond any event: a larger cursor is served as this one, with a resync."""
ID_CHARS: Final = 512
"""More than any id or address of ours has."""


@attrs.define
class Desk:
    """The doors to one store in one process. `agents` are the names that may be opened here, `purposes` what each says that it is for.

    The first of `agents` is the default: it has the root of a project where nobody has opened that with another one.
    """

    store: Store
    agents: Collection[str]
    spawn: Spawn
    tuning: Tuning = attrs.field(factory=Tuning)
    meter: Meter = attrs.field(factory=Unwatched)
    purposes: Mapping[str, str] = attrs.field(factory=dict[str, str])
    home: Scope | None = None
    """The project that is there from the beginning: others must have been opened by somebody before they have a root."""
    tails: Tails = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tails = Tails(self.store, self.spawn)

    async def open(
        self,
        scope: Scope,
        agent: str,
        *,
        path: str | None = None,
        title: str = "",
        must_create: bool = False,
        id: str | None = None,
        by: By | None = None,
    ) -> Opened:
        """Open a session, or get the one at `path`. Raises `UnknownAgent`, `PathTaken`, `InvalidField`; `NotPermitted` for an agent.

        Which agent has the root is the operator's choice: for others it is there already, with the default one (NS-3).
        Without `by` it is the operator who asks, or, inside a turn, an agent.
        With an `id` of the caller's making the call can be repeated: a session of that id is returned as it is. Raises `UnknownTarget`
        if that was deleted, `Conflict` if the id has opened another one.
        """
        self.check_agent(agent)
        by = by or _asker()
        if id is not None:
            check_text(id, "id", ID_CHARS)
        if path == ROOT and by is not By.OPERATOR:
            await self.root(scope)
        op = open_session(
            scope, agent, path=path, title=title, must_create=must_create, kind=SessionKind.INTERACTIVE, by=by
        )
        return await self.store.apply(op if id is None else attrs.evolve(op, id=id))

    def check_agent(self, agent: str) -> str:
        """Return `agent` if this process knows it. Raises `UnknownAgent`."""
        if agent not in self.agents:
            known = ", ".join(sorted(self.agents)[:10]) or "none"
            raise UnknownAgent(f"no agent is called {agent!r}; known: {known}", path="agent")
        return agent

    async def root(self, scope: Scope) -> Session:
        """The session at `/`, which every project has: it is opened at its first use, if it was not before (NS-3).

        Raises `UnknownTarget` for a project that nobody has opened, and where no agent is known.
        """
        try:
            return await self.store.reads.session_at(scope, ROOT)
        except UnknownTarget:
            default = next(iter(self.agents), None)
            if default is None or not (scope == self.home or await self.store.reads.project_known(scope)):
                raise
        with suppress(PathTaken):  # by another process, whose default is another agent
            return (await self.open(scope, default, path=ROOT, by=By.OPERATOR)).session
        return await self.store.reads.session_at(scope, ROOT)

    async def find(self, scope: Scope, address: str) -> Session:
        """The session that an id or a path names, or a path that it had: its path now is in the answer.

        Raises `UnknownTarget`; `InvalidField` for a path that is not canonical.
        """
        if PEER.match(address):
            raise UnknownTarget("no peer of that id is paired", path="agent_id")
        if address == ROOT:
            return await self.root(scope)
        if address.startswith("/"):
            return await self.store.reads.session_at(scope, check_path(address))
        return await self.store.reads.session(scope, _session(session_at(address)))

    async def send(
        self,
        scope: Scope,
        session: str,
        content: str,
        sender: Sender,
        *,
        message_id: str | None = None,
        kind: Kind = Kind.MEMBER_MESSAGE,
    ) -> Receipt:
        """Post to a session; returns once the message is a committed row.

        Raises `InvalidField`, `UnknownTarget`, `MessageConflict`, `MailboxFull`, `Busy`; `NotPermitted` for an agent, by the rules.
        """
        op = enqueue(
            scope,
            session_address(_session(session)),
            sender,
            content,
            kind=kind,
            message_id=message_id,
            depth_limit=self.tuning.mailbox_depth,
            edge=self.tuning.edge,
        )
        return await self.store.apply(op)

    async def receipt(self, scope: Scope, message: str, *, principal: str | None = None) -> MessageView:
        """Which stage a message is in, by either id. Raises `NotFound`, `AmbiguousId`."""
        return await self.store.reads.message(scope, _message(message), principal=principal)

    async def steered_round(self, scope: Scope, message: MessageView) -> int | None:
        """How many model rounds of another message's turn it came after when that took it in (INB-10).

        None: it was not steered into a turn, or that turn's steps are forgotten.
        """
        if message.turn_id == turn_id(message.id):
            return None
        steps = await self.store.reads.steps(scope, message_of_turn(message.turn_id))
        rounds = 0
        for step in steps:
            rounds += step.kind is StepKind.ROUND and "round" in step.data
            if step.kind is StepKind.STEER and any(taken["id"] == message.id for taken in step.result or ()):
                return rounds
        return None

    async def transcript(self, scope: Scope, session: str, *, after: int = 0, limit: int = PAGE_LIMIT) -> list[Entry]:
        """Entries above `after`, oldest first. Raises `UnknownTarget`, `InvalidField` for a bad limit."""
        await self.store.reads.session(scope, _session(session))
        most = page_limit(limit)
        return await self.store.reads.transcript(scope, session, after=min(max(after, 0), CURSOR_MOST), limit=most)

    async def stop(
        self,
        scope: Scope,
        session: str,
        *,
        drop_queued: bool = False,
        grace: float | None = None,
        key: str | None = None,
    ) -> Stopping:
        """Store a stop for the running turn; a repeat under `key` stops no later one. Raises `UnknownTarget`, `Inactive`."""
        seconds = self.tuning.stop_grace_seconds if grace is None else grace
        if key is not None:
            check_text(key, "key", ID_CHARS)
        return await self.store.apply(RequestStop(scope, session_address(_session(session)), seconds, drop_queued, key))

    async def rename(
        self,
        scope: Scope,
        session: str,
        title: str | None = None,
        *,
        path: str | None = None,
        by: By | None = None,
    ) -> Session:
        """Set a session's title and path (None leaves it), both or neither; its old path leads to it for 30 days (NS-3).

        Without `by` it is the operator who asks, or, inside a turn, an agent.
        Raises `UnknownTarget`, `InvalidField`, `PathTaken`, `Conflict` for the root, `NotPermitted` for an agent, by the rules.
        """
        return await self.store.apply(
            update_session(scope, _session(session), title=title, path=path, by=by or _asker())
        )

    async def navigate(
        self, scope: Scope, principal: str, client: str, session: str, *, also: tuple[str, ...] = ()
    ) -> Navigated:
        """Note that a client goes to a session, with the newest event of each that it may come from. Raises `UnknownTarget`."""
        return await self.store.apply(Navigate(scope, principal, client, _session(session), also))

    async def delete(self, scope: Scope, session: str, by: Sender) -> None:
        """Delete a session; what waits in it fails with `target_deleted`. Raises `UnknownTarget`, `Conflict` for the root."""
        await self.store.apply(DeleteSession(scope, _session(session), by))

    async def requeue(
        self, scope: Scope, message: str, *, principal: str | None = None, new_id: str | None = None
    ) -> Receipt:
        """Accept a final message again as a new row.

        Raises `NotFound`, `AmbiguousId`, `IllegalMove`, `UnknownTarget`, `MailboxFull`; `NotPermitted` for an agent, by the rules.
        With a `new_id` of the caller's making the call can be repeated: a row of that id is returned as it is. An operator may put in
        again what a session sent before the project's rules forbade it; inside a turn it is an agent that asks, and they hold.
        """
        if new_id is not None:
            check_text(new_id, "id", ID_CHARS)
        view = await self.store.reads.message(scope, _message(message), principal=principal)
        op = Requeue(
            scope, view.id, depth_limit=self.tuning.mailbox_depth, edge=self.tuning.edge if _in_turn() else None
        )
        receipt = await self.store.apply(op if new_id is None else attrs.evolve(op, new_id=new_id))
        if not receipt.created and (await self.store.reads.message(scope, receipt.id)).requeued_from != view.id:
            raise Conflict("another message was requeued under this key", path="id")
        return receipt

    async def cancel(self, scope: Scope, message: str, *, principal: str | None = None) -> MessageView:
        """Fail a pending message. Raises `NotFound`, `AmbiguousId`, `IllegalMove`."""
        view = await self.store.reads.message(scope, _message(message), principal=principal)
        await self.store.apply(Cancel(scope, view.id))
        return await self.store.reads.message(scope, view.id)

    async def answer(self, scope: Scope, approval: str, *, approve: bool, by: str) -> Approval:
        """Allow or deny a call that waits for it. Raises `NotFound`; `Conflict` if it was answered otherwise, or too late."""
        if not _storable(approval):
            raise NotFound("there is no such approval here", path="id")
        return await self.store.apply(AnswerApproval(scope, approval, approve, by))

    async def prune(self, scope: Scope, keep_seconds: float, *, seconds: float = PRUNE_SECONDS) -> Pruned:
        """Take the bodies of messages that ended longer ago than `keep_seconds`, for about `seconds`; `more` says that there are others.

        Raises `UnknownTarget` for a project in which nothing was ever opened, `InvalidField` for a negative age.
        """
        if not keep_seconds >= 0:
            raise InvalidField("must not be negative", path="older_than_seconds")
        end = trio.current_time() + seconds
        total = Pruned(0, 0, more=True)
        while total.more:
            done = await self.store.apply(PruneMessages(scope, keep_seconds))
            total = Pruned(total.blanked + done.blanked, total.deleted + done.deleted, more=done.more)
            if trio.current_time() >= end:
                break
        return total

    def follow(self, scope: Scope, session: str, *, after: int = 0) -> AbstractAsyncContextManager[Feed]:
        """Events above `after`, from rows and then live. Iterate the feed; `UnknownTarget` comes at its first step, if not before.

        Raises `InvalidField` for a negative cursor, `WouldDeadlock` inside a turn of another session.
        """
        if after < 0:
            raise InvalidField("must not be negative", path="after")
        refuse_in_turn(_session(session))
        return self.tails.follow(scope, session, min(after, CURSOR_MOST))

    @asynccontextmanager
    async def follow_turn(self, scope: Scope, turn: str, *, after: int = 0) -> AsyncIterator[tuple[Feed, str]]:
        """The feed of the session that runs `turn`, and that session. Raises `NotFound`."""
        view = await self.store.reads.message(scope, message_of_turn(_message(turn)))
        async with self.follow(scope, view.session, after=after) as feed:
            yield feed, view.session

    async def wait(self, scope: Scope, message: str, *, principal: str | None = None) -> MessageView:
        """Wait until a message is final. Raises `NotFound`, `AmbiguousId`; `WouldDeadlock` inside a turn."""
        view = await self.store.reads.message(scope, _message(message), principal=principal)
        refuse_in_turn(view.session)
        if view.status not in OPEN:
            return view  # also if its session is gone by now
        newest = (await self.store.reads.session(scope, view.session)).newest_event
        async with self.tails.follow(scope, view.session, newest) as feed:
            # Looked at again after the cursor was taken: an end in between would never be an event above it.
            view = await self.store.reads.message(scope, view.id)
            while view.status in OPEN:
                event = await anext(feed)
                if event.kind == "resync" or event.kind in TERMINAL:
                    view = await self.store.reads.message(scope, view.id)
        return view


class Runner(Protocol):
    """Whoever runs a turn's agent, and knows while it does."""

    @property
    def in_agent(self) -> bool: ...


RUNNER: Final = ContextVar[Runner | None]("callboard_turn", default=None)
"""Set in the task that runs an agent, and so in whatever that starts. Never set back: a task that it started in a nursery of the program's
has its context for ever, so only the runner can tell when the turn is over."""


def _in_turn() -> bool:
    runner = RUNNER.get()
    return runner is not None and runner.in_agent


def _asker() -> By:
    return By.AGENT if _in_turn() else By.OPERATOR


def refuse_in_turn(session: str) -> None:
    """Raise `WouldDeadlock` if a turn runs in this task: what it waits for may be waiting for it (SES-11)."""
    if _in_turn():
        raise WouldDeadlock(f"a turn must not wait for the session {session}; its answer comes as a message")


def _storable(id: str) -> bool:
    """Whether a row could have this id: no database takes half a surrogate pair or NUL, so asking it would be an error of its own."""
    return "\0" not in id and (id.isascii() or id.encode("utf-8", "replace").decode() == id)


def _session(id: str) -> str:
    if not _storable(id):
        raise UnknownTarget("there is no such session here", path="session")
    return id


def _message(id: str) -> str:
    if not _storable(id):
        raise NotFound("there is no such message here", path="id")
    return id
