"""Kill the scripted day at each of its points: `python tests/crash/explore.py [--database sqlite] [--from N] [--to N] [--json FILE]`.

Prints how many points were tried and how long that took, and each failure with the command that repeats it. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".links"))

from callboard.tests.crash.explorer import Explorer, Failure, Result, as_json, spread
from callboard.tests.crash.kit import Zygote, workers_of
from callboard.tests.crash.stores import STORES

MEMORY = Path("/dev/shm")
"""A killed process loses nothing that the system has, so a disk would only cost time."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--database", choices=sorted(STORES), default="sqlite")
    parser.add_argument("--seed", type=int, default=0, help="what chance decides: the order of tasks, second kills")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first point")
    parser.add_argument("--to", dest="last", type=int, metavar="N", help="the last point")
    parser.add_argument("--most", type=int, metavar="N", help="no more than so many points, evenly spread")
    parser.add_argument("--lanes", type=int, default=2, help="how many runs side by side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="callboard-explore-", dir=MEMORY if MEMORY.is_dir() else None))
    result = trio.run(_explore, options, folder)
    print(
        f"{result.database}: {result.tried} of {result.points} kill points in {result.lives} lives,"
        f" {result.seconds:.0f} s, {len(result.failures)} failures"
    )
    if options.json:
        options.json.write_text(as_json(result), encoding="utf-8")
    if result.failures:
        print(f"what they left is in {folder}")
        return 1
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return 0


async def _explore(options: argparse.Namespace, folder: Path) -> Result:
    again = f"python tests/crash/explore.py --database {options.database} --seed {options.seed}"

    def tell(failure: Failure) -> None:
        print(f"point {failure.point} ({failure.label}): {failure.wrong}")
        print(f"  again: {again} --from {failure.point} --to {failure.point}", flush=True)

    with closing(Zygote()) as zygote:
        async with workers_of(zygote) as workers:
            explorer = Explorer(workers, options.database, folder, options.seed)
            points = await explorer.count()
            print(f"{options.database}: the day has {points} points", flush=True)
            chosen = range(options.first, min(options.last or points, points) + 1)
            if options.most:
                chosen = [chosen[n - 1] for n in spread(len(chosen), options.most)]
            return await explorer.explore(chosen, lanes=options.lanes, told=tell)


if __name__ == "__main__":
    sys.exit(main())
