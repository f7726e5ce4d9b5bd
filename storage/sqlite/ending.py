"""How a turn ends: CommitTurn, Retry, Fail, HandBack. Each is one transaction and is recorded by epoch, so that a repeat is an answer.

Invariant: a message is delivered only together with its marker, and `due` is computed after its rows have moved.
"""

from __future__ import annotations

from ..changes import Aspect
from ..model.errors import IllegalMove, LeaseLost
from ..model.sessions import ChildState
from ..model.states import Outcome, Reason, Status
from ..model.turns import Lease
from ..ops.deliveries import CommitTurn, End, Ended, Fail, HandBack, Retry
from .changing import fail_waiting
from .delivering import Fence, fence
from .notices import end_child, tell_sender
from .tx import Tx

_CHILD_STATE = {
    Outcome.ANSWERED: ChildState.COMPLETED,
    Outcome.NO_VISIBLE_REPLY: ChildState.COMPLETED,
    Outcome.STOPPED: ChildState.STOPPED,
}


def commit_turn(tx: Tx, op: CommitTurn) -> Ended:
    """Carry out `CommitTurn`."""
    try:
        held = fence(tx, op.lease)
    except LeaseLost:
        marker = tx.one("marker_of", (op.lease.mailbox, op.lease.head))
        if marker is None or marker[0] != op.lease.epoch:
            raise
        return Ended(End.COMMITTED, Status.DELIVERED, marker[2], marker[1])
    lease, now = op.lease, tx.now
    seq = held.last_seq + 1 if op.answer else None
    events: list[tuple[str, int | None, str]] = []
    if op.tail and op.block > held.block:
        events.append(("turn.token", None, held.data(text=op.tail)))
    kind = "turn.stopped" if op.outcome is Outcome.STOPPED else "turn.completed"
    events.append((kind, seq, held.data(outcome=op.outcome, seq=seq)))
    if seq is not None:
        tx.run("entry_insert", (held.scope, lease.mailbox, seq, "assistant", op.answer, lease.head, now))
    delivered = _deliver(tx, op)
    tx.count("delivered", op.outcome, len(delivered))
    if held.taken != len(delivered):
        tx.run("rows_return", (lease.mailbox, False, now))
    tx.many(
        "event_insert",
        [
            (held.scope, lease.mailbox, held.last_event + i, name, held.turn, entry, data, now)
            for i, (name, entry, data) in enumerate(events, start=1)
        ],
    )
    due = _release(tx, held, seq or held.last_seq, held.last_event + len(events), len(delivered), stuck=op.stuck)
    tx.many(
        "marker_insert",
        [(held.scope, lease.mailbox, row, held.turn, lease.epoch, lease.attempt, seq, due) for row in delivered],
    )
    for uid in op.undecodable:
        fail_waiting(tx, held.owner, uid, Reason.UNDECODABLE)
    if held.child_state == ChildState.RUNNING:
        end_child(tx, held.session, held.parent, _CHILD_STATE[op.outcome], op.answer)
    return Ended(End.COMMITTED, Status.DELIVERED, due, seq)


def _deliver(tx: Tx, op: CommitTurn) -> tuple[int, ...]:
    """Move what the turn consumed; a row that was cancelled while the turn waited to run again stays cancelled."""
    rows, mailbox = op.consumed, op.lease.mailbox
    if op.lease.head not in rows or len(set(rows)) != len(rows):
        raise IllegalMove("a turn consumes its head, and each message once", path="consumed")
    if tx.many("row_deliver", [(op.outcome, tx.now, tx.now, row, mailbox) for row in rows]) == len(rows):
        return rows
    states = {row: tx.one("row_state", (row, mailbox)) for row in rows}
    if any(state not in {(Status.DELIVERED, 0), (Status.FAILED, 0)} for state in states.values()):
        raise IllegalMove("a turn can consume only what it holds", path="consumed")
    return tuple(row for row, state in states.items() if state == (Status.DELIVERED, 0))


def retry(tx: Tx, op: Retry) -> Ended:
    """Carry out `Retry`."""
    held = _fence_or_ended(tx, op.lease)
    if isinstance(held, Ended):
        return held
    if held.attempts + 1 >= held.max_attempts:
        return _fail(tx, held, Reason.RETRIES_USED, op.error, attempts=1)
    return _put_back(tx, held, End.RETRIED, op.error, op.delay, attempts=1)


def fail(tx: Tx, op: Fail) -> Ended:
    """Carry out `Fail`."""
    held = _fence_or_ended(tx, op.lease)
    return held if isinstance(held, Ended) else _fail(tx, held, op.reason, op.error, attempts=0)


def hand_back(tx: Tx, op: HandBack) -> Ended:
    """Carry out `HandBack`."""
    held = _fence_or_ended(tx, op.lease)
    return held if isinstance(held, Ended) else _put_back(tx, held, End.HANDED_BACK, op.cause, op.delay, attempts=0)


def _fence_or_ended(tx: Tx, lease: Lease) -> Fence | Ended:
    """The fence, or what the same end of this attempt did the first time; otherwise `LeaseLost`."""
    try:
        return fence(tx, lease)
    except LeaseLost:
        known = tx.one("attempt_of", (lease.mailbox, lease.epoch))
        if known is None:
            raise
        return Ended(End(known[0]), Status(known[1]), known[2])


def _put_back(tx: Tx, held: Fence, end: End, detail: str, delay: float, *, attempts: int) -> Ended:
    """Return the turn's rows in their place; the same turn will run again, so its absorbed rows stay its own."""
    lease, retry_at = held.lease, tx.now + delay
    tx.run("rows_return", (lease.mailbox, True, tx.now))
    error = detail if attempts else None
    tx.run("head_retry", (attempts, retry_at, error, tx.now, lease.head))
    event = held.last_event + 1
    data = held.data(cause=str(end), detail=detail, retry_at=retry_at)
    tx.run("event_insert", (held.scope, lease.mailbox, event, "attempt.relinquished", held.turn, None, data, tx.now))
    due = _release(tx, held, held.last_seq, event, 0, keep_stop=True)
    _record(tx, held, end, detail, Status.PENDING, due)
    return Ended(end, Status.PENDING, due)


def _fail(tx: Tx, held: Fence, reason: Reason, error: str, *, attempts: int) -> Ended:
    lease = held.lease
    tx.run("message_fail_held", (reason, error, attempts, tx.now, lease.head))
    tx.count("failed", reason)
    tx.run("rows_return", (lease.mailbox, False, tx.now))
    event = held.last_event + 1
    data = held.data(reason=reason, error=error)
    tx.run("event_insert", (held.scope, lease.mailbox, event, "turn.failed", held.turn, None, data, tx.now))
    due = _release(tx, held, held.last_seq, event, 1)
    _record(tx, held, End.FAILED, error, Status.FAILED, due)
    if held.child_state == ChildState.RUNNING:
        end_child(tx, held.session, held.parent, ChildState.FAILED, f"The subagent failed: {reason}.")
    tell_sender(tx, held.owner, held.uid, held.kind, held.sender, reason)
    return Ended(End.FAILED, Status.FAILED, due)


def _release(
    tx: Tx, held: Fence, seq: int, event: int, gone: int, *, stuck: str | None = None, keep_stop: bool = False
) -> float | None:
    lease = held.lease
    row = tx.run("mailbox_release", (seq, event, gone, stuck, keep_stop, tx.now, lease.mailbox)).fetchone()
    due = row[0]
    tx.touch(lease.recipient, Aspect.EVENTS | (Aspect.DUE if due is not None else 0))
    return due


def _record(tx: Tx, held: Fence, end: End, detail: str, status: Status, due: float | None) -> None:
    lease = held.lease
    tx.run(
        "attempt_insert",
        (held.scope, lease.mailbox, lease.head, lease.epoch, lease.attempt, end, detail, status, due, tx.now),
    )
