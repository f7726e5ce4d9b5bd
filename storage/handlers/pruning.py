"""Retention: PruneMessages, PruneProcesses. Invariant: an open message is never touched, and a transcript reads the same before and after."""

from __future__ import annotations

from ..ops.upkeep import Pruned, PruneMessages, PruneProcesses
from .tx import Tx, encode


def prune_messages(tx: Tx, op: PruneMessages) -> Pruned:
    """Carry out `PruneMessages`: first the rows whose time is over, then bodies, within the limit of the op."""
    scopes = [row[0] for row in tx.all("scopes")] if op.scope is None else [tx.scope(op.scope)]
    deleted = blanked = 0
    for scope in scopes:
        deleted += _forget(tx, scope, op, op.limit - deleted)
    if op.keep_seconds is not None:
        for scope in scopes:
            blanked += _blank(tx, scope, tx.now - op.keep_seconds, op.limit - deleted - blanked)
    return Pruned(blanked, deleted, more=deleted + blanked >= op.limit)


def prune_processes(tx: Tx, op: PruneProcesses) -> int:
    """Carry out `PruneProcesses`."""
    gone = tx.run("processes_forget", (tx.now - op.keep_seconds, op.left or ""))
    if gone:
        tx.put("stuck_forget")
    return gone


def _blank(tx: Tx, scope: int, before: float, most: int) -> int:
    rows = tx.all("messages_to_blank", (scope, before, most)) if most > 0 else []
    if rows:
        tx.put_all("message_blank", [(tx.now, row) for (row,) in rows])
        tx.put_all("attempts_blank", rows)
        tx.put_all("steps_forget", rows)
        tx.put_all("approvals_forget", rows)
    return len(rows)


def _forget(tx: Tx, scope: int, op: PruneMessages, most: int) -> int:
    rows = tx.all("messages_to_forget", (scope, tx.now - op.key_seconds, most)) if most > 0 else []
    for row, mailbox, seq, answer, *shown in rows:
        origin = encode(shown)
        # Its own entry, and the answer of the turn that it headed.
        places = [(origin, mailbox, place, row) for place in (seq, answer) if place is not None]
        tx.put_all("entry_origin", places)
        tx.put("marker_forget", (mailbox, row))
        tx.put("attempts_forget", (row,))
        tx.put("message_forget", (row,))
    return len(rows)
