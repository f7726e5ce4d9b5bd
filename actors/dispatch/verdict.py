"""How a turn's end is judged: one pure table (RT-5), and the back-off of a failed attempt (INB-7).

Precedence: lease lost > stop > shutdown > exception > result.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from random import random

from ...storage.model.limits import BACKOFF_CAP_SECONDS


class Verdict(StrEnum):
    """What becomes of the turn's messages."""

    LOST = "lost"
    """Somebody else holds the mailbox, or may: write nothing."""
    STOPPED = "stopped"
    """Commit what there is, with outcome `stopped`."""
    HAND_BACK = "hand_back"
    """Return to pending without an attempt."""
    EXPIRED = "expired"
    """A child's time limit has passed."""
    RETRY = "retry"
    """An attempt was used."""
    COMMIT = "commit"


def judge(*, lost: bool, stop: bool, shutdown: bool, expired: bool, failed: bool) -> Verdict:
    """The verdict on a turn that has ended. A time limit counts like an exception that is not worth another try."""
    if lost:
        return Verdict.LOST
    if stop:
        return Verdict.STOPPED
    if shutdown:
        return Verdict.HAND_BACK
    if expired:
        return Verdict.EXPIRED
    return Verdict.RETRY if failed else Verdict.COMMIT


def backoff(attempts: int, chance: Callable[[], float] = random) -> float:
    """Seconds until the next try after `attempts` failures (1 or more): 2^n with 0 to 25% jitter, at most 60."""
    return min(BACKOFF_CAP_SECONDS, 2.0 ** min(attempts, 16) * (1.0 + 0.25 * chance()))
