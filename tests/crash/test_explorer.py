"""A part of what the explorer tries (`explore.py` tries all of it): the scripted day, struck at points that are spread over all of it."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from callboard.tests.crash.explorer import spread
from callboard.tests.crash.kit import Workers
from callboard.tests.crash.strikes import EXPLORERS

POINTS = int(os.environ.get("CALLBOARD_KILL_POINTS", "40"))
LEAST = 300
"""A day with fewer points would not be the one that is meant."""


async def explored(workers: Workers, folder: Path, database: str, how: str, most: int) -> int:
    """Explore so many points; how many lives that took."""
    with closing(EXPLORERS[database][how](workers, database, folder, seed=0)) as explorer:
        points = await explorer.count()
        assert points > LEAST
        result = await explorer.explore(spread(points, most), lanes=2, told=print)
    print(f"{result.tried} of {result.points} points, {result.lives} lives, {result.seconds:.1f} s")
    assert not result.failures
    assert result.tried == most
    # On a server a day does not have the same number of points each time: the last of them may not be there.
    assert most - result.reached <= (0 if database == "sqlite" else 2)
    return result.lives


@pytest.mark.spec("RT-9", "RT-10", "RT-18", "INB-1", "INB-6", "INB-8", "EVT-2", "EVT-3", "SES-8", "SES-10")
@pytest.mark.spec("HND-2", "HND-3", "MSG-2")
@pytest.mark.parametrize(("database", "share"), [("sqlite", 1.0), ("postgresql", 0.5)])
async def test_a_day_that_is_killed_comes_to_the_same_end(
    workers: Workers, tmp_path: Path, database: str, share: float
) -> None:
    most = int(POINTS * share)
    lives = await explored(workers, tmp_path, database, "kill", most)
    assert lives > 2 * most, "no day was killed again while it recovered"


@pytest.mark.spec("RT-7", "RT-8", "RT-9", "INB-8")
async def test_a_process_that_stood_still_past_its_leases_changes_nothing_any_more(
    workers: Workers, tmp_path: Path
) -> None:
    most = POINTS // 5
    assert await explored(workers, tmp_path, "postgresql", "stop", most) > 2 * most


@pytest.mark.spec("RT-9", "INB-1", "INB-13")
@pytest.mark.parametrize(("how", "share"), [("cut", 0.25), ("restart", 0.1)])
async def test_a_day_goes_on_by_itself_when_the_database_was_away(
    workers: Workers, tmp_path: Path, how: str, share: float
) -> None:
    await explored(workers, tmp_path, "postgresql", how, int(POINTS * share))
