"""Strike the scripted day at each of its points: `python tests/crash/explore.py [--database D] [--how H] [--from N] [--to N] [--json FILE]`.

Without options all databases one after the other, each struck in all ways. Prints how many points were tried and how long that took, and
each failure with the command that repeats it. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".links"))

from callboard.tests.crash.explorer import Failure, Result, as_json, spread
from callboard.tests.crash.kit import Zygote, workers_of
from callboard.tests.crash.strikes import EXPLORERS

MEMORY = Path("/dev/shm")
"""A killed process loses nothing that the system has, so a disk would only cost time."""


def main() -> int:
    ways = sorted({how for explorers in EXPLORERS.values() for how in explorers})
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--database", choices=sorted(EXPLORERS), help="only this one")
    parser.add_argument(
        "--how", choices=ways, help="only in this way: kill, stop the process; cut its connection; restart the server"
    )
    parser.add_argument("--seed", type=int, default=0, help="what chance decides: the order of tasks, second kills")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first point")
    parser.add_argument("--to", dest="last", type=int, metavar="N", help="the last point")
    parser.add_argument("--most", type=int, metavar="N", help="no more than so many points, evenly spread")
    parser.add_argument("--lanes", type=int, default=2, help="how many runs side by side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    results = [
        _result(options, database, how)
        for database, explorers in EXPLORERS.items()
        for how in explorers
        if options.database in (None, database) and options.how in (None, how)
    ]
    if options.json:
        options.json.write_text(as_json(results), encoding="utf-8")
    return int(any(result.failures for result in results))


def _result(options: argparse.Namespace, database: str, how: str) -> Result:
    folder = Path(tempfile.mkdtemp(prefix="callboard-explore-", dir=MEMORY if MEMORY.is_dir() else None))
    result = trio.run(_explore, options, database, how, folder)
    print(
        f"{database}, {how}: {result.tried} of {result.points} points, {result.reached} of them reached, in {result.lives} lives,"
        f" {result.seconds:.0f} s, {len(result.failures)} failures",
        flush=True,
    )
    if result.failures:
        print(f"what they left is in {folder}")
        return result
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return result


async def _explore(options: argparse.Namespace, database: str, how: str, folder: Path) -> Result:
    again = f"python tests/crash/explore.py --database {database} --how {how} --seed {options.seed}"

    def tell(failure: Failure) -> None:
        print(f"point {failure.point} ({failure.label}): {failure.wrong}")
        print(f"  again: {again} --from {failure.point} --to {failure.point}", flush=True)

    with closing(Zygote()) as zygote:
        async with workers_of(zygote) as workers:
            with closing(EXPLORERS[database][how](workers, database, folder, options.seed)) as explorer:
                points = await explorer.count()
                print(f"{database}, {how}: the day has {points} points", flush=True)
                chosen = range(options.first, min(options.last or points, points) + 1)
                most = min(options.most or explorer.most, explorer.most)
                if most < len(chosen):
                    chosen = [chosen[n - 1] for n in spread(len(chosen), most)]
                return await explorer.explore(chosen, lanes=options.lanes, told=tell)


if __name__ == "__main__":
    sys.exit(main())
