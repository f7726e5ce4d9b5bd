"""Ops of a turn, each fenced by its lease's epoch in its own transaction (RT-8).

What a turn has done is committed as it happens (`RecordStep`, `EmitTokens`, `Absorb`); its end is exactly one of `CommitTurn`, `Retry`,
`Fail`, `HandBack`, and (turn, attempt, epoch, outcome) is recorded: the same end again returns the first result, and only a
different epoch is `LeaseLost`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import attrs

from ..model.limits import ERROR_CHARS
from ..model.states import Outcome, Reason, Status
from ..model.turns import Lease, Step, StepKind, Summary
from .base import Lane, Op, json_size, text_size
from .inbox import Enqueue
from .sessions import OpenSession
from .upkeep import RequestStop


def _storable(text: str | None) -> str | None:
    """What an agent said, as every database can hold it: a turn must not fail because of one character, which PostgreSQL has no place for."""
    return None if text is None else text.replace("\0", "\ufffd")


def _short(error: str) -> str:
    return error[:ERROR_CHARS].replace("\0", "\ufffd")


@attrs.frozen
class Absorb(Op[Step]):
    """Take waiting messages that may steer into the running turn, as a step (`key` names the occurrence), and return that step.

    The step's result is a list of `TurnMessage` as JSON objects.
    """

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the step of this key is returned as it was recorded"

    lease: Lease
    key: str
    ordinal: int
    limit: int = 32


@attrs.frozen
class EmitTokens(Op[int]):
    """Commit one block of streamed text as a `turn.token` event; returns its id, or the newest event's for a repeat."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "a block whose number is not above the attempt's last one was already written"

    lease: Lease
    block: int
    text: str

    @property
    def size(self) -> int:
        return 256 + text_size(self.text)


@attrs.frozen
class StepEvent:
    """An event to write with a step: `kind` of EVT-1 and its JSON data (turn, message and attempt are added)."""

    kind: str
    data: dict[str, Any]


@attrs.frozen
class HandOver:
    """Hand the user over to the session `channel_id`, which must still be at `path` and allowed by the project's rules."""

    path: str
    channel_id: str


@attrs.frozen
class RecordStep(Op[Step]):
    """Record a step, what it sends, opens and stops, and its events, in one transaction, before the tool returns.

    A call is recorded twice: begun (`done` False) and done. `sends` are refused as a whole: if one is (limits, unknown target), nothing
    of this op is written and the refusal is raised; the caller then records the refusal as the call's result. A step that was begun may
    be begun anew with other `data`, by a later attempt. `handoff` is checked in the transaction, refused like a send (`UnknownTarget`,
    `NotPermitted`), and written as an event `turn.handoff` behind the others (HND-2).
    """

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = (
        "a step of this key that is done, or begun with the same data, is returned as it was recorded"
    )

    lease: Lease
    key: str
    kind: StepKind
    ordinal: int
    done: bool
    data: dict[str, Any]
    result: Any = None
    sends: tuple[Enqueue, ...] = ()
    opens: tuple[OpenSession, ...] = ()
    stops: tuple[RequestStop, ...] = ()
    events: tuple[StepEvent, ...] = ()
    handoff: HandOver | None = None
    summary: Summary | None = None
    """Kept for the session, if it is of more entries than the one before."""

    @property
    def size(self) -> int:
        carried = (*self.sends, *self.opens, *self.stops)
        events = sum(json_size(event.data) for event in self.events)
        events += 0 if self.summary is None else text_size(self.summary.text)
        return 1024 + json_size(self.data) + json_size(self.result) + events + sum(op.size for op in carried)

    @property
    def wakes(self) -> bool:
        return bool(self.sends)


class End(StrEnum):
    """How a delivery ended."""

    COMMITTED = "committed"
    RETRIED = "retried"
    FAILED = "failed"
    HANDED_BACK = "handed_back"


@attrs.frozen
class Ended:
    """What an ending op did. `due` is store time of the mailbox's next look, None for idle; `seq` the answer's entry."""

    end: End
    status: Status
    due: float | None
    seq: int | None = None


@attrs.frozen
class CommitTurn(Op[Ended]):
    """End a turn: answer entry, delivered states and a marker for each consumed message, terminal event, wake-ups, in one transaction.

    A turn that has handed the user over carries that in its answer and its terminal event; one that would end without an answer gets a
    line for it, so that whoever only reads the transcript finds it (HND-3).

    `consumed` are message rows (head, carried, steered ones that the agent saw); other processing rows return to pending.
    `tail` is streamed text that no block holds yet. `stuck` marks the mailbox (RT-6). `undecodable` are `msg_…` ids that came along and
    could not be read: they fail beside the turn, which went on without them (RT-12).
    """

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the head's marker holds the epoch: at the same epoch the first result is returned"

    lease: Lease
    outcome: Outcome
    answer: str | None = attrs.field(converter=_storable)
    consumed: tuple[int, ...]
    tail: str = ""
    block: int = 0
    stuck: str | None = None
    undecodable: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        rows = 64 * (len(self.consumed) + len(self.undecodable))
        return 512 + 2 * text_size(self.answer) + text_size(self.tail) + rows

    @property
    def wakes(self) -> bool:
        return True


@attrs.frozen
class Retry(Op[Ended]):
    """An agent failed: count an attempt and put the head off `delay` seconds, or fail it (`retries_used`) at its last one."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the attempt's record holds the epoch: at the same epoch the first result is returned"

    lease: Lease
    error: str = attrs.field(converter=_short)
    delay: float

    @property
    def size(self) -> int:
        return 256 + 2 * text_size(self.error)


@attrs.frozen
class Fail(Op[Ended]):
    """Fail the head for good; carried and steered messages return to pending; the sender is told."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the attempt's record holds the epoch: at the same epoch the first result is returned"

    lease: Lease
    reason: Reason
    error: str = attrs.field(converter=_short)

    @property
    def size(self) -> int:
        return 256 + 2 * text_size(self.error)


@attrs.frozen
class HandBack(Op[Ended]):
    """Return a claimed turn unharmed: no attempt, no takeover. `delay` in seconds (0: due now)."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the attempt's record holds the epoch: at the same epoch the first result is returned"

    lease: Lease
    cause: str = attrs.field(converter=_short)
    delay: float = 0.0

    @property
    def size(self) -> int:
        return 256 + 2 * text_size(self.cause)

    @property
    def wakes(self) -> bool:
        return self.delay <= 0
