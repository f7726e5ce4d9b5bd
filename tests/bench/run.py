"""Measure Callboard against its floor: `python tests/bench/run.py [--quick] [--only NAME] [--json FILE] [--plot FILE]`.

Prints one row a scenario: name, value, unit, floor, ratio (value / floor), n, and a note for people; the JSON has the same without the
note. Names that begin with `pg_` are PostgreSQL's. Figures are ratios within one run; a busy machine slows both sides. Nothing here fails:
figures are read by people, mechanisms are tested elsewhere.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import trio

from callboard.tests.bench.databases import PREFIXES, missing
from callboard.tests.bench.plot import draw
from callboard.tests.bench.rows import Row
from callboard.tests.bench.scenarios import SCENARIOS, claim_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer operations and rows")
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="this scenario (repeatable)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the cost of a claim against pending rows into this SVG file")
    options = parser.parse_args()
    lacking = {database: missing(database) for database in PREFIXES}
    names: list[str] = options.only or [name for name, its in SCENARIOS.items() if lacking[its.database] is None]
    for name in names:
        if module := lacking[SCENARIOS[name].database]:
            parser.error(f"{name} can't be measured here: there is no {module}")
    rows: list[Row] = []
    print(f"{'name':14}{'value':>12} {'unit':12}{'floor':>12}{'ratio':>8}{'n':>9}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = trio.run(lambda name=name, folder=folder: SCENARIOS[name].run(Path(folder), quick=options.quick))
        rows.append(row)
        line = f"{row.name:14}{row.value:12.3f} {row.unit:12}{row.floor:12.3f}{row.ratio:8.2f}{row.n:9}  {row.note}"
        print(line.rstrip(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([row.as_json() for row in rows], indent=2) + "\n", encoding="utf-8")
    if options.plot:
        options.plot.write_text(draw(_curves(options.quick, lacking)), encoding="utf-8")


def _curves(quick: bool, lacking: dict[str, str | None]) -> dict[str, dict[int, float]]:
    """The cost of a claim by pending rows, for each database that can be measured here."""
    found: dict[str, dict[int, float]] = {}
    for database, module in lacking.items():
        if module is None:
            with tempfile.TemporaryDirectory() as folder:
                found[database] = trio.run(
                    lambda database=database, folder=folder: claim_curve(database, Path(folder), quick=quick)
                )
    return found


if __name__ == "__main__":
    main()
