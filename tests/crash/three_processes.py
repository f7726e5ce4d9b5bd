"""Three processes on one PostgreSQL store, under load, while they or the database are struck at random.

`python tests/crash/three_processes.py --seconds 120 [--restart-database] [--lease S] [--seed N] [--json FILE]` prints what was done and what
was wrong; exit code 1 if anything was. Here: the blows and the course of a run. Not here: load, checks (`fleet_…`).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path

import attrs
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".links"))

from callboard.storage.store import open_store
from callboard.tests.contract.postgres_server import Server
from callboard.tests.crash import fleet_checks as checks
from callboard.tests.crash.fleet import Blow, Fleet, Member, fleet_of
from callboard.tests.crash.fleet_load import People
from callboard.tests.crash.invariants import check
from callboard.tests.crash.pg_rows import PgRows

SIZE = 3
SETTLE_SECONDS = 90.0
RETURN_SECONDS = 5.0
"""Within which everybody has found a database again that was away: connections are tried at least each two seconds."""
LATE_SECONDS = 1.0
"""How long after the end of its lease a turn must have been taken over."""


@attrs.frozen
class Result:
    """What a run was and what was `wrong` in it. `worst_takeover`: seconds from a blow to the claim of what its process had held;
    `worst_return`: from when the database answers again to the next claim."""

    seconds: float
    lease: float
    accepted: int
    repeated: int
    turns: int
    blows: dict[str, int]
    takeovers: int
    unexplained: int
    worst_takeover: float
    worst_return: float
    followed: int
    others_turns: int
    wrong: list[str]


class Striker:
    """Strikes every few seconds: one process at a time, or the database."""

    def __init__(self, fleet: Fleet, server: Server, database: str, lease: float, seed: int) -> None:
        self.blows: list[Blow] = []
        self._fleet = fleet
        self._server = server
        self._database = database
        self._lease = lease
        self._chance = random.Random(seed)
        self._alive = [*fleet.members]

    async def strike(self, kinds: tuple[str, ...], end: float) -> None:
        """Until `end` (Trio's clock): one of `kinds`, each in its turn, every three to six seconds. All live when it returns."""
        async with trio.open_nursery() as self._starting:
            for n in count():
                with trio.move_on_at(end):
                    await trio.sleep(self._chance.uniform(3.0, 6.0))
                if trio.current_time() >= end:
                    return
                await getattr(self, f"_{kinds[n % len(kinds)]}")()

    async def _kill(self) -> None:
        member = self._chance.choice(self._alive)
        self._alive.remove(member)
        await self._until_it_has_a_turn(member)
        self.blows.append(await member.kill())
        self._starting.start_soon(self._start, member)

    async def _start(self, member: Member) -> None:
        await self._fleet.start(member)
        self._alive.append(member)

    async def _pause(self) -> None:
        member = self._chance.choice(self._alive)
        await self._until_it_has_a_turn(member)
        self.blows.append(member.signal(signal.SIGSTOP))
        # The length of the blow itself: past the lease.
        await trio.sleep(self._lease + self._chance.uniform(0.5, 2.0))
        member.signal(signal.SIGCONT)

    async def _until_it_has_a_turn(self, member: Member) -> None:
        """Wait, for some seconds at most, until it has begun a turn that lasts: a blow between all turns would show nothing."""
        ask = partial(self._server.execute, HAS_A_TURN, f"%.{member.pid}.%", database=self._database)
        with trio.move_on_after(TURN_SECONDS):
            while not await trio.to_thread.run_sync(ask):
                pass

    async def _cut(self) -> None:
        await trio.to_thread.run_sync(self._server.cut, self._database)
        self.blows.append(Blow(time.time(), "cut", 0))

    async def _restart(self) -> None:
        mode = self._chance.choice(("fast", "immediate"))
        await trio.to_thread.run_sync(self._server.restart, mode)
        self.blows.append(Blow(time.time(), f"restart {mode}", 0))


PROCESSES, DATABASE = ("kill", "pause"), ("cut", "restart")
TURN_SECONDS = 5.0
HAS_A_TURN = """SELECT 1 FROM mailbox AS m JOIN session AS s ON s.mailbox = m.id
    WHERE s.agent = 'lasting' AND m.head IS NOT NULL AND m.block < 3 AND m.holder LIKE %s LIMIT 1"""


async def run(
    server: Server, url: str, folder: Path, *, seconds: float, lease: float, kinds: tuple[str, ...], seed: int
) -> Result:
    """Load and blows for so many seconds, then wait until all is done, end the processes in order, and judge the rows."""
    async with fleet_of(SIZE, url, folder, lease_seconds=lease) as fleet, open_store(url) as store:
        striker = Striker(fleet, server, url.partition("///")[2].partition("?")[0] or _database(url), lease, seed)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            # All at once, on an empty database: each finds or makes schema and sessions.
            await fleet.start(*fleet.members)
            people = People(fleet, store, seed)
            await people.meet()
            doctor = (await people.ask("GET", "/v1/doctor")).json()
            for member in fleet.members:
                await nursery.start(people.follow, member)
            async with trio.open_nursery() as load:
                load.start_soon(people.work, seconds)
                await striker.strike(kinds, trio.current_time() + seconds)
            with trio.fail_after(SETTLE_SECONDS):
                await people.settled()
                await people.followed()
            await people.aclose()
            nursery.cancel_scope.cancel()
        pids = {member.name: set(member.pids) for member in fleet.members}
        for member in fleet.members:
            await member.stop()
        rows = PgRows(url, folder / "fleet")
        return _judged(rows, people, striker.blows, doctor, pids, seconds, lease)


def _database(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def _judged(
    rows: PgRows,
    people: People,
    blows: list[Blow],
    doctor: dict[str, list[dict[str, str]]],
    pids: dict[str, set[int]],
    seconds: float,
    lease: float,
) -> Result:
    wrong: list[str] = []
    try:
        check(rows)
    except AssertionError as error:
        wrong += str(error).splitlines()
    told = people.told
    for found in (
        checks.promised(rows, told), checks.answers(rows), checks.sent_once(rows), checks.external_once(rows),
        checks.one_turn_at_a_time(rows), checks.followers(rows, told), checks.coverage(rows),
    ):  # fmt: skip
        wrong += found
    named = sorted(process["name"] for process in doctor["processes"])
    if len(named) != SIZE or not all(
        any(f".{pid}." in name for name in named) for pid in (min(p) for p in pids.values())
    ):
        wrong.append(f"the doctor names {named}, and not {pids}")
    taken = checks.takeovers(rows, blows)
    struck = [takeover for takeover in taken if takeover.late is not None]
    wrong += [
        f"mailbox {late.mailbox} was taken over {late.late:.2f} s after a blow to {late.holder}"
        for late in struck
        if late.late is not None and late.late > lease + LATE_SECONDS
    ]
    returns = checks.returns(rows, [blow.at for blow in blows if not blow.pid])
    wrong += [
        f"nothing was claimed for {back:.1f} s after a blow to the database"
        for back in returns
        if back > RETURN_SECONDS
    ]
    left = rows.values("SELECT holder FROM process")
    killed = [blow.pid for blow in blows if blow.kind == "SIGKILL"]
    wrong += [
        f"{name} left in order, and is still listed" for name in left if not any(f".{pid}." in name for pid in killed)
    ]
    return Result(
        seconds, lease, len(told.accepted), told.repeated, rows.one("SELECT count(*) FROM marker")[0],
        dict(Counter(blow.kind for blow in blows)), len(taken), len(taken) - len(struck),
        round(max((takeover.late or 0.0 for takeover in struck), default=0.0), 3), round(max(returns, default=0.0), 3),
        sum(map(len, told.seen.values())), checks.others_turns(rows, told, pids), wrong,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--restart-database", action="store_true", help="strike the database, not the processes")
    parser.add_argument("--lease", type=float, default=2.0, help="seconds of a lease")
    parser.add_argument("--seed", type=int, default=0, help="what chance decides: the pace, who is struck and how")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    options = parser.parse_args()
    kinds = DATABASE if options.restart_database else PROCESSES
    folder = Path(tempfile.mkdtemp(prefix="callboard-three-"))
    server = Server.launch()
    with server.database() as url:

        async def whole() -> Result:
            return await run(
                server, url, folder, seconds=options.seconds, lease=options.lease, kinds=kinds, seed=options.seed
            )

        result = trio.run(whole)
    print(json.dumps(attrs.asdict(result), indent=2))
    if options.json:
        options.json.write_text(json.dumps(attrs.asdict(result)) + "\n", encoding="utf-8")
    if result.wrong:
        print(f"the logs of the processes are in {folder}")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
