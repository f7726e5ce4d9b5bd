"""Changing messages from outside a turn: Cancel, Requeue, and failing what waits. Not here: anything that a lease holder does."""

from __future__ import annotations

from collections.abc import Sequence

from ..changes import Aspect
from ..model.addresses import Scope, Sender
from ..model.errors import IllegalMove, NotFound
from ..model.ids import turn_id
from ..model.messages import Kind, Receipt, digest
from ..model.sessions import ChildState
from ..model.states import Reason, Status, move
from ..ops.inbox import Cancel, Enqueue, Requeue
from ..rows import Row
from .accepting import enqueue
from .notices import end_child, tell_sender, tell_senders
from .tx import Tx, turn_data


def cancel(tx: Tx, op: Cancel) -> None:
    """Carry out `Cancel`."""
    row = tx.one("message_for_change", (op.id, tx.scope(op.scope)))
    if row is None:
        raise NotFound("there is no such message here", path="id")
    status, reason = Status(row[4]), row[5]
    if status is Status.FAILED and reason == Reason.CANCELLED:
        return
    if status is Status.PROCESSING:
        raise IllegalMove("the message is part of a running turn: stop that turn instead", path="status")
    move(status, Status.FAILED)
    fail_waiting(tx, op.scope, op.id, Reason.CANCELLED)


def requeue(tx: Tx, op: Requeue) -> Receipt:
    """Carry out `Requeue`: a new row with the old one's sender, kind, content and payload, and a chain of its own."""
    row = tx.one("message_for_change", (op.id, tx.scope(op.scope)))
    if row is None:
        raise NotFound("there is no such message here", path="id")
    if Status(row[4]) in {Status.PENDING, Status.PROCESSING}:
        raise IllegalMove(f"a message that is {row[4]} can't be requeued", path="status")
    if row[24] is not None:
        raise IllegalMove("the message was pruned, and its payload is gone: send it anew", path="status")
    content = tx.one("entry_content", (row[1], row[13]))
    if content is None:
        raise NotFound("the message's text is gone", path="id")
    kind = Kind(row[6])
    exempt = kind in {Kind.NOTICE, Kind.SUBAGENT_RESULT}
    return enqueue(
        tx,
        Enqueue(
            scope=op.scope, recipient=row[15], sender=Sender(row[7], row[8], row[20]), kind=kind, content=content[0],
            payload=row[11], id=op.new_id, message_id=None, digest=digest(row[15], kind, content[0], row[11]),
            chain=op.new_id, hops=0, reply_to=row[21], transport=row[18], destination_peer=row[19],
            max_attempts=row[12], depth_limit=None if exempt else op.depth_limit, edge=None if exempt else op.edge,
            requeued_from=op.id,
        ),
    )  # fmt: skip


def fail_waiting(tx: Tx, scope: Scope, uid: str, reason: Reason) -> None:
    """Fail an open message that no living turn holds: terminal event, then a notice to its sender."""
    row = tx.one("message_for_change", (uid, tx.scope(scope)))
    if row is None:
        raise NotFound("there is no such message here", path="id")
    tx.put("message_fail", (reason, None, tx.now, row[0], row[4]))
    tx.count("failed", reason)
    event = row[16] + 1
    data = turn_data(turn_id(uid), row[3] or uid, row[14], reason=reason)
    tx.put("event_insert", (tx.scope(scope), row[1], event, "turn.failed", turn_id(uid), None, data, tx.now))
    tx.put("mailbox_settle", (event, 1, tx.now, row[1]))
    if row[14]:
        # It was claimed before: its turn will not run again, so the next one must not obey its stop, nor seem to be it.
        tx.put("stop_forget", (row[1],))
        tx.put("absorbed_forget", (row[1], row[0]))
    tx.touch(row[15], Aspect.EVENTS | Aspect.DUE)
    tell_sender(tx, scope, uid, row[6], Sender(row[7], row[8]), reason)
    if row[13] == 1 and row[22] is not None:
        # A child's task is the first message of its mailbox: the child ends with it.
        end_child(tx, row[22], row[23], ChildState.FAILED, None)


def fail_all(
    tx: Tx,
    scope: Scope,
    mailbox: int,
    recipient: str,
    last_event: int,
    rows: Sequence[Row],
    reason: Reason,
    *,
    gone: int,
) -> None:
    """Fail many open messages of one mailbox that no living turn holds, as `fail_waiting` does one; none of them is a running child's task.

    `rows` are those of `open_rows` or `waiting_rows`, `gone` how many of them the mailbox's depth still counts. All of them go at once:
    of half a queue that is dropped the rest would be run. A statement for each table, not several for each row: everybody else waits.
    """
    if not rows:
        return
    now, owner = tx.now, tx.scope(scope)
    tx.put_all("message_fail", [(reason, None, now, row, status) for row, _, _, status, *_ in rows])
    tx.put_all(
        "event_insert",
        [
            (owner, mailbox, number, "turn.failed", turn_id(uid), None,
             turn_data(turn_id(uid), name or uid, claims, reason=reason), now)
            for number, (_, uid, name, _, claims, *_) in enumerate(rows, start=last_event + 1)
        ],
    )  # fmt: skip
    tx.count("failed", reason, len(rows))
    tx.put("mailbox_settle", (last_event + len(rows), gone, now, mailbox))
    tx.touch(recipient, Aspect.EVENTS | Aspect.DUE)
    tell_senders(tx, scope, [(row[1], row[5], row[7], row[6]) for row in rows], reason)
