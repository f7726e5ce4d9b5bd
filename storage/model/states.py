"""The life of a message: theory first, then the table; nothing else moves a message.

pending     accepted and waiting. In: accepted; or returned by a retry, a hand-back, a stop before it was seen. Out: the holder of the
            mailbox claims or absorbs it; an operator cancels it; its target is deleted. Parked = pending without a due time, with a reason.
processing  part of the turn that the mailbox's holder runs. In: claim (head and carried rows), absorb (steered rows). Out: by the holder
            alone, under the mailbox's epoch.
delivered   final. The turn that consumed it has committed; `outcome` says answered, stopped or no_visible_reply.
failed      final. `reason` says why; its sender is told.

Each UPDATE names the state it leaves, and an illegal move raises and changes nothing (INB-2). A requeue is a new row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .errors import IllegalMove


class Status(StrEnum):
    """States of a message."""

    PENDING = "pending"
    PROCESSING = "processing"
    DELIVERED = "delivered"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a message failed."""

    RETRIES_USED = "retries_used"
    TAKEOVERS_USED = "takeovers_used"
    TARGET_DELETED = "target_deleted"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNDECODABLE = "undecodable"


class Outcome(StrEnum):
    """How the turn that consumed a delivered message ended."""

    ANSWERED = "answered"
    STOPPED = "stopped"
    NO_VISIBLE_REPLY = "no_visible_reply"


MOVES: Final[dict[Status, frozenset[Status]]] = {
    Status.PENDING: frozenset({Status.PROCESSING, Status.FAILED}),
    Status.PROCESSING: frozenset({Status.PENDING, Status.DELIVERED, Status.FAILED}),
    Status.DELIVERED: frozenset(),
    Status.FAILED: frozenset(),
}

OPEN: Final = frozenset({Status.PENDING, Status.PROCESSING})
"""Open rows stand in the head index: a processing row still blocks those behind it."""


def move(old: Status, new: Status) -> Status:
    """Return `new` if the table has the move; else raise `IllegalMove`."""
    if new not in MOVES[old]:
        raise IllegalMove(f"a message can't move from {old} to {new}", path="status")
    return new
