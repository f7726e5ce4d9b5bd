"""Accepting messages. Lives here: the one place that makes messages, whoever sends them, one or many at a time.

Invariant: message, entry, event and wake are one transaction; a message is never without its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ..changes import Aspect
from ..model.errors import CallboardError, LimitReached, MailboxFull, MessageConflict, UnknownTarget
from ..model.messages import WAKE, Receipt, Wake, role_of
from ..model.sessions import SessionKind
from ..model.states import Status
from ..ops.inbox import Enqueue
from ..rows import Row
from .naming import check_edge
from .tx import Clash, Tx, encode

_NOT_HERE: Final = "there is no such session here"
Key = tuple[int, str, str]


@attrs.define
class _Box:
    """A mailbox as the messages of one batch leave it, one after the other."""

    row: int
    last_seq: int
    last_event: int
    depth: int
    due: float | None
    deleted_at: float | None
    kind: str | None
    session: str | None
    accepted: int = 0
    wake: float | None = None


@attrs.frozen
class _New:
    """An op that is accepted, with its place in the batch and in its mailbox."""

    place: int
    op: Enqueue
    scope: int
    box: _Box
    seq: int
    event: int


def enqueue(tx: Tx, op: Enqueue) -> Receipt:
    """Carry out `Enqueue`; see there for what it raises."""
    (outcome,) = enqueue_all(tx, (op,))
    if isinstance(outcome, CallboardError):
        raise outcome
    return outcome


def enqueue_all(tx: Tx, ops: Sequence[Enqueue]) -> list[Receipt | CallboardError]:
    """Carry out several, in their order: a receipt or a refusal for each. What is refused has written nothing.

    Raises `Clash` if one of several bears an id of ours that is taken.
    """
    scopes = [_scope(tx, op) for op in ops]
    boxes = _boxes(tx, ops, scopes)
    known = _known(tx, ops, scopes)
    outcomes: list[Receipt | CallboardError] = []
    new: list[_New] = []
    here: dict[tuple[int, str], Row] = {}
    for op, scope in zip(ops, scopes, strict=True):
        if isinstance(scope, UnknownTarget):
            outcomes.append(scope)
            continue
        box = boxes.get((op.recipient, scope))
        if box is None or box.kind == SessionKind.INTERNAL:
            outcomes.append(UnknownTarget(_NOT_HERE, path="target"))
            continue
        key = (scope, op.message_id or "", op.sender.principal)
        found = known.get(key) or here.get((scope, op.id))
        if found is not None:
            outcomes.append(_same(op, box, found))
            continue
        refusal = _refusal(tx, op, scope, box, new)
        if refusal is not None:
            # What was accepted before is still the answer to its repeat.
            earlier = tx.one("message_by_key", (scope, op.id, op.message_id, op.sender.principal))
            outcomes.append(refusal if earlier is None else _same(op, box, earlier))
            continue
        box.last_seq += 1
        box.last_event += 1
        box.accepted += 1
        receipt = Receipt(
            op.id, op.message_id or op.id, box.session or op.recipient, True, Status.PENDING, box.last_seq
        )
        new.append(_New(len(outcomes), op, scope, box, box.last_seq, box.last_event))
        outcomes.append(receipt)
        # Not written yet, so that no statement finds it: the same op again in this batch must not be refused for what the first one filled.
        row = (op.id, op.message_id, box.row, op.digest, Status.PENDING, box.last_seq)
        here[scope, op.id] = row
        if op.message_id is not None:
            known[key] = row
    if new:
        _write(tx, new, outcomes)
    return outcomes


def targets_of(ops: Sequence[Enqueue], scopes: Sequence[int | UnknownTarget]) -> list[tuple[str, int]]:
    """What "targets_for_enqueue" is asked for ops in known scopes: each recipient once."""
    pairs = zip(ops, scopes, strict=True)
    return list(dict.fromkeys((op.recipient, scope) for op, scope in pairs if isinstance(scope, int)))


def _write(tx: Tx, new: Sequence[_New], outcomes: list[Receipt | CallboardError]) -> None:
    wrote = tx.wrote
    ids = tx.new_messages([_message(tx, item) for item in new], together=len(outcomes) > 1)
    if len(ids) != len(new):
        if len(outcomes) > 1:
            raise Clash  # others of these ops may have been answered by what was not inserted
        tx.wrote = wrote  # nothing was inserted, but the op that this send is part of may have written before
        (item,) = new
        op = item.op
        found = tx.one("message_by_key", (item.scope, op.id, op.message_id, op.sender.principal))
        taken = MessageConflict("this id is taken", path="message_id")
        outcomes[item.place] = taken if found is None else _same(op, item.box, found)
        return
    now = tx.now
    tx.put_all(
        "entry_insert",
        [
            (item.scope, item.box.row, item.seq, role_of(item.op.kind), item.op.content, ids[item.op.id], now)
            for item in new
        ],
    )
    tx.put_all(
        "event_insert",
        [
            (item.scope, item.box.row, item.event, "message.created", None, item.seq, _data(item.op, item.seq), now)
            for item in new
        ],
    )
    for item in new:
        box, wakes = item.box, WAKE[item.op.kind] is not Wake.NEXT
        if wakes:
            box.wake = now
        tx.touch(item.op.recipient, Aspect.EVENTS | (Aspect.DUE if wakes and box.due is None else 0))
        tx.count("accepted", item.op.kind)
    touched = {item.box.row: item.box for item in new}
    tx.put_all(
        "mailbox_accept",
        [(box.last_seq, box.last_event, box.accepted, box.wake, now, row) for row, box in touched.items()],
    )


def _message(tx: Tx, item: _New) -> tuple[object, ...]:
    op, now, wake, sender = item.op, tx.now, WAKE[item.op.kind], item.op.sender
    return (
        item.scope, item.box.row, op.id, op.message_id, sender.principal, op.digest, op.transport, op.destination_peer,
        sender.id, sender.kind, sender.label, op.kind, int(wake is not Wake.NEXT), int(wake is Wake.STEER), op.payload,
        Status.PENDING, item.seq, op.max_attempts, now, now, now, op.chain, op.hops, op.reply_to, op.requeued_from,
    )  # fmt: skip


def _data(op: Enqueue, seq: int) -> str:
    # Ids, kinds and roles hold no character that JSON escapes; a sender's id and label may.
    sender = f'{{"id":{encode(op.sender.id)},"label":{encode(op.sender.label)},"kind":"{op.sender.kind}"}}'
    return (
        f'{{"id":"{op.id}","message_id":"{op.message_id or op.id}","kind":"{op.kind}","role":"{role_of(op.kind)}",'
        f'"seq":{seq},"sender":{sender}}}'
    )


def _scope(tx: Tx, op: Enqueue) -> int | UnknownTarget:
    try:
        return tx.scope(op.scope)
    except UnknownTarget as unknown:
        return unknown


def _boxes(tx: Tx, ops: Sequence[Enqueue], scopes: Sequence[int | UnknownTarget]) -> dict[tuple[str, int], _Box]:
    return {(row[0], row[1]): _Box(*row[2:]) for row in tx.each("targets_for_enqueue", targets_of(ops, scopes))}


def _known(tx: Tx, ops: Sequence[Enqueue], scopes: Sequence[int | UnknownTarget]) -> dict[Key, Row]:
    """The messages that senders' own ids already name."""
    wanted = {
        (scope, op.message_id, op.sender.principal)
        for op, scope in zip(ops, scopes, strict=True)
        if op.message_id is not None and isinstance(scope, int)
    }
    if not wanted:
        return {}
    return {(row[0], row[1], row[2]): row[3:] for row in tx.each("messages_by_key", tuple(wanted))}


def _refusal(tx: Tx, op: Enqueue, scope: int, box: _Box, new: Sequence[_New]) -> CallboardError | None:
    if box.deleted_at is not None:
        return UnknownTarget(_NOT_HERE, path="target")
    if op.edge is not None and op.sender.kind == "session" and box.session is not None:
        try:
            check_edge(tx, scope, op.sender.id, box.session, op.edge)
        except CallboardError as refusal:
            return refusal
    return _limits(tx, op, box, new)


def _limits(tx: Tx, op: Enqueue, box: _Box, new: Sequence[_New]) -> CallboardError | None:
    depth = box.depth + box.accepted
    if op.depth_limit is not None and depth >= op.depth_limit:
        return MailboxFull(f"the mailbox holds {depth} open messages, as many as it may", path="target")
    if op.max_hops is not None and op.hops > op.max_hops:
        return LimitReached(f"this chain of messages has made {op.max_hops} hops, as many as it may", path="hops")
    if op.pair_limit:
        row = tx.one("pair_count", (box.row, op.sender.id, tx.now - 60.0))
        stored = 0 if row is None else row[0]
        here = sum(item.box is box and item.op.sender.id == op.sender.id and item.op.kind == op.kind for item in new)
        if stored + here >= op.pair_limit:
            return LimitReached(f"{op.pair_limit} messages in a minute to one session are allowed", path="agent_id")
    return None


def _same(op: Enqueue, box: _Box, row: Row) -> Receipt | MessageConflict:
    """The answer to a repeat: `row` is what bears its id."""
    uid, name, target, known, status, seq = row
    if target != box.row or known != op.digest:
        return MessageConflict(
            "this message id was used with other content, kind, payload or target", path="message_id"
        )
    return Receipt(uid, name or uid, box.session or op.recipient, False, Status(status), seq)
