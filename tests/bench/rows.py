"""What a scenario gives, and how it compares: a `Row`, and measurements that alternate with those of their floor.

Not here: scenarios, printing. Invariant: a row's value and floor were measured in the same run, one right after the other, so a busy
machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import attrs

Pair = tuple[float, float]
"""Ours, floor."""


@attrs.frozen
class Row:
    """One line of the table. For rates higher is better, for times and sizes lower is.

    `n` is how many operations were measured; `note` is for people and is no part of the JSON.
    """

    name: str
    value: float
    unit: str
    floor: float
    n: int
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.value / self.floor if self.floor else 0.0

    def as_json(self) -> dict[str, str | float]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "floor": self.floor,
            "ratio": self.ratio,
            "n": self.n,
        }


def timed(work: Callable[[], object]) -> float:
    """The seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def alternating(rounds: int, ours: Callable[[], Awaitable[float]], floor: Callable[[], Awaitable[float]]) -> Pair:
    """Measure both in turn, `rounds` times; the pair whose ratio is the median."""
    pairs: list[Pair] = []
    for _ in range(rounds):
        under = await floor()
        pairs.append((await ours(), under))
    return middle(pairs)


def middle(pairs: Sequence[Pair]) -> Pair:
    """The pair whose ratio is the median."""
    return sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]
