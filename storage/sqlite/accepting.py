"""Accepting messages. Lives here: the one function that makes a message, whoever sends it.

Invariant: message, entry, event and wake are one transaction; a message is never without its entry.
"""

from __future__ import annotations

from ..changes import Aspect
from ..model.errors import LimitReached, MailboxFull, MessageConflict, UnknownTarget
from ..model.messages import WAKE, Receipt, Wake, role_of
from ..model.sessions import SessionKind
from ..model.states import Status
from ..ops.inbox import Enqueue
from .tx import Tx, encode


def enqueue(tx: Tx, op: Enqueue) -> Receipt:
    """Carry out `Enqueue`; see there for what it raises."""
    scope = tx.scope(op.scope)
    target = tx.one("target_for_enqueue", (op.recipient, scope))
    if target is None or target[6] == SessionKind.INTERNAL:
        raise UnknownTarget("there is no such session here", path="target")
    mailbox, last_seq, last_event, depth, due, deleted_at, _, session = target
    if deleted_at is not None:
        # What was accepted before the deletion is still the answer to its repeat.
        known = _existing(tx, op, scope, mailbox, session)
        if known is None:
            raise UnknownTarget("there is no such session here", path="target")
        return known
    refusal = _limits(tx, op, mailbox, depth)
    if refusal is not None:
        return _existing(tx, op, scope, mailbox, session) or _refuse(refusal)
    now = tx.now
    wrote = tx.wrote
    wake = WAKE[op.kind]
    sender = op.sender
    seq = last_seq + 1
    cursor = tx.run(
        "message_insert",
        (
            scope, mailbox, op.id, op.message_id, sender.principal, op.digest, op.transport, op.destination_peer,
            sender.id, sender.kind, sender.label, op.kind, wake is not Wake.NEXT, wake is Wake.STEER, op.payload, seq,
            op.max_attempts, now, now, now, op.chain, op.hops, op.reply_to, op.requeued_from,
        ),
    )  # fmt: skip
    if cursor.rowcount != 1:
        tx.wrote = wrote  # nothing was inserted, but the op that this send is part of may have written before
        found = _existing(tx, op, scope, mailbox, session)
        if found is None:
            raise MessageConflict("this id is taken", path="message_id")
        return found
    row = cursor.lastrowid
    role = role_of(op.kind)
    name = op.message_id or op.id
    tx.run("entry_insert", (scope, mailbox, seq, role, op.content, row, now))
    data = encode(
        {
            "id": op.id,
            "message_id": name,
            "kind": op.kind,
            "role": role,
            "seq": seq,
            "sender": {"id": sender.id, "label": sender.label, "kind": sender.kind},
        }
    )
    tx.run("event_insert", (scope, mailbox, last_event + 1, "message.created", None, seq, data, now))
    tx.run("mailbox_accept", (seq, last_event + 1, None if wake is Wake.NEXT else now, now, mailbox))
    idle = due is None and wake is not Wake.NEXT
    tx.touch(op.recipient, Aspect.EVENTS | (Aspect.DUE if idle else 0))
    tx.count("accepted", op.kind)
    return Receipt(op.id, name, session or op.recipient, True, Status.PENDING, seq)


def _limits(tx: Tx, op: Enqueue, mailbox: int, depth: int) -> MailboxFull | LimitReached | None:
    if op.depth_limit is not None and depth >= op.depth_limit:
        return MailboxFull(f"the mailbox holds {depth} open messages, as many as it may", path="target")
    if op.max_hops is not None and op.hops > op.max_hops:
        return LimitReached(f"this chain of messages has made {op.max_hops} hops, as many as it may", path="hops")
    if op.pair_limit:
        row = tx.one("pair_count", (mailbox, op.sender.id, tx.now - 60.0))
        if row is not None and row[0] >= op.pair_limit:
            return LimitReached(f"{op.pair_limit} messages in a minute to one session are allowed", path="agent_id")
    return None


def _refuse(refusal: MailboxFull | LimitReached) -> Receipt:
    raise refusal


def _existing(tx: Tx, op: Enqueue, scope: int, mailbox: int, session: str | None) -> Receipt | None:
    row = tx.one("message_by_key", (scope, op.id, op.message_id, op.sender.principal))
    if row is None:
        return None
    uid, name, target, known, status, seq = row
    if target != mailbox or known != op.digest:
        raise MessageConflict("this message id was used with other content, kind, payload or target", path="message_id")
    return Receipt(uid, name or uid, session or op.recipient, False, Status(status), seq)
