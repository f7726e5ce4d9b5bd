"""A part of what the explorer tries (`explore.py` tries all of it): the scripted day, killed at points that are spread over all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.tests.crash.explorer import Explorer, spread
from callboard.tests.crash.kit import Workers
from callboard.tests.crash.stores import STORES

POINTS = int(os.environ.get("CALLBOARD_KILL_POINTS", "40"))
LEAST = 300
"""A day with fewer points would not be the one that is meant."""


@pytest.mark.spec("RT-9", "RT-10", "RT-18", "INB-1", "INB-6", "INB-8", "EVT-2", "EVT-3", "SES-8", "SES-10")
@pytest.mark.parametrize("database", STORES)
async def test_a_day_that_is_killed_comes_to_the_same_end(workers: Workers, tmp_path: Path, database: str) -> None:
    explorer = Explorer(workers, database, tmp_path, seed=0)
    points = await explorer.count()
    assert points > LEAST
    result = await explorer.explore(spread(points, POINTS), lanes=2, told=print)
    print(f"{result.tried} of {result.points} kill points, {result.lives} lives, {result.seconds:.1f} s")
    assert not result.failures
    assert result.tried == POINTS
    assert result.lives > 2 * POINTS, "no day was killed again while it recovered"
