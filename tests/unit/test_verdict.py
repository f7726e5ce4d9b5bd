"""How the end of a turn is judged: the whole table, written out, and the back-off of a failed attempt."""

from __future__ import annotations

import pytest

from callboard.actors.dispatch.verdict import Verdict, backoff, judge

TABLE = """
lost stop shutdown expired failed  verdict
-    -    -        -       -       commit
-    -    -        -       yes     retry
-    -    -        yes     -       expired
-    -    -        yes     yes     expired
-    -    yes      -       -       hand_back
-    -    yes      -       yes     hand_back
-    -    yes      yes     -       hand_back
-    -    yes      yes     yes     hand_back
-    yes  -        -       -       stopped
-    yes  -        -       yes     stopped
-    yes  -        yes     -       stopped
-    yes  -        yes     yes     stopped
-    yes  yes      -       -       stopped
-    yes  yes      -       yes     stopped
-    yes  yes      yes     -       stopped
-    yes  yes      yes     yes     stopped
yes  -    -        -       -       lost
yes  -    -        -       yes     lost
yes  -    -        yes     -       lost
yes  -    -        yes     yes     lost
yes  -    yes      -       -       lost
yes  -    yes      -       yes     lost
yes  -    yes      yes     -       lost
yes  -    yes      yes     yes     lost
yes  yes  -        -       -       lost
yes  yes  -        -       yes     lost
yes  yes  -        yes     -       lost
yes  yes  -        yes     yes     lost
yes  yes  yes      -       -       lost
yes  yes  yes      -       yes     lost
yes  yes  yes      yes     -       lost
yes  yes  yes      yes     yes     lost
"""
CELLS = [tuple(line.split()) for line in TABLE.strip().splitlines()[1:]]


@pytest.mark.spec("RT-5")
@pytest.mark.parametrize("cell", CELLS, ids=["/".join(cell) for cell in CELLS])
def test_every_cell(cell: tuple[str, ...]) -> None:
    lost, stop, shutdown, expired, failed = (mark == "yes" for mark in cell[:5])
    assert judge(lost=lost, stop=stop, shutdown=shutdown, expired=expired, failed=failed) == Verdict(cell[5])


def test_the_table_has_every_cell_once() -> None:
    assert len({cell[:5] for cell in CELLS}) == len(CELLS) == 2**5


@pytest.mark.spec("INB-7")
@pytest.mark.parametrize(
    ("attempts", "least", "most"),
    [(1, 2, 2.5), (2, 4, 5), (3, 8, 10), (4, 16, 20), (5, 32, 40), (6, 60, 60), (7, 60, 60), (1_000_000, 60, 60)],
)
def test_back_off_doubles_with_a_quarter_of_jitter_up_to_a_minute(attempts: int, least: float, most: float) -> None:
    assert backoff(attempts, lambda: 0.0) == least
    assert backoff(attempts, lambda: 1.0) == most
    assert least <= backoff(attempts) <= most


@pytest.mark.spec("INB-7")
def test_jitter_differs_from_one_failure_to_the_next() -> None:
    assert len({backoff(1) for _ in range(8)}) > 1
