"""What a front is told, in order: what was said, where its user is now, what is offered, which of its posts have ended. Values only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from ...storage.model.errors import CallboardError
from .conversation import Show, ShowKind
from .handoffs import Handoff, Why
from .rest import Place


class By(StrEnum):
    """What has opened a session."""

    START = "start"
    """The front has begun: anew, or where it was before."""
    USER = "user"
    HANDOFF = "handoff"


@attrs.frozen
class Said:
    """Something to show of a session: the open one, or one that was left before it had answered."""

    place: Place
    show: Show


@attrs.frozen
class Opened:
    """This session is open from here on: what is said next goes there. `cue` is the one short thing that a voice says of it (HND-5)."""

    place: Place
    by: By
    handoff: Handoff | None = None

    @property
    def cue(self) -> str:
        """A few words to be spoken: `Now at deploy.`"""
        path = self.place.path
        name = "main" if path == "/" else path.rpartition("/")[2] if path else self.place.name
        return f"Now at {name}."


@attrs.frozen
class Offered:
    """A handoff that the user may accept (`Front.accept`) or decline (`Front.decline`). `place` is where it comes from."""

    place: Place
    handoff: Handoff
    why: Why


@attrs.frozen
class Refused:
    """A handoff that was to be followed, to a session that may not be opened, or does not exist any more."""

    handoff: Handoff
    error: CallboardError


@attrs.frozen
class Ended:
    """A post of this front has come to its end. `show` ended it: the end of its turn, of one that took it in, or a gap in the events."""

    place: Place
    message_id: str
    failed: bool
    show: Show


Notice = Said | Opened | Offered | Refused | Ended

FINAL = ("delivered", "failed")


def ended_with(show: Show, message: dict[str, Any]) -> bool:
    """Whether `message` has no end of its own to wait for: a running turn took it in (it was never claimed), or its end is in a gap."""
    if show.kind is ShowKind.GAP:
        return message["status"] in FINAL
    return message["status"] == "delivered" and message["attempt"] == 0
