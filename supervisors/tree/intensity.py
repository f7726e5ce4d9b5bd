"""How often and how fast children are restarted: two pure rules.

Lives here: the sliding window that ends a restart loop, and the delays inside it. Not here: a clock or a random source;
both come in as numbers.

Invariant: if every restart is recorded and none is made once `exceeded`, no stretch of `period_seconds`, its ends
included, holds more than `restarts` of them.
"""

import attrs

from .checks import check_count, check_number
from .errors import SpecError


@attrs.frozen
class Intensity:
    """At most `restarts` in any `period_seconds`; one more and the supervisor gives up. 0 restarts: the first one is."""

    restarts: int = 5
    period_seconds: float = 30.0

    def __attrs_post_init__(self) -> None:
        check_count("restarts", self.restarts, owner="Intensity")
        check_number("period_seconds", self.period_seconds, owner="Intensity")


@attrs.frozen
class Window:
    """The restarts that still count, oldest first: never more than the limit and the one that broke it."""

    limit: Intensity
    times: tuple[float, ...] = ()

    def record(self, now: float) -> "Window":
        """The window after a restart at `now` (monotonic seconds). A clock that steps back counts as standing still."""
        if self.times:
            now = max(now, self.times[-1])
        # At the edge a restart still counts (OTP's rule), so a loop that is exactly as fast as allowed is caught.
        kept = [time for time in self.times if now - time <= self.limit.period_seconds]
        return attrs.evolve(self, times=(*kept, now)[-(self.limit.restarts + 1) :])

    @property
    def exceeded(self) -> bool:
        """Whether the restart recorded last was one too many."""
        return len(self.times) > self.limit.restarts


@attrs.frozen
class Backoff:
    """Seconds between the end of a child and its restart, by how often in a row it has failed.

    The first restart waits `first_seconds`; the second `base_seconds`, each later one `factor` times the one before, and
    none longer than `cap_seconds`. `jitter` is the part of a delay that may be taken off by chance: children that failed
    together for one reason don't come back together. A child that has run for the supervisor's whole period starts over
    at the first.
    """

    first_seconds: float = 0.0
    base_seconds: float = 0.1
    factor: float = 2.0
    cap_seconds: float = 10.0
    jitter: float = 0.5

    def __attrs_post_init__(self) -> None:
        check_number("first_seconds", self.first_seconds, owner="Backoff")
        check_number("base_seconds", self.base_seconds, owner="Backoff")
        check_number("factor", self.factor, owner="Backoff", least=1.0)
        check_number("cap_seconds", self.cap_seconds, owner="Backoff")
        check_number("jitter", self.jitter, owner="Backoff")
        if self.jitter > 1:
            raise SpecError("jitter", f"not between 0 and 1: {self.jitter!r}", owner="Backoff")

    def delay(self, failures: int, roll: float) -> float:
        """Seconds to wait after the n-th failure in a row (from 1); `roll` is a random number in [0, 1)."""
        if failures <= 1:
            full = self.first_seconds
        else:
            try:
                full = self.base_seconds * self.factor ** (failures - 2)
            except OverflowError:
                full = self.cap_seconds
        return min(full, self.cap_seconds) * (1 - self.jitter * roll)
