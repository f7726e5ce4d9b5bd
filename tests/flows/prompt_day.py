"""A day that stands still, for prompts: what is compared byte by byte must not fail because midnight passed between two of them.

Here: the clock that the block `date` reads, in a test's own process (`set_time`) and in one that loads a team (`stand_still`). Not here: the
store's clock, which goes on, as leases go by it.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from callboard.actors.session.prompt import standard

if TYPE_CHECKING:
    import pytest

MONDAY = 1_796_032_800.0
"""30 November 2026, 10:00 in UTC."""


def set_time(monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    """What prompts are told of the time from now on, until the test ends."""
    monkeypatch.setattr(standard, "datetime", stopped(at))


def stand_still() -> None:
    """It is `MONDAY` for the prompts of this process, for good: a team's module of a real process says so."""
    setattr(standard, "datetime", stopped(MONDAY))  # noqa: B010 - the name is that of a type


def stopped(at: float) -> type[datetime]:
    """A `datetime` for which every moment is `at`."""

    class Stopped(datetime):
        @classmethod
        def fromtimestamp(cls, timestamp: float, tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(at, tz)

    return Stopped
