"""How a turn ends: CommitTurn, Retry, Fail, HandBack. Each is one transaction and is recorded by epoch, so that a repeat is an answer.

Invariant: a message is delivered only together with its marker, and `due` is computed after its rows have moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..changes import Aspect
from ..model.errors import CallboardError, IllegalMove, LeaseLost
from ..model.sessions import ChildState, Handoff
from ..model.states import Outcome, Reason, Status
from ..model.turns import Lease
from ..ops.deliveries import CommitTurn, End, Ended, Fail, HandBack, Retry
from .changing import fail_waiting
from .delivering import Fence, fence, fence_all
from .naming import handoff_data, noted_handoff
from .notices import end_child, tell_sender
from .tx import Clash, Tx, encode

_CHILD_STATE = {
    Outcome.ANSWERED: ChildState.COMPLETED,
    Outcome.NO_VISIBLE_REPLY: ChildState.COMPLETED,
    Outcome.STOPPED: ChildState.STOPPED,
}


def commit_turn(tx: Tx, op: CommitTurn) -> Ended:
    """Carry out `CommitTurn`."""
    (outcome,) = commit_turns(tx, (op,))
    if isinstance(outcome, CallboardError):
        raise outcome
    return outcome


@attrs.frozen
class _Commit:
    """A commit that its fence lets through, with its place in the batch and the numbers it takes."""

    place: int
    op: CommitTurn
    held: Fence
    seq: int | None
    events: tuple[tuple[str, int | None, str], ...]
    handoff: Handoff | None


def commit_turns(tx: Tx, ops: Sequence[CommitTurn]) -> list[Ended | CallboardError]:
    """Carry out several: an end or a refusal for each. What is refused has written nothing.

    Raises `Clash` if one of several mailboxes is named twice, or one of several turns consumes what it does not hold.
    """
    if len({op.lease.mailbox for op in ops}) < len(ops):
        raise Clash
    fences = fence_all(tx, [op.lease for op in ops])
    outcomes: list[Ended | CallboardError] = []
    commits: list[_Commit] = []
    for op, held in zip(ops, fences, strict=True):
        if isinstance(held, LeaseLost):
            marker = tx.one("marker_of", (op.lease.mailbox, op.lease.head))
            same = marker is not None and marker[0] == op.lease.epoch
            outcomes.append(Ended(End.COMMITTED, Status.DELIVERED, marker[2], marker[1]) if same and marker else held)
        elif op.lease.head not in op.consumed or len(set(op.consumed)) != len(op.consumed):
            outcomes.append(IllegalMove("a turn consumes its head, and each message once", path="consumed"))
        else:
            commits.append(_plan(len(outcomes), op, held))
            outcomes.append(Ended(End.COMMITTED, Status.DELIVERED, None))
    if commits:
        _write(tx, commits, outcomes)
    return outcomes


def _plan(place: int, op: CommitTurn, held: Fence) -> _Commit:
    handoff = noted_handoff(held.handoff, held.turn)
    if handoff is not None and op.outcome is Outcome.NO_VISIBLE_REPLY:
        # Whoever only reads the transcript must find it: an entry is where it stands (HND-3).
        op = attrs.evolve(op, outcome=Outcome.ANSWERED, answer=f"Taking you to {handoff.path}.")
    seq = held.last_seq + 1 if op.answer else None
    events: list[tuple[str, int | None, str]] = []
    if op.tail and op.block > held.block:
        events.append(("turn.token", None, held.data(text=op.tail)))
    kind = "turn.stopped" if op.outcome is Outcome.STOPPED else "turn.completed"
    more = {} if handoff is None else {"handoff": handoff_data(handoff)}
    events.append((kind, seq, held.data(outcome=op.outcome, seq=seq, **more)))
    return _Commit(place, op, held, seq, tuple(events), handoff)


def _write(tx: Tx, commits: Sequence[_Commit], outcomes: list[Ended | CallboardError]) -> None:
    now = tx.now
    delivered = _deliver(tx, commits)
    tx.put_all(
        "entry_insert",
        [
            (item.held.scope, item.op.lease.mailbox, item.seq, "assistant", item.op.answer, item.op.lease.head, now)
            for item in commits
            if item.seq is not None
        ],
    )
    tx.put_all(
        "entry_handoff",
        [
            (encode(handoff_data(item.handoff)), item.op.lease.mailbox, item.seq)
            for item in commits
            if item.handoff is not None and item.seq is not None
        ],
    )
    tx.put_all(
        "event_insert",
        [
            (item.held.scope, item.op.lease.mailbox, number, name, item.held.turn, entry, data, now)
            for item in commits
            for number, (name, entry, data) in enumerate(item.events, start=item.held.last_event + 1)
        ],
    )
    for item, rows in zip(commits, delivered, strict=True):
        tx.count("delivered", item.op.outcome, len(rows))
        if item.held.taken != len(rows):
            tx.put("rows_return", (item.op.lease.mailbox, False, now))
    dues = _release_all(
        tx,
        [
            _Release(item.held, item.seq or item.held.last_seq, len(item.events), len(rows), item.op.stuck)
            for item, rows in zip(commits, delivered, strict=True)
        ],
    )
    tx.put_all(
        "marker_insert",
        [
            (
                item.held.scope, item.op.lease.mailbox, row, item.held.turn, item.op.lease.epoch, item.op.lease.attempt,
                item.seq, dues[item.op.lease.mailbox],
            )
            for item, rows in zip(commits, delivered, strict=True)
            for row in rows
        ],
    )  # fmt: skip
    for item in commits:
        op, held = item.op, item.held
        for uid in op.undecodable:
            fail_waiting(tx, held.owner, uid, Reason.UNDECODABLE)
        if held.child_state == ChildState.RUNNING:
            end_child(tx, held.session, held.parent, _CHILD_STATE[op.outcome], op.answer)
        outcomes[item.place] = Ended(End.COMMITTED, Status.DELIVERED, dues[op.lease.mailbox], item.seq)


def _deliver(tx: Tx, commits: Sequence[_Commit]) -> list[tuple[int, ...]]:
    """Move what each turn consumed; a row that was cancelled while the turn waited to run again stays cancelled."""
    wanted = [(item.op.outcome, tx.now, row, item.op.lease.mailbox) for item in commits for row in item.op.consumed]
    if len(commits) > 1:
        tx.must("row_deliver", wanted)
        return [item.op.consumed for item in commits]
    if tx.many("row_deliver", wanted) == len(wanted):
        return [commits[0].op.consumed]
    rows, mailbox = commits[0].op.consumed, commits[0].op.lease.mailbox
    states = {row: tx.one("row_state", (row, mailbox)) for row in rows}
    if any(state not in {(Status.DELIVERED, 0), (Status.FAILED, 0)} for state in states.values()):
        raise IllegalMove("a turn can consume only what it holds", path="consumed")
    return [tuple(row for row, state in states.items() if state == (Status.DELIVERED, 0))]


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
    tx.put("rows_return", (lease.mailbox, True, tx.now))
    error = detail if attempts else None
    tx.put("head_retry", (attempts, retry_at, error, tx.now, lease.head))
    event = held.last_event + 1
    data = held.data(cause=str(end), detail=detail, retry_at=retry_at)
    tx.put("event_insert", (held.scope, lease.mailbox, event, "attempt.relinquished", held.turn, None, data, tx.now))
    due = _release_all(tx, [_Release(held, held.last_seq, 1, 0, keep_stop=True)])[lease.mailbox]
    _record(tx, held, end, detail, Status.PENDING, due)
    return Ended(end, Status.PENDING, due)


def _fail(tx: Tx, held: Fence, reason: Reason, error: str, *, attempts: int) -> Ended:
    lease = held.lease
    tx.put("message_fail_held", (reason, error, attempts, tx.now, lease.head))
    tx.count("failed", reason)
    tx.put("rows_return", (lease.mailbox, False, tx.now))
    event = held.last_event + 1
    data = held.data(reason=reason, error=error)
    tx.put("event_insert", (held.scope, lease.mailbox, event, "turn.failed", held.turn, None, data, tx.now))
    due = _release_all(tx, [_Release(held, held.last_seq, 1, 1)])[lease.mailbox]
    _record(tx, held, End.FAILED, error, Status.FAILED, due)
    if held.child_state == ChildState.RUNNING:
        end_child(tx, held.session, held.parent, ChildState.FAILED, f"The subagent failed: {reason}.")
    tell_sender(tx, held.owner, held.uid, held.kind, held.sender, reason)
    return Ended(End.FAILED, Status.FAILED, due)


@attrs.frozen
class _Release:
    """A lease that is given back: the mailbox's last entry then, how many events were written, how many messages are gone for good."""

    held: Fence
    seq: int
    events: int
    gone: int
    stuck: str | None = None
    keep_stop: bool = False


def _release_all(tx: Tx, releases: Sequence[_Release]) -> dict[int, float | None]:
    """Give leases back; when each mailbox is due, by its row."""
    dues: dict[int, float | None] = dict(
        tx.returning(
            "mailbox_release",
            [
                (
                    item.seq, item.held.last_event + item.events, item.gone, item.stuck, int(item.keep_stop), tx.now,
                    item.held.lease.mailbox,
                )
                for item in releases
            ],
        )
    )  # fmt: skip
    for item in releases:
        lease = item.held.lease
        tx.touch(lease.recipient, Aspect.EVENTS | (Aspect.DUE if dues[lease.mailbox] is not None else 0))
    return dues


def _record(tx: Tx, held: Fence, end: End, detail: str, status: Status, due: float | None) -> None:
    lease = held.lease
    tx.put(
        "attempt_insert",
        (held.scope, lease.mailbox, lease.head, lease.epoch, lease.attempt, end, detail, status, due, tx.now),
    )
