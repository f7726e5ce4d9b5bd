"""Measure Callboard against its floor: `python tests/bench/run.py [--quick] [--only NAME] [--json FILE]`.

Prints one row a scenario: name, value, unit, floor, ratio (value / floor), n. Figures are ratios within one run; a busy machine
slows both sides. Nothing here fails: figures are read by people, mechanisms are tested elsewhere.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import trio
from scenarios import SCENARIOS, Row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer operations and rows")
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="this scenario (repeatable)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    print(f"{'name':12}{'value':>12} {'unit':12}{'floor':>12}{'ratio':>8}{'n':>9}")
    for name in options.only or SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            row = trio.run(lambda name=name, folder=folder: SCENARIOS[name](Path(folder), quick=options.quick))
        rows.append(row)
        print(f"{row.name:12}{row.value:12.3f} {row.unit:12}{row.floor:12.3f}{row.ratio:8.2f}{row.n:9}", flush=True)
    if options.json:
        table = [
            {"name": r.name, "value": r.value, "unit": r.unit, "floor": r.floor, "ratio": r.ratio, "n": r.n}
            for r in rows
        ]
        options.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
