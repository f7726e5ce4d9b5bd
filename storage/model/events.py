"""Events. Lives here: the vocabulary and the value. Not here: how they reach a client.

Invariant: ids are dense per session from 1 above the session's prune floor, and the same for every reader (EVT-2). A restore alone makes a
gap: it skips numbers that may have been given out after the backup was made (OPS-5).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import attrs


class EventKind(StrEnum):
    """All kinds there are (EVT-1)."""

    MESSAGE_CREATED = "message.created"
    TURN_STARTED = "turn.started"
    ATTEMPT_CLAIMED = "attempt.claimed"
    MODEL_REQUEST = "model.request"
    TURN_TOKEN = "turn.token"  # noqa: S105 (not a secret)
    TOOL_CALL = "tool.call"
    TOOL_RESULT = "tool.result"
    TURN_WAITING = "turn.waiting"
    APPROVAL_REQUIRED = "approval.required"
    ATTEMPT_RELINQUISHED = "attempt.relinquished"
    TURN_HANDOFF = "turn.handoff"
    TURN_COMPLETED = "turn.completed"
    TURN_FAILED = "turn.failed"
    TURN_STOPPED = "turn.stopped"
    TURN_RECONCILING = "turn.reconciling"


TERMINAL: Final = frozenset({EventKind.TURN_COMPLETED, EventKind.TURN_FAILED, EventKind.TURN_STOPPED})
"""A turn stream ends after one of these."""


@attrs.frozen
class Event:
    """One event of one session. `at` is in seconds since the epoch; `data` is JSON; `turn` is None for message.created only."""

    session: str
    id: int
    kind: str
    data: dict[str, Any]
    at: float
    turn: str | None = None


@attrs.frozen
class EventPage:
    """Events above a cursor, oldest first, with the session's counters at the same moment.

    `floor`: ids at or below it may have been pruned. `newest`: the highest id given out. `more`: further rows follow. `closed`: the session
    was deleted, so nothing new will follow. `skipped`: the cursor is among the numbers that a restore has skipped.
    """

    events: tuple[Event, ...]
    floor: int
    newest: int
    more: bool
    closed: bool = False
    skipped: bool = False

    def reached(self, cursor: int) -> int:
        """The cursor of a reader at `cursor` who has seen this page: nothing below it is left to read, also where a restore has left a gap."""
        seen = max(cursor, self.events[-1].id) if self.events else cursor
        return seen if self.more else max(seen, self.newest)

    @property
    def last(self) -> bool:
        """No page will ever follow this one."""
        return self.closed and not self.more
