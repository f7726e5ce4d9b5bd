"""Approvals: RequestApproval, AnswerApproval, ExpireApproval. Invariant: a question is answered once; the final states never change."""

from __future__ import annotations

from ..changes import Aspect
from ..model.approvals import Approval, ApprovalState
from ..model.errors import Conflict, NotFound
from ..ops.approvals import AnswerApproval, ExpireApproval, RequestApproval
from ..rows import Row
from ..wire import rfc3339
from .delivering import fence
from .tx import Tx


def request_approval(tx: Tx, op: RequestApproval) -> Approval:
    """Carry out `RequestApproval`."""
    held = fence(tx, op.lease)
    known = tx.one("approval_of", (op.lease.head, op.key))
    if known is not None:
        return _approval(known)
    expires = tx.now + op.seconds
    tx.put("approval_insert", (op.id, held.scope, op.lease.mailbox, op.lease.head, op.key, expires))
    asked = held.data(
        approval_id=op.id, tool=op.tool, action_id=op.key, arguments=op.arguments, expires=rfc3339(expires)
    )
    waiting = held.data(cause="approval", approval_id=op.id)
    for offset, (kind, data) in enumerate((("approval.required", asked), ("turn.waiting", waiting)), start=1):
        number = held.last_event + offset
        tx.put("event_insert", (held.scope, op.lease.mailbox, number, kind, held.turn, None, data, tx.now))
    tx.put("mailbox_count_events", (held.last_event + 2, held.block, tx.now, op.lease.mailbox))
    tx.touch(op.lease.recipient, Aspect.EVENTS)
    return Approval(op.id, held.session, ApprovalState.WAITING, expires)


def answer_approval(tx: Tx, op: AnswerApproval) -> Approval:
    """Carry out `AnswerApproval`."""
    row = _known(tx, op.id, tx.scope(op.scope))
    wanted = ApprovalState.APPROVED if op.approve else ApprovalState.DENIED
    found = _approval(row)
    if found.state is wanted:
        return found
    if found.state is not ApprovalState.WAITING or found.expires <= tx.now:
        state = ApprovalState.EXPIRED if found.state is ApprovalState.WAITING else found.state
        raise Conflict(f"this call is already {state}", path="approve")
    return _close(tx, row, wanted, op.by)


def expire_approval(tx: Tx, op: ExpireApproval) -> Approval:
    """Carry out `ExpireApproval`."""
    row = _known(tx, op.id, tx.scope(op.scope))
    found = _approval(row)
    if found.state is not ApprovalState.WAITING or found.expires > tx.now:
        return found
    return _close(tx, row, ApprovalState.EXPIRED, None)


def _close(tx: Tx, row: Row, state: ApprovalState, by: str | None) -> Approval:
    tx.put("approval_close", (state, tx.now, by, row[0]))
    tx.touch(row[4], Aspect.CONTROL)
    return Approval(row[0], row[1], state, row[3])


def _known(tx: Tx, id: str, scope: int) -> Row:
    row = tx.one("approval_for_change", (id, scope))
    if row is None:
        raise NotFound("there is no such approval here", path="id")
    return row


def _approval(row: Row) -> Approval:
    return Approval(row[0], row[1], ApprovalState(row[2]), row[3])
