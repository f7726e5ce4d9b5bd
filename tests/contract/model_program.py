"""Programs of ops: small commands that become ops when they are met, for what there is by then.

Here: commands, what they aim at, batches. Not here: how programs are drawn (`model_strategies`), what must come out (`model`), comparing
(`test_model`). A command points at the n-th of
what there is, and does nothing where there is nothing; so every program can be run, and shrinks to few commands with small numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from callboard.storage.model.addresses import Sender, session_address
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.model.turns import Lease, StepKind
from callboard.storage.ops import (
    Absorb,
    Cancel,
    Claim,
    CommitTurn,
    DeleteSession,
    EmitTokens,
    Fail,
    HandBack,
    Op,
    PruneEvents,
    PruneMessages,
    RecordStep,
    Renew,
    RequestStop,
    Requeue,
    Retry,
    VoidLeases,
)
from callboard.storage.ops.deliveries import StepEvent
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.tests.contract.model_state import State

ANN = Sender("ann", "member", "Ann")
KNOWN, STRANGER = "echo", "stranger"
LONG = 100.0
"""Seconds of leases and delays: longer than any run, so that what is due is beyond doubt also where time can't be stopped."""


@attrs.define
class World:
    """What commands may aim at: the model, and all leases that were ever given."""

    state: State
    sessions: list[str] = attrs.field(factory=list[str])
    leases: list[Lease] = attrs.field(factory=list[Lease])
    taken: dict[int, list[int]] = attrs.field(factory=dict[int, list[int]])
    number: int = 0

    def session(self, n: int) -> str:
        """Newest first, so that children are met too."""
        return self.sessions[-1 - n % len(self.sessions)]

    def lease(self, n: int) -> Lease | None:
        """Mostly the newest ones: what was lost long ago is of less interest."""
        return self.leases[-1 - n % len(self.leases)] if self.leases else None

    def message(self, n: int) -> str | None:
        """Those that are open first: with what is final little can be done."""
        keys = sorted(self.state.messages, key=lambda key: not self.state.messages[key].open)
        return self.state.ids.get(keys[n % len(keys)], keys[n % len(keys)]) if keys else None

    def next(self) -> int:
        self.number += 1
        return self.number


Make = Callable[[World], Op[Any] | None]


@attrs.frozen
class Send:
    to: int
    kind: Kind
    name: int
    text: int
    by: int
    attempts: int
    depth: int | None
    pair: int | None

    def __call__(self, world: World) -> Op[Any]:
        sender = ANN if self.by == 0 else Sender(world.session(self.by), "session", "S")
        limit = self.pair if self.kind is Kind.AGENT_MESSAGE else None
        return enqueue(
            world.state.scope, session_address(world.session(self.to)), sender, f"text {self.text}", kind=self.kind,
            message_id=f"m-{self.name}" if self.name else None, depth_limit=self.depth, pair_limit=limit,
            max_attempts=self.attempts,
        )  # fmt: skip


@attrs.frozen
class Take:
    holder: int
    agents: int
    again: bool
    exclude: bool

    def __call__(self, world: World) -> Op[Any]:
        holder = f"worker-{self.holder}"
        nonce = world.state.nonces.get(holder) if self.again else None
        agents = frozenset({KNOWN, STRANGER} if self.agents else {KNOWN})
        exclude = (world.leases[-1].mailbox,) if self.exclude and world.leases else ()
        return Claim(holder, nonce or f"n-{world.next()}", 100, LONG, agents, exclude)


@attrs.frozen
class Finish:
    lease: int
    how: str
    answer: bool
    also: int
    delay: bool

    def __call__(self, world: World) -> Op[Any] | None:
        lease = world.lease(self.lease)
        if lease is None:
            return None
        delay = LONG if self.delay else 0.0
        if self.how == "retry":
            return Retry(lease, "boom", delay)
        if self.how == "fail":
            return Fail(lease, Reason.UNDECODABLE, "boom")
        if self.how == "hand back":
            return HandBack(lease, "shutdown", delay)
        outcome = Outcome.STOPPED if self.how == "stop" else Outcome.ANSWERED
        return CommitTurn(
            lease, outcome, "done" if self.answer else None, self._consumed(world, lease), tail="tail", block=2
        )

    def _consumed(self, world: World, lease: Lease) -> tuple[int, ...]:
        """Mostly what the turn has; also too little, too much, twice, and what is another's."""
        box = world.state.boxes[world.state.mailboxes[lease.mailbox]]
        rows = {key: row for row, key in world.state.rows.items()}
        own = [rows[msg.key] for msg in box.messages if msg.status is Status.PROCESSING and msg.key in rows]
        match self.also:
            case 1:
                return (lease.head,)
            case 2:
                return (lease.head, *(row for row in sorted(world.state.rows) if row != lease.head))
            case 3:
                return (*own, *own)
            case _:
                return tuple(sorted({lease.head, *own}))


@attrs.frozen
class Renewing:
    count: int

    def __call__(self, world: World) -> Op[Any]:
        newest = {lease.mailbox: lease for lease in world.leases[-self.count :]}
        return Renew(tuple(newest.values()), 2 * LONG)


@attrs.frozen
class Step:
    lease: int
    what: str
    key: int
    to: int

    def __call__(self, world: World) -> Op[Any] | None:
        lease = world.lease(self.lease)
        if lease is None:
            return None
        if self.what == "absorb":
            return Absorb(lease, f"steer:{self.key}", self.key, limit=2)
        if self.what == "tokens":
            return EmitTokens(lease, self.key, f"token {self.key}")
        scope, me = world.state.scope, Sender(world.state.mailboxes[lease.mailbox], "session", "S")
        to = session_address(world.session(self.to) if self.to else "nobody")
        child = open_session(scope, KNOWN, parent=me.id)
        if self.what == "child":
            to = session_address(child.id)
        name = f"a-{lease.head}-{self.key}"
        send = enqueue(scope, to, me, f"step {self.key}", kind=Kind.AGENT_MESSAGE, message_id=name)
        return RecordStep(
            lease, f"call:{self.key}", StepKind.CALL, self.key, done=self.what != "begin", data={"n": self.key},
            result={"ok": self.to}, sends=(send,) if self.what in {"send", "child"} else (),
            opens=(child,) if self.what == "child" else (),
            events=(StepEvent("tool.call", {"n": self.key}),),
        )  # fmt: skip


@attrs.frozen
class Outside:
    what: str
    n: int
    flag: bool

    def __call__(self, world: World) -> Op[Any] | None:
        scope, session, message = world.state.scope, world.session(self.n), world.message(self.n)
        match self.what:
            case "stop":
                return RequestStop(
                    scope, session_address(session), 5.0, self.flag, f"k-{self.n}" if self.n % 2 else None
                )
            case "delete":
                return DeleteSession(scope, session, ANN)
            case "child":
                return open_session(scope, KNOWN, parent=session)
            case "events":
                return PruneEvents(-1.0, 10_000)
            case "messages":
                return PruneMessages(scope, -1.0)
            case "void":
                return VoidLeases()
            case _ if message is None:
                return None
            case "cancel":
                return Cancel(scope, message)
            case _:
                return Requeue(scope, message, depth_limit=2 if self.flag else None)


@attrs.frozen
class Batch:
    """Ops that share a transaction. `twice`: each of them two times, side by side; `again`: the whole batch once more after it."""

    commands: list[Make]
    twice: bool
    again: bool
    wait: bool
