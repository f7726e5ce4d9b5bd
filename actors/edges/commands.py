"""What a client may say over a websocket: frames as values, and why one is refused.

Lives here: the shapes, the errors that only a websocket has. Not here: carrying a command out (live).

Invariant: an unknown type or field is refused with an error frame, never ignored: a client that misspells must not believe it was heard.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from ...storage.model.errors import Conflict, InvalidField, LimitReached, UsageError
from ...storage.model.limits import MESSAGE_ID_CHARS
from ...storage.wire import structure
from .edge import CURSOR_MOST


class UnknownType(UsageError):
    """The frame's `type` names no command."""

    code: ClassVar[str] = "unknown_type"


class BinaryFrame(UsageError):
    """Frames of this protocol are text."""

    code: ClassVar[str] = "binary_frame"


class AlreadySubscribed(Conflict):
    """This connection follows that session; it may unsubscribe first."""

    code: ClassVar[str] = "already_subscribed"


class NotSubscribed(Conflict):
    """This connection does not follow that session."""

    code: ClassVar[str] = "not_subscribed"


class UnnamedClient(UsageError):
    """What this command notes is kept for a client by the id it gives at the handshake, and this one gave none."""

    code: ClassVar[str] = "unnamed_client"


class TooManySubscriptions(LimitReached):
    """This connection follows as many sessions as it may."""

    code: ClassVar[str] = "too_many_subscriptions"


@attrs.frozen
class Subscribe:
    """Follow a session from above the event `after`; 0 is the beginning."""

    session: str
    after: int = 0

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.after <= CURSOR_MOST:
            raise InvalidField("must be a whole number from 0", path="after")


@attrs.frozen
class Unsubscribe:
    """Follow a session no longer."""

    session: str


@attrs.frozen
class Send:
    """Post to a session; under a `message_id` it can be sent again."""

    session: str
    content: str
    message_id: str | None = None


@attrs.frozen
class Stop:
    """Stop the turn that a session runs."""

    session: str


@attrs.frozen
class Navigate:
    """The person at this client opens a session: handoffs up to now are no longer to be followed (HND-4)."""

    session: str


Command = Subscribe | Unsubscribe | Send | Stop | Navigate
_COMMANDS: Final[dict[str, type[Command]]] = {
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "send": Send,
    "stop": Stop,
    "navigate": Navigate,
}


def command_from(frame: dict[str, Any]) -> Command:
    """The command that a frame stands for. Raises `UnknownType`, `InvalidField`."""
    kind = frame.get("type")
    if not isinstance(kind, str) or kind not in _COMMANDS:
        raise UnknownType(f"must be one of {', '.join(_COMMANDS)}", path="type")
    return structure({name: value for name, value in frame.items() if name != "type"}, _COMMANDS[kind])


def subject_of(frame: dict[str, Any]) -> dict[str, str]:
    """What an error frame repeats, so that the client knows which of its frames was refused: {session?, message_id?}."""
    given = {name: frame.get(name) for name in ("session", "message_id")}
    return {
        name: text
        for name, text in given.items()
        if isinstance(text, str) and len(text) <= MESSAGE_ID_CHARS and text.isprintable()
    }
