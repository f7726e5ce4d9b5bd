"""What this process counts of its turns and requests, as plain numbers; and the meter that passes on to several.

Not here: what the store counts of messages (it counts what has committed), names and formats (`metrics`), traces (`tracing`).
Invariant: whatever is counted by has few values, so that the figures stay small: templates of routes, never addresses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable
from typing import Final, TypeVar

import attrs

from ..actors.ports import Meter, TurnEnd, TurnFacts, TurnWatch

T = TypeVar("T")
BUCKETS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0)
"""Upper ends in seconds: from an agent that only looks something up to one that works for half an hour."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Figures:
    """A `Meter` that counts. `durations` holds one more place than `BUCKETS`, for what lasted longer."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.durations = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self.requests: Counter[tuple[str, str, int]] = Counter()

    def turn(self, facts: TurnFacts) -> TurnWatch:
        return self

    def running(self, run: Awaitable[T]) -> Awaitable[T]:
        return run

    def ended(self, end: TurnEnd) -> None:
        self.turns[end.end] += 1
        self.durations[bisect_left(BUCKETS, end.seconds)] += 1
        self.seconds += end.seconds

    def answered(self, route: str, method: str, status: int) -> None:
        # A client may call its method as it likes.
        self.requests[route, method if method in METHODS else "other", status] += 1


@attrs.frozen
class Meters:
    """Several meters as one."""

    meters: tuple[Meter, ...]

    def turn(self, facts: TurnFacts) -> TurnWatch:
        return _Watches(tuple(meter.turn(facts) for meter in self.meters))

    def answered(self, route: str, method: str, status: int) -> None:
        for meter in self.meters:
            meter.answered(route, method, status)


@attrs.frozen
class _Watches:
    watches: tuple[TurnWatch, ...]

    def running(self, run: Awaitable[T]) -> Awaitable[T]:
        for watch in reversed(self.watches):
            run = watch.running(run)
        return run

    def ended(self, end: TurnEnd) -> None:
        for watch in self.watches:
            watch.ended(end)
