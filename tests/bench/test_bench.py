"""The benchmarks run and say what they measured. Their figures are read by people: nothing here judges them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def test_a_run_prints_a_table_and_writes_the_same_rows_as_json(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(RUN), "--quick", "--only", "accept", "--only", "light", "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": str(RUN.parents[2] / ".links")},
    )
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["accept", "light"]
    for row, line in zip(rows, done.stdout.splitlines()[1:], strict=True):
        assert row["value"] > 0
        assert row["floor"] > 0
        assert row["ratio"] == pytest.approx(row["value"] / row["floor"])
        assert line.split()[0] == row["name"]
        assert f"{row['ratio']:.2f}" in line
