"""The benchmarks run and say what they measured. Their figures are read by people: nothing here judges them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from callboard.tests.bench.databases import opened
from callboard.tests.bench.plot import draw
from callboard.tests.bench.rows import Row, alternating, middle
from callboard.tests.bench.scenarios import MEASURES, SCENARIOS
from callboard.tests.bench.size_scenarios import claim_costs

RUN = Path(__file__).with_name("run.py")
NAMES = [
    "accept",
    "turn",
    "light",
    "claim",
    "hot",
    "start",
    "redelivery",
    "fanout",
    "rest",
    "resident",
    "stuck",
    "busy_loop",
]
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(RUN.parents[2] / ".links")}
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_a_run_prints_a_table_and_writes_the_same_rows_as_json(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = run("--quick", "--only", "accept", "--only", "light", "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["accept", "light"]
    for row, line in zip(rows, done.stdout.splitlines()[1:], strict=True):
        assert set(row) == {"name", "value", "unit", "floor", "ratio", "n"}
        assert row["value"] > 0
        assert row["floor"] > 0
        assert row["ratio"] == pytest.approx(row["value"] / row["floor"])
        assert line.split()[0] == row["name"]
        assert f"{row['ratio']:.2f}" in line


def test_every_name_of_the_contract_can_be_asked_for_on_both_databases() -> None:
    assert set(MEASURES) == set(NAMES)
    assert set(SCENARIOS) == {*NAMES, *(f"pg_{name}" for name in NAMES)}
    done = run("--only", "nothing")
    assert done.returncode == 2
    assert "pg_busy_loop" in done.stderr


@pytest.mark.parametrize("name", [*NAMES, "pg_accept"])
async def test_a_scenario_measures_itself_and_its_floor(name: str, tmp_path: Path) -> None:
    row = await SCENARIOS[name].run(tmp_path, quick=True)
    assert row.name == name
    assert row.n > 0
    assert row.floor > 0
    if name == "rest":
        # Nothing is what it should be, so what is seen is the noise of caches.
        assert abs(row.ratio) < 1
        assert row.note == "0 more tasks"
    else:
        assert row.value > 0


async def test_measurements_alternate_and_the_middle_ratio_is_given() -> None:
    order: list[str] = []
    values = iter([3.0, 10.0, 4.0])

    async def ours() -> float:
        order.append("ours")
        return next(values)

    async def floor() -> float:
        order.append("floor")
        return 2.0

    assert await alternating(3, ours, floor) == (4.0, 2.0)
    assert order == ["floor", "ours"] * 3
    assert middle([(1.0, 1.0), (9.0, 3.0), (50.0, 10.0)]) == (9.0, 3.0)
    assert Row("x", 4.0, "s", 2.0, 1).ratio == 2.0


async def test_claims_are_measured_at_each_size_and_drawn(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as place:
        costs = await claim_costs(place, (1_000, 2_000), rounds=2)
    assert list(costs) == [1_000, 2_000]
    assert min(costs.values()) > 0
    drawn = ElementTree.fromstring(draw({"sqlite": costs}))
    assert len(drawn.findall(f"{SVG}circle")) == 2


def test_a_plot_has_sizes_on_a_logarithmic_axis_and_costs_upwards() -> None:
    curves = {"sqlite": {1_000: 100.0, 10_000: 150.0, 100_000: 50.0}, "postgres": {1_000: 10.0, 100_000: 20.0}}
    drawn = ElementTree.fromstring(draw(curves))
    lines = [line.get("points", "").split() for line in drawn.findall(f"{SVG}polyline")]
    first, second = ([[float(part) for part in point.split(",")] for point in line] for line in lines)
    assert first[1][0] - first[0][0] == pytest.approx(first[2][0] - first[1][0])
    assert first[1][1] < first[0][1] < first[2][1]
    assert [second[0][0], second[1][0]] == [first[0][0], first[2][0]]
    assert first[2][1] < second[1][1] < second[0][1]
    texts = {text.text for text in drawn.findall(f"{SVG}text")}
    assert {"1,000", "10,000", "100,000", "sqlite", "postgres"} <= texts
