"""Writes of a turn while it runs: Absorb, EmitTokens, RecordStep. Each reads the fence first; nothing is written by a lost lease."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from ..changes import Aspect
from ..model.addresses import Scope, Sender
from ..model.errors import LeaseLost
from ..model.ids import turn_id
from ..model.sessions import Handoff
from ..model.turns import Lease, Step, StepKind
from ..ops.deliveries import Absorb, EmitTokens, RecordStep
from ..rows import Row
from .accepting import enqueue
from .housing import open_session, request_stop
from .leasing import message_of
from .naming import hand_over, note_handoff
from .tx import Tx, encode, turn_data


@attrs.frozen
class Fence:
    """A mailbox whose lease was found to be held, with what the ops of its turn need."""

    lease: Lease
    scope: int
    last_seq: int
    last_event: int
    taken: int
    block: int
    uid: str
    message_id: str
    session: str
    parent: str | None
    child_state: str | None
    agent: str
    path: str | None
    chain: str
    hops: int
    attempts: int
    max_attempts: int
    kind: str
    sender: Sender
    owner: Scope
    handoff: str | None
    """What the newest turn here that handed over has handed over to (`naming.noted_handoff`)."""

    @property
    def turn(self) -> str:
        return turn_id(self.uid)

    def data(self, **more: Any) -> str:
        """JSON of a turn.* event of this attempt."""
        return turn_data(self.turn, self.message_id, self.lease.attempt, **more)


def fence(tx: Tx, lease: Lease) -> Fence:
    """Raise `LeaseLost` unless `lease` is held at its epoch; otherwise give what the mailbox holds."""
    (found,) = fence_all(tx, (lease,))
    if isinstance(found, LeaseLost):
        raise found
    return found


def fence_all(tx: Tx, leases: Sequence[Lease]) -> list[Fence | LeaseLost]:
    """The same for several mailboxes."""
    rows = {row[0]: row[1:] for row in tx.each("fence", fences_of(leases))}
    return [_fence(lease, rows.get(lease.mailbox)) for lease in leases]


def fences_of(leases: Sequence[Lease]) -> list[tuple[int]]:
    """What "fence" is asked for leases."""
    return [(lease.mailbox,) for lease in leases]


def _fence(lease: Lease, row: Row | None) -> Fence | LeaseLost:
    if row is None or row[0] != lease.epoch or row[1] is None or row[2] != lease.head:
        return LeaseLost(f"the lease of {lease.recipient} at epoch {lease.epoch} is lost")
    return Fence(
        lease=lease, scope=row[5], last_seq=row[3], last_event=row[4], taken=row[6], block=row[7], uid=row[9],
        message_id=row[10] or row[9], session=row[13], parent=row[14], child_state=row[15], agent=row[16], path=row[17],
        chain=row[18], hops=row[19], attempts=row[20], max_attempts=row[21], kind=row[22],
        sender=Sender(row[23], row[24]), owner=Scope(row[25], row[26]),
        handoff=row[27],
    )  # fmt: skip


def emit_tokens(tx: Tx, op: EmitTokens) -> int:
    """Carry out `EmitTokens`."""
    held = fence(tx, op.lease)
    if op.block <= held.block:
        return held.last_event
    event = held.last_event + 1
    _event(tx, held, event, "turn.token", held.data(text=op.text))
    tx.put("mailbox_count_events", (event, op.block, tx.now, op.lease.mailbox))
    tx.touch(op.lease.recipient, Aspect.EVENTS)
    return event


def absorb(tx: Tx, op: Absorb) -> Step:
    """Carry out `Absorb`."""
    held = fence(tx, op.lease)
    known = _step(tx, op.lease.head, op.key)
    if known is not None:
        return known
    rows = tx.all("steerable", (op.lease.mailbox, op.limit))
    taken = [attrs.asdict(message_of(row[:13], row[13], absorbed=True)) for row in rows]
    tx.put_all("row_absorb", [(op.lease.head, tx.now, tx.now, tx.now, row[0]) for row in rows])
    if rows:
        tx.put("mailbox_taken", (len(rows), op.lease.mailbox))
    _put(tx, held, op.key, StepKind.STEER, op.ordinal, True, {}, taken)
    return Step(op.key, StepKind.STEER, op.ordinal, True, {}, taken)


def record_step(tx: Tx, op: RecordStep) -> Step:
    """Carry out `RecordStep`."""
    held = fence(tx, op.lease)
    known = _step(tx, op.lease.head, op.key)
    if known is not None and (known.done or (not op.done and known.data == op.data)):
        return known
    target = None if op.handoff is None else hand_over(tx, held.scope, op.handoff)
    for child in op.opens:
        open_session(tx, child)
    for send in op.sends:
        enqueue(tx, send)
    for stop in op.stops:
        request_stop(tx, stop)
    _put(tx, held, op.key, op.kind, op.ordinal, op.done, op.data, op.result)
    if op.summary is not None:
        tx.put("summary_put", (op.lease.mailbox, held.scope, op.summary.upto, op.summary.text, tx.now))
    events = [(event.kind, event.data) for event in op.events]
    if target is not None:
        events.append(("turn.handoff", {**target, "from_path": held.path}))
    if events:
        # What was sent may have gone to this very mailbox (a child's notice): its counter is read again.
        now_held = fence(tx, op.lease)
        for number, (kind, data) in enumerate(events, start=now_held.last_event + 1):
            _event(tx, held, number, kind, held.data(**data))
        newest = now_held.last_event + len(events)
        tx.put("mailbox_count_events", (newest, now_held.block, tx.now, op.lease.mailbox))
        if target is not None:
            # Its event is the last of them. Whoever reads the turn's result knows by the number whether it was acted upon, without the log.
            note_handoff(tx, op.lease.mailbox, held.turn, Handoff(**target, event_id=newest))
        tx.touch(op.lease.recipient, Aspect.EVENTS)
    return Step(op.key, op.kind, op.ordinal, op.done, op.data, op.result)


def steps_of(rows: list[tuple[Any, ...]]) -> tuple[Step, ...]:
    """Steps from rows of the step log."""
    return tuple(
        Step(row[0], StepKind(row[1]), row[2], bool(row[3]), json.loads(row[4]), json.loads(row[5]) if row[5] else None)
        for row in rows
    )


def _step(tx: Tx, message: int, key: str) -> Step | None:
    row = tx.one("step_by_key", (message, key))
    return None if row is None else steps_of([row])[0]


def _put(
    tx: Tx, held: Fence, key: str, kind: StepKind, ordinal: int, done: bool, data: dict[str, Any], result: Any
) -> None:
    tx.put(
        "step_put",
        (
            held.scope, held.lease.mailbox, held.lease.head, key, kind, ordinal, done, encode(data),
            None if result is None else encode(result), tx.now,
        ),
    )  # fmt: skip


def _event(tx: Tx, held: Fence, number: int, kind: str, data: str) -> None:
    tx.put("event_insert", (held.scope, held.lease.mailbox, number, kind, held.turn, None, data, tx.now))
