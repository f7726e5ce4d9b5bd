"""Sessions and their transcript. Lives here: kinds, the session as readers see it, entries. Not here: turns and events."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, TypeVar

import attrs

from .addresses import Scope, Sender


class SessionKind(StrEnum):
    """How a session was created; never derived from content (SES-1)."""

    INTERACTIVE = "interactive"
    SUBAGENT = "subagent"
    CRON = "cron"
    SOCIAL = "social"
    REMOTE = "remote"
    A2A = "a2a"
    EXTERNAL = "external"
    INTERNAL = "internal"
    """Never addressable: answers as not existing."""


class ChildState(StrEnum):
    """Life of a subagent as its parent sees it; all but running are final and wake the parent once (SES-8)."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    DELETED = "deleted"


T = TypeVar("T")

ACTIVE: Final = "active"
IDLE: Final = "idle"


@attrs.frozen
class Session:
    """A session. `status` is active while a turn or a running child exists; times are seconds since the epoch."""

    id: str
    scope: Scope
    kind: SessionKind
    agent: str
    path: str | None
    title: str
    parent: str | None
    status: str
    updated: float
    created: float
    child_state: ChildState | None = None
    newest_event: int = 0
    newest_seq: int = 0


@attrs.frozen
class Handoff:
    """Where a turn hands the user over to: the session `channel_id`, which was at `path`. `confirm`: the user is to be asked first.

    `event_id`: the event `turn.handoff` of it, in the log of the turn's own session; the number is known for longer than the event is kept.
    """

    path: str
    channel_id: str
    event_id: int
    confirm: bool = False


@attrs.frozen
class Entry:
    """A row of a transcript; append-only. `role`: user, assistant or notice. `state`: of the message that it shows, else delivered.

    `handoff`: the turn that ended with this answer has handed the user over; of several times it is the last (HND-3).
    """

    seq: int
    role: str
    content: str
    sender: Sender
    at: float
    state: str
    message_id: str | None = None
    in_reply_to: str | None = None
    handoff: Handoff | None = None


@attrs.frozen
class Page(Generic[T]):
    """A slice of a listing; `next` is the cursor of the following slice."""

    items: tuple[T, ...]
    next: str | None

    @property
    def has_more(self) -> bool:
        """Whether a further slice follows."""
        return self.next is not None
