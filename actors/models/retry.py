"""When to ask a model's service again. Pure. Lives here: which answers are worth another try, how long to wait before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import random
from typing import Final

PASSING: Final = frozenset({408, 425, 429})
"""Refusals of the moment, beside all of 5xx."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z")
_DOUBLINGS_MOST: Final = 16


def worth_another_try(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in PASSING or status >= 500


def asked_to_wait(headers: Mapping[str, str], now: datetime) -> float:
    """Seconds that `Retry-After` (seconds, or an HTTP date) or `retry-after-ms` ask for; 0 for none, or what can't be read.

    `headers` finds names in lower case. A date counts from the service's own clock where it tells it, else from `now`.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.match(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _SECONDS.match(value):
        return float(value)
    at = _date(value)
    return 0.0 if at is None else max(0.0, (at - (_date(headers.get("date", "")) or now)).total_seconds())


def pause(tries: int, asked: float, base: float, most: float, chance: Callable[[], float] = random) -> float:
    """Seconds to wait after `tries` (1 or more) that failed: doubling from `base` with 0 to 25% jitter, and what was asked for, up to `most`."""
    backoff = base * 2.0 ** min(tries - 1, _DOUBLINGS_MOST) * (1.0 + 0.25 * chance())
    return min(most, max(asked, backoff))


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
