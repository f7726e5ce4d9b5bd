"""Leases: Claim, Renew, VoidLeases. Invariant: mailbox lease and head's `processing` are set in one transaction (INB-6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..changes import Aspect
from ..model.addresses import Scope, Sender, SenderKind
from ..model.ids import turn_id
from ..model.limits import UNKNOWN_AGENT_DELAY_SECONDS
from ..model.sessions import SessionKind
from ..model.turns import Claimed, Lease, StopRequest, TurnMessage
from ..ops.leases import Claim, Claims, Renew, Renewed, VoidLeases
from ..rows import Row
from .tx import Tx, encode, turn_data

_SESSION_KINDS: Final = {kind.value: kind for kind in SessionKind}


def claim(tx: Tx, op: Claim) -> Claims:
    """Carry out `Claim`."""
    excluded = set(op.exclude)
    most = op.limit + len(excluded)
    last = tx.one("process_nonce", (op.holder,))
    if last is not None and last[0] == op.nonce:
        return Claims(_again(tx, op), _next_due(tx, most, []))
    rows = tx.all("due_mailboxes", {"now": tx.now, "limit": most})
    taken: list[Claimed] = []
    batch = _Batch(encode(op.holder), tx.now + op.lease_seconds)
    set_by_this: list[float] = []
    for row in rows:
        if row[0] in excluded or len(taken) >= op.limit:
            continue
        if row[16] is None or row[10] is None:
            tx.put("mailbox_idle", (row[0],))
        elif row[12] not in op.agents:
            set_by_this.append(_put_off(tx, row))
        else:
            taken.append(_take(tx, op, row, batch))
            set_by_this.append(batch.until)
    if taken or not op.quiet:
        tx.put("process_claimed", (op.holder, op.nonce, tx.now))
    batch.write(tx)
    # As many as were asked for: there may be more, and those that were put off must not cost the others a poll.
    return Claims(tuple(taken), tx.now if len(rows) == most else _next_due(tx, most, set_by_this))


class _Batch:
    """What a claim writes, a statement for all its mailboxes: one at a time costs more in calls than in rows."""

    __slots__ = ("carried", "events", "heads", "holder", "mailboxes", "until")

    def __init__(self, holder: str, until: float) -> None:
        self.holder = holder
        self.until = until
        self.events: list[Row] = []
        self.mailboxes: list[Row] = []
        self.heads: list[Row] = []
        self.carried: list[Row] = []

    def write(self, tx: Tx) -> None:
        tx.put_all("event_insert", self.events)
        tx.put_all("mailbox_claim", self.mailboxes)
        tx.put_all("head_claim", self.heads)
        tx.put_all("row_take", self.carried)


def _put_off(tx: Tx, row: Row) -> float:
    """This process knows no such agent: look again later, without an attempt. A turn whose holder was lost goes back to its place."""
    now, later = tx.now, tx.now + UNKNOWN_AGENT_DELAY_SECONDS
    mailbox, recipient, _, last_event, _, _, _, scope = row[:8]
    if row[29] != "processing":
        tx.put("head_put_off", (0, later, now, row[16]))
        tx.put("mailbox_put_off", (later, mailbox))
        return later
    head = message_of(row[16:29], row[35])
    tx.count("takeover", "")
    tx.put("rows_return", (mailbox, True, now))
    tx.put("head_put_off", (1, later, now, head.row))
    turn = turn_id(head.id)
    data = turn_data(turn, head.message_id, row[33], cause="takeover", retry_at=later)
    tx.put("event_insert", (scope, mailbox, last_event + 1, "attempt.relinquished", turn, None, data, now))
    tx.put("mailbox_lost", (later, last_event + 1, now, mailbox))
    tx.touch(recipient, Aspect.EVENTS)
    return later


def _next_due(tx: Tx, most: int, set_by_this: Sequence[float]) -> float | None:
    """When another mailbox is due than the first `most`. What this claim has set may be in the statement's answer or not: it may have been
    asked before."""
    ((due,),) = tx.all("due_after", {"now": tx.now, "limit": most})
    return min(set_by_this if due is None else (due, *set_by_this), default=None)


def _take(tx: Tx, op: Claim, row: Row, batch: _Batch) -> Claimed:
    now = tx.now
    mailbox, recipient, epoch, last_event, old_head, stop_at, stop_grace, scope = row[:8]
    head = message_of(row[16:29], row[35])
    taken_over = row[29] == "processing"
    attempt = row[33] + 1
    lease = Lease(mailbox, recipient, epoch + 1, head.row, attempt)
    turn = turn_id(head.id)
    if old_head is not None and old_head != head.row:
        stop_at = stop_grace = None
    events: list[tuple[str, str]] = []
    if taken_over:
        tx.count("takeover", "")
        cause = turn_data(turn, head.message_id, attempt - 1, cause="takeover", retry_at=now)
        events.append(("attempt.relinquished", cause))
    if attempt == 1:
        events.append(("turn.started", turn_data(turn, head.message_id, attempt)))
    events.append(("attempt.claimed", f'{turn_data(turn, head.message_id, attempt)[:-1]},"holder":{batch.holder}}}'))
    for number, (kind, data) in enumerate(events, start=last_event + 1):
        batch.events.append((scope, mailbox, number, kind, turn, None, data, now))
    # Next-turn rows ahead of the head come along; rows that an earlier attempt had absorbed come back into the turn.
    carried = _carried(tx, mailbox, head.row) if row[36] or attempt > 1 else ()
    batch.carried.extend((now, message.row) for message in carried)
    batch.mailboxes.append(
        (
            batch.until, epoch + 1, op.holder, op.holder_kind, op.nonce, head.row, 1 + len(carried), last_event + len(events),
            stop_at, stop_grace, now, mailbox,
        )
    )  # fmt: skip
    batch.heads.append((row[32] + taken_over, attempt, now, head.row))
    tx.touch(recipient, Aspect.EVENTS)
    stop = None if stop_at is None else StopRequest(stop_at, stop_grace or 0.0)
    return _claimed(row, head, lease, batch.until, row[32] + taken_over, carried, stop)


def _claimed(
    row: Row,
    head: TurnMessage,
    lease: Lease,
    until: float,
    takeovers: int,
    carried: tuple[TurnMessage, ...],
    stop: StopRequest | None,
) -> Claimed:
    return Claimed(
        lease=lease,
        lease_until=until,
        scope=_scope(row[8], row[9]),
        kind=_SESSION_KINDS[row[11]],
        agent=_shared(row[12]),
        path=row[13],
        parent=row[14],
        head=head,
        carried=carried,
        attempts=row[30],
        max_attempts=row[31],
        takeovers=takeovers,
        stop=stop,
        deadline=row[15],
    )


def _carried(tx: Tx, mailbox: int, head: int) -> tuple[TurnMessage, ...]:
    rows = tx.all("carried_for_claim", (mailbox, head))
    found = (message_of(row[:13], row[13], absorbed=row[14] is not None) for row in rows)
    return tuple(sorted(found, key=lambda message: message.row))


def message_of(row: Row, content: str, *, absorbed: bool = False) -> TurnMessage:
    """A message from the thirteen columns that the claiming statements select in the same order."""
    uid, chain = row[1], row[8]
    return TurnMessage(
        row=row[0],
        id=uid,
        message_id=row[2] or uid,
        kind=_shared(row[3]),
        sender=_sender(row[4], row[5], row[6]),
        content=content,
        seq=row[7],
        chain=uid if chain == uid else chain,
        hops=row[9],
        created_at=row[10],
        payload=row[11],
        reply_to=row[12],
        steered=absorbed,
    )


# What rows of a thousand live turns say alike is kept once: a row gives each of them a copy of its own. Bounded, as names come from outside.
@lru_cache(256)
def _shared(text: str) -> str:
    return text


@lru_cache(256)
def _scope(tenant: str, project: str) -> Scope:
    return Scope(tenant, project)


@lru_cache(1024)
def _sender(id: str, kind: SenderKind, label: str) -> Sender:
    return Sender(id, kind, label)


def _again(tx: Tx, op: Claim) -> tuple[Claimed, ...]:
    """A repeated claim: what it still holds is given again, without a new epoch, event or takeover."""
    held: list[Claimed] = []
    for (mailbox,) in tx.all("held_by_nonce", (op.holder, op.nonce)):
        for row in tx.all("held_mailbox", (mailbox,)):
            lease = Lease(mailbox, row[1], row[2], row[16], row[33])
            stop = None if row[5] is None else StopRequest(row[5], row[6])
            head = message_of(row[16:29], row[35])
            held.append(_claimed(row, head, lease, row[34], row[32], _carried(tx, mailbox, row[16]), stop))
    return tuple(held)


def renew(tx: Tx, op: Renew) -> Renewed:
    """Carry out `Renew`."""
    until = tx.now + op.lease_seconds
    held = tx.returning("mailbox_renew", [(until, lease.mailbox, lease.epoch) for lease in op.leases])
    lost = {lease.mailbox for lease in op.leases} - {row[0] for row in held}
    stops = {row: StopRequest(at, grace) for row, at, grace in held if at is not None}
    return Renewed(frozenset(lost), stops, until)


def void_leases(tx: Tx, op: VoidLeases) -> int:
    """Carry out `VoidLeases`."""
    tx.put("void_stuck")
    return tx.run("void_leases", (tx.now, op.holder_kind))
