"""When a handoff moves the user: the rules of every front, terminal, browser and voice (HND-4, HND-5). The console has the same in `handoffs.js`.

Pure: what happened in, a decision out. Not here: connections, what is kept between two runs (`memory`), carrying a decision out (`front`).

Invariant: an event moves this client once at most, never to undo what the user did after it, and never from a session that isn't open.
Nothing here looks at what somebody said: the open session decides where a line goes, and only these rules and the user change it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

OPEN: Final = ("pending", "processing")
"""States of a message that has not come to its end."""
HANDLED_MOST: Final = 256
"""Event ids that are remembered as acted upon: of so many the oldest are below what the user did since."""
_POSTED: Final = re.compile(r"(.{1,64})::[0-9a-f]{32}\Z")


@attrs.frozen
class Key:
    """An event: ids are numbers within a session."""

    session: str
    id: int


class Verdict(StrEnum):
    """What to do about a handoff."""

    FOLLOW = "follow"
    OFFER = "offer"
    IGNORE = "ignore"
    HOLD = "hold"
    """Nothing yet: what the user did last is not known before the server has noted it."""


class Why(StrEnum):
    """What decided."""

    OPEN = "open"
    """It comes from the open session."""
    HANDLED = "handled"
    """This client has acted on it."""
    OLDER = "older"
    """It is older than where the user went last."""
    THERE = "there"
    """The user is there already."""
    ELSEWHERE = "elsewhere"
    """It comes from a session that isn't open."""
    CONFIRM = "confirm"
    """The target wants the user to be asked."""
    OTHER = "other"
    """It answers what another client has posted: a second tab, or another person, in the same session."""
    GOING = "going"
    """The user is on the way elsewhere."""


@attrs.frozen
class Handoff:
    """A `turn.handoff` {path, channel_id, from_path, confirm?} with its id in `session`; `by` is the client whose message it answers, if known.

    A turn's result tells of it without `from_path`.
    """

    session: str
    id: int
    path: str
    channel_id: str
    from_path: str | None = None
    confirm: bool = False
    by: str | None = None

    @property
    def key(self) -> Key:
        """Under which it is acted on once."""
        return Key(self.session, self.id)


@attrs.frozen
class Decision:
    """A verdict and its reason."""

    verdict: Verdict
    why: Why


def handoff_of(session: str, number: int, data: Mapping[str, Any]) -> Handoff:
    """The handoff in an event of kind `turn.handoff`."""
    confirm, by = bool(data.get("confirm")), poster(str(data.get("message_id", "")))
    return Handoff(session, number, data["path"], data["channel_id"], data.get("from_path"), confirm, by)


def result_of(session: str, result: Mapping[str, Any], message: str) -> Handoff | None:
    """The handoff in a turn's result, an answer's entry or the event that ends the turn; `message` is what the turn answered."""
    handoff = result.get("handoff")
    return None if handoff is None else handoff_of(session, handoff["event_id"], {**handoff, "message_id": message})


def transcript_result(session: str, entries: Sequence[Mapping[str, Any]]) -> Handoff | None:
    """The handoff in the newest answer of a transcript, of which these are the newest entries, in order; None if it is not the last result.

    A turn that was stopped, failed or said nothing has left no answer: it is seen by its message, which waits no longer.
    """
    last = next((entry for entry in reversed(entries) if entry["state"] not in OPEN), None)
    return result_of(session, last, last["in_reply_to"]) if last is not None and last["role"] == "assistant" else None


def post_id(client: str) -> str:
    """A new message id that says which client has posted: a handoff that answers it is that client's to follow."""
    return f"{client}::{uuid.uuid4().hex}"


def poster(message_id: str) -> str | None:
    """The client that made a message id by `post_id`; None for any other id."""
    found = _POSTED.match(message_id)
    return found[1] if found else None


class Rules:
    """What one client knows of where its user is. `open` is the open session; `frontiers` what `navigate` answered last."""

    def __init__(self, client: str, *, opened: str | None = None, handled: Iterable[Key] = ()) -> None:
        self.client = client
        self.open = opened
        self.frontiers: Mapping[str, int] = {}
        self.going = False
        """Where the user went last is not noted yet, or what was noted is not known here."""
        self._handled = dict.fromkeys(handled)

    @property
    def handled(self) -> tuple[Key, ...]:
        """What was acted upon, oldest first."""
        return tuple(self._handled)

    def decide(self, handoff: Handoff) -> Decision:
        """What to do about it now. Asks nothing and changes nothing."""
        if handoff.key in self._handled:
            return Decision(Verdict.IGNORE, Why.HANDLED)
        if handoff.id <= self.frontiers.get(handoff.session, 0):
            return Decision(Verdict.IGNORE, Why.OLDER)
        if self.going:
            return Decision(Verdict.HOLD, Why.GOING)
        if handoff.channel_id == self.open:
            return Decision(Verdict.IGNORE, Why.THERE)
        if handoff.session != self.open:
            return Decision(Verdict.OFFER, Why.ELSEWHERE)
        if handoff.confirm:
            return Decision(Verdict.OFFER, Why.CONFIRM)
        if handoff.by not in (None, self.client):
            return Decision(Verdict.OFFER, Why.OTHER)
        return Decision(Verdict.FOLLOW, Why.OPEN)

    def navigate(self, session: str) -> None:
        """The user goes to a session; until `navigated`, nothing is decided."""
        self.open, self.going = session, True

    def navigated(self, frontiers: Mapping[str, int]) -> None:
        """The server has noted where the user went: the newest event of each session at that moment."""
        self.frontiers, self.going = dict(frontiers), False

    def followed(self, handoff: Handoff) -> None:
        """Its target is the open session now."""
        self.open = handoff.channel_id
        self.settle(handoff)

    def settle(self, handoff: Handoff) -> None:
        """It was acted upon: followed, accepted, declined, or found to lead nowhere."""
        self._handled[handoff.key] = None
        while len(self._handled) > HANDLED_MOST:
            del self._handled[next(iter(self._handled))]


class LastResult:
    """What a reload has to look at in a session's log: the handoff of the turn that runs, or else what the last result there says.

    See events in order. `known` says that there is a result; if none is, the transcript may have it (`transcript_result`).
    """

    def __init__(self, session: str) -> None:
        self.known = False
        self._session = session
        self._turn: str | None = None
        self._running: Handoff | None = None
        self._result: Handoff | None = None

    @property
    def found(self) -> Handoff | None:
        """The handoff, if there is one."""
        return self._running or self._result

    def see(self, number: int, kind: str, data: Mapping[str, Any]) -> None:
        """The next event."""
        if kind == "turn.handoff":
            self._turn, self._running = data["turn_id"], handoff_of(self._session, number, data)
        elif kind == "turn.failed" and data["turn_id"] == self._turn:
            self._running = None  # it has no result
        elif kind in ("turn.completed", "turn.stopped"):
            self.known, self._running = True, None
            self._result = result_of(self._session, data, data["message_id"])
