"""The table of scenarios: each name of the outer contract, on each database. Not here: what they measure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs

from callboard.tests.bench.databases import PREFIXES, opened
from callboard.tests.bench.network_scenarios import fanout
from callboard.tests.bench.restart_scenarios import redelivery, start
from callboard.tests.bench.rows import Row
from callboard.tests.bench.runtime_scenarios import accept, busy_loop, hot, light, stuck, turn
from callboard.tests.bench.size_scenarios import claim, claim_costs, resident, rest

Measure = Callable[..., Awaitable[Row]]
MEASURES: dict[str, Measure] = {
    "accept": accept,
    "turn": turn,
    "light": light,
    "claim": claim,
    "hot": hot,
    "start": start,
    "redelivery": redelivery,
    "fanout": fanout,
    "rest": rest,
    "resident": resident,
    "stuck": stuck,
    "busy_loop": busy_loop,
}
CURVE = (1_000, 10_000, 100_000, 1_000_000)
"""Pending rows."""


@attrs.frozen
class Scenario:
    """A measure on a database, by the name that its row has."""

    name: str
    database: str
    measure: Measure

    async def run(self, folder: Path, *, quick: bool) -> Row:
        """Measure it with its files in `folder`, an empty one."""
        with opened(self.database, folder) as place:
            return attrs.evolve(await self.measure(place, quick=quick), name=self.name)


SCENARIOS = {
    prefix + name: Scenario(prefix + name, database, measure)
    for database, prefix in PREFIXES.items()
    for name, measure in MEASURES.items()
}


async def claim_curve(database: str, folder: Path, *, quick: bool) -> dict[int, float]:
    """Microseconds to claim a mailbox, by how many rows are pending."""
    sizes, rounds = (CURVE[:3], 20) if quick else (CURVE, 40)
    with opened(database, folder) as place:
        return await claim_costs(place, sizes, rounds)
