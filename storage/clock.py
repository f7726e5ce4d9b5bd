"""Store time on SQLite: max(wall at open, persisted floor) + monotonic elapsed, so that a step of the wall clock moves nothing (RT-18).

The monotonic part is Trio's clock, so tests that jump it jump store time too (DESIGN decision 11).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


class StoreClock:
    """Seconds since the epoch that never go back while the store is open."""

    def __init__(self, floor: float, wall: Callable[[], float] = time.time) -> None:
        self._base = max(wall(), floor) - trio.current_time()

    def now(self) -> float:
        """Store time in seconds since the epoch."""
        return self._base + trio.current_time()
