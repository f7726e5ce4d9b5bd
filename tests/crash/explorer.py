"""Lives a scripted day once for each point at which its process can die, kills it there, and looks at what is left.

A run has up to three lives: the first dies at its point; the second, which takes the day up, dies at a point that chance gives; the
third comes to the end. The wall clock of a later life is right, an hour ahead or an hour back, and is stepped as much in the middle of
the first. Here: runs and their failures. Not here: the day (`worker_day`), its points (`worker_points`), what must hold (`invariants`,
`day_end`), what else can strike a day (`strikes`). Invariant: run n of a seed is the same run again, on a database that is `exact`.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import trio

from callboard.tests.crash.day_end import check_day
from callboard.tests.crash.invariants import check, check_any_time
from callboard.tests.crash.kit import Gone, Worker, Workers
from callboard.tests.crash.rows import Rows
from callboard.tests.crash.stores import CLEAN, STORES, Stores

HOUR = 3600.0
SKEWS = (0.0, HOUR, -HOUR)
FAILURES_MOST = 20
"""After so many the rest is not tried: they tell of one thing."""
LIFE_SECONDS = 60.0
"""A life that has not ended by then hangs."""


@attrs.frozen
class Failure:
    """What was wrong with the run of a point; `label` says what the process was at."""

    point: int
    label: str
    wrong: str


@attrs.frozen
class Result:
    """`points` that the day has, how many of them were `tried` and `reached`, in how many `lives` and `seconds`."""

    database: str
    how: str
    seed: int
    points: int
    tried: int
    reached: int
    lives: int
    seconds: float
    failures: tuple[Failure, ...]


class Explorer:
    """The runs of one seed on one kind of database."""

    how = "kill"
    most = 100_000
    """Points of a whole exploration."""

    def __init__(self, workers: Workers, database: str, folder: Path, seed: int) -> None:
        self._workers = workers
        self._database = database
        self._stores = self._stores_in(folder)
        self._seed = seed
        self._labels: list[str] = []
        self._reached: dict[int, str] = {}
        self._lives = 0

    def close(self) -> None:
        """Remove what is left of its databases beside the folder."""
        self._stores.close()

    def _stores_in(self, folder: Path) -> Stores:
        return STORES[self._database](folder)

    async def count(self) -> int:
        """Live the day once without a kill; how many points it has. To be called first, once. Raises `AssertionError`."""
        await self._live(CLEAN, "clean", fresh=True)
        self._stores.copy("whole")
        worker = await self._live("whole", "1")
        (points,) = worker.lines("points")
        self._labels = points["labels"]
        self._judge("whole", [worker])
        self._stores.drop("whole")
        return len(self._labels)

    async def explore(self, points: Iterable[int], *, lanes: int, told: Callable[[Failure], None]) -> Result:
        """Run each of `points`, `lanes` of them at a time; `told` of each failure as it is found."""
        began, waiting = time.monotonic(), iter(points)
        failures: list[Failure] = []
        tried = 0

        async def lane() -> None:
            nonlocal tried
            for point in waiting:
                if len(failures) >= FAILURES_MOST:
                    return
                tried += 1
                wrong = await self._try(point)
                if wrong is not None:
                    label = self._reached.get(point, f"not reached: {self._labels[point - 1]}")
                    failures.append(Failure(point, label, wrong))
                    told(failures[-1])

        async with trio.open_nursery() as nursery:
            for _ in range(lanes):
                nursery.start_soon(lane)
        seconds = time.monotonic() - began
        return Result(
            self._database,
            self.how,
            self._seed,
            len(self._labels),
            tried,
            len(self._reached),
            self._lives,
            seconds,
            tuple(sorted(failures, key=_point)),
        )

    async def _try(self, point: int) -> str | None:
        """What was wrong with the run of one point; None if nothing was. What failed is left for people to look at."""
        name = f"point-{point}"
        self._stores.copy(name)
        try:
            await self._run(name, point)
        except (AssertionError, Gone, trio.TooSlowError) as error:
            return str(error) or repr(error)
        self._stores.drop(name)
        return None

    async def _run(self, name: str, point: int) -> None:
        chance = random.Random(f"{self._seed}.{point}")
        skew = SKEWS[point % len(SKEWS)]
        first = await self._live(name, "1", at=point, half=point // 2, step=skew)
        lives = [first]
        self._note(first, point)
        if self._stores.exact:
            died = self._reached.get(point)
            assert died == self._labels[point - 1], f"the day has gone another way than it did: {died}"
        for number, at in ((2, chance.randrange(1, len(self._labels) + 1)), (3, None)):
            if not lives[-1].lines("struck"):
                break
            self._judge_struck(name, lives)
            lives.append(
                await self._live(
                    name, f"{number}.{point}", at=at, skew=skew, after=max((0, *seen_in(lives)), default=0)
                )
            )
        self._judge(name, lives)

    async def _live(self, name: str, life: str, **job: Any) -> Worker:
        """One life of a day, to its end."""
        worker = await self._begin(name, life, **job)
        await self._end(worker, life)
        return worker

    async def _begin(self, name: str, life: str, **job: Any) -> Worker:
        """Each life of a run has chances of its own: an id must not come twice."""
        self._lives += 1
        worker = self._workers.start("day")
        store = {"url": self._stores.url(name), "side": str(self._stores.side(name)), "how": self.how}
        await worker.give({**store, "seed": f"{self._seed}.{life}", **job})
        return worker

    def _note(self, worker: Worker, point: int) -> bool:
        """Whether a life was struck at its point, and where that was."""
        struck = worker.lines("struck", point=point)
        self._reached.update((point, line["label"]) for line in struck)
        return bool(struck)

    async def _end(self, worker: Worker, life: str) -> None:
        with trio.move_on_after(LIFE_SECONDS) as limit:
            await worker.ended.wait()
        if limit.cancelled_caught:
            worker.dispose()
        code = worker.reap()
        assert not limit.cancelled_caught, f"life {life} did not end; its last lines: {worker.said[-5:]}"
        ended = {0: "done", -signal.SIGKILL: "struck"}.get(code)
        assert ended is not None, f"life {life} ended with {code}; its last lines: {worker.said[-5:]}"
        assert worker.lines(ended), f"life {life} ended with {code}, and had not said {ended}"

    def _judge_struck(self, name: str, lives: list[Worker]) -> None:
        """Between two lives: what was promised is there."""
        self._stores.left(name)
        with self._stores.rows(name) as rows:
            _check_promises(rows, lives)

    def _judge(self, name: str, lives: list[Worker]) -> None:
        self._stores.left(name)
        with self._stores.rows(name) as rows:
            check(rows)
            _check_promises(rows, lives)
            check_day(rows, lives=len(lives))
            self._check_followers(rows, lives)
            if not self._stores.exact:
                _check_times(rows)

    def _check_followers(self, rows: Rows, lives: list[Worker]) -> None:
        """The follower goes on in each life where they were in the one before."""
        assert seen_in(lives) == events_of(rows), "the follower has not seen each event once"


def _check_times(rows: Rows) -> None:
    """A server's clock rules: nothing bears the time of a process whose own was stepped by an hour."""
    first, last = rows.one("SELECT min(at), max(at) FROM event")
    assert last - first < HOUR / 2, f"a day of minutes took {last - first:.0f} s"


def events_of(rows: Rows) -> list[int]:
    """The numbers of the events of the session that is followed."""
    return rows.values(
        "SELECT e.n FROM event AS e JOIN session AS s ON s.mailbox = e.mailbox WHERE s.path = '/guide' ORDER BY e.n"
    )


def _check_promises(rows: Rows, lives: list[Worker]) -> None:
    check_any_time(rows)
    known = {row["uid"]: row for row in rows.all("SELECT uid, seq, status FROM message")}
    for line in _lines(lives, "accepted"):
        assert line["id"] in known, f"{line['message_id']} was accepted, and is not there"
        assert known[line["id"]]["seq"] == line["seq"], f"{line['message_id']} has another place than it was told"
    for line in _lines(lives, "final"):
        assert known[line["id"]]["status"] == line["status"], f"{line} was final"


def _lines(lives: list[Worker], said: str) -> list[dict[str, Any]]:
    return [line for worker in lives for line in worker.lines(said)]


def seen_in(lives: list[Worker]) -> list[int]:
    """The numbers of the events that the follower has seen."""
    return [line["id"] for line in _lines(lives, "event")]


def _point(failure: Failure) -> int:
    return failure.point


def spread(points: int, most: int) -> list[int]:
    """At most `most` of the points 1 to `points`, evenly spread."""
    step = max(1.0, points / most)
    return sorted({1 + int(n * step) for n in range(min(points, most))})


def as_json(results: list[Result]) -> str:
    """Results for programs."""
    return json.dumps([attrs.asdict(result) for result in results], indent=2) + "\n"
