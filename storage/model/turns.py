"""Turns. Lives here: the lease, what a claim hands over, steps of the step log, tool classes. Not here: running them.

Invariant: a value that writes for a turn carries its `Lease`; the store compares the epoch in the same transaction (RT-8).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from .addresses import Scope, Sender, session_at
from .sessions import SessionKind


class ToolClass(StrEnum):
    """What may be done with a call that has no recorded result after a crash (RT-10)."""

    DURABLE = "durable"
    """Run again under its action id: the same record comes back."""
    PURE = "pure"
    """Run again."""
    EXTERNAL = "external"
    """May have run; never blindly repeated: its result is `interrupted`."""


class StepKind(StrEnum):
    """Rows of the step log."""

    ROUND = "round"
    """A model round: response, calls, request hash."""
    CALL = "call"
    """A tool call; done once it has a result."""
    STEER = "steer"
    """Messages that were taken into the turn."""
    RECONCILE = "reconcile"
    """The outcome of the turn's end was unknown, and has been read back."""


@attrs.frozen
class Step:
    """One committed step of a turn. `key` is unique in its turn (an action id for calls); `data` and `result` are JSON."""

    key: str
    kind: StepKind
    ordinal: int
    done: bool
    data: dict[str, Any]
    result: Any = None


@attrs.frozen
class Summary:
    """What a model made of a session's entries up to number `upto`, for prompts that come later."""

    upto: int
    text: str


@attrs.frozen(weakref_slot=False)
class Lease:
    """The right to write for one mailbox until it is lost. `mailbox` is the row; `head` the head message's row; `attempt` its claim ordinal."""

    mailbox: int
    recipient: str
    epoch: int
    head: int
    attempt: int


@attrs.frozen(weakref_slot=False)
class TurnMessage:
    """A message as an agent sees it. `payload` is undecoded JSON text: decoding it is a step that may fail alone (RT-12)."""

    row: int
    id: str
    message_id: str
    kind: str
    sender: Sender
    content: str
    seq: int
    chain: str
    hops: int
    created_at: float
    payload: str | None = None
    reply_to: str | None = None
    steered: bool = False
    """Was taken into the turn while it ran, by this or an earlier attempt."""


@attrs.frozen
class StopRequest:
    """A stored stop of a running turn. `at` is store time in seconds, `grace` seconds."""

    at: float
    grace: float


@attrs.frozen(weakref_slot=False)
class Claimed:
    """One claimed mailbox: everything that its turn needs, so that no read follows.

    `attempts` and `takeovers` are of the head; `deadline` is a child's time limit.
    """

    lease: Lease
    lease_until: float
    scope: Scope
    kind: SessionKind
    agent: str
    path: str | None
    parent: str | None
    head: TurnMessage
    carried: tuple[TurnMessage, ...]
    attempts: int
    max_attempts: int
    takeovers: int
    stop: StopRequest | None
    deadline: float | None

    @property
    def session(self) -> str:
        """The session whose mailbox it is."""
        return session_at(self.lease.recipient)

    @property
    def steps(self) -> bool:
        """Whether the step log may have rows for it: an earlier attempt may have left some."""
        return self.lease.attempt > 1
