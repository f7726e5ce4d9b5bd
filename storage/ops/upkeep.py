"""Ops that people and housekeeping do: stop a turn, clear a stuck mark, prune events and messages."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..model.addresses import Scope
from ..model.limits import KEY_KEEP_SECONDS, PROCESS_KEEP_SECONDS, PRUNE_MOST, STOP_GRACE_SECONDS
from .base import Lane, Op


@attrs.frozen
class Stopping:
    """The turn that will stop, and how many queued messages were dropped."""

    turn: str
    dropped: int


@attrs.frozen
class RequestStop(Op[Stopping]):
    """Store a stop for the turn that `recipient` runs now, with its grace in seconds (RT-4).

    The newest `key` is remembered: its repeat answers with the turn that it stopped and stops no later one.
    Raises: `UnknownTarget`; `Inactive` if no turn runs.
    """

    repeat: ClassVar[str] = "a turn that is already stopping keeps its first request; the newest key names its turn"

    scope: Scope
    recipient: str
    grace: float = STOP_GRACE_SECONDS
    drop_queued: bool = False
    key: str | None = None


@attrs.frozen
class ClearStuck(Op[None]):
    """The task that survived its cancel has ended: the mailbox may be claimed by that process again."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "clearing twice is clearing once"

    mailbox: int
    holder: str


@attrs.frozen
class PruneEvents(Op[int]):
    """Delete turn.* rows older than `keep_seconds` but terminal ones, looking at no more than `limit` rows a call; returns rows deleted (EVT-4)."""

    repeat: ClassVar[str] = "what is gone stays gone; a floor only rises"

    keep_seconds: float
    limit: int = 2_000


@attrs.frozen
class Pruned:
    """How many messages lost their body, and how many rows went for good. `more`: there may be others."""

    blanked: int
    deleted: int
    more: bool


@attrs.frozen
class PruneMessages(Op[Pruned]):
    """Take the body of messages that have been final for `keep_seconds` (None: of none), and the rows of those without one.

    The inbox shows such a message without content, payload, errors and step log; its transcript entry stays. Key, digest and marker stay
    `key_seconds` more, so that the same send is still known; then the row goes (INB-4). `scope` None means all projects; at most `limit`
    messages a call. Raises: `UnknownTarget` for a project in which nothing was ever opened.
    """

    repeat: ClassVar[str] = "what is gone stays gone, and a body goes once: the time that its key is kept begins once"

    scope: Scope | None
    keep_seconds: float | None
    key_seconds: float = KEY_KEEP_SECONDS
    limit: int = PRUNE_MOST


@attrs.frozen
class PruneProcesses(Op[int]):
    """Forget the processes that have not claimed for `keep_seconds`, and the one that has `left`, with their stuck marks.

    Returns how many were forgotten.
    """

    repeat: ClassVar[str] = "who is forgotten stays so; a process that lives is known again by its next claim"

    keep_seconds: float = PROCESS_KEEP_SECONDS
    left: str | None = None
