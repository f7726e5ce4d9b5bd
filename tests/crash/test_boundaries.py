"""One conversation, killed just before and just after each of its commits; whoever gets the file next brings it to the same end."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest
import trio

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Gone, Worker, Workers
from callboard.tests.crash.rows import Rows

PARTIAL = "partial " + "." * 200
CAST = {"/guide": "guide", "/helper": "nothing", "/slow": "slow"}
COMMITS_LEAST = 20
LIVES_LEAST = 5
SIDE_BY_SIDE = 2


async def a_file_with_sessions(workers: Workers, folder: Path) -> Path:
    """A clean file to copy, so that the commits which are counted are those of the conversation."""
    file = folder / "clean.db"
    worker = await workers.open(file)
    for path, agent in CAST.items():
        await worker.ask("session", path=path, agent=agent)
    await worker.close()
    return file


@pytest.mark.spec("RT-4", "RT-9", "RT-10", "INB-1", "INB-8", "SES-8", "SES-10", "EVT-2", "EVT-3")
@pytest.mark.parametrize("where", ["before", "after"])
async def test_killed_at_every_commit(workers: Workers, tmp_path: Path, where: str) -> None:
    clean = await a_file_with_sessions(workers, tmp_path)
    ends: list[int] = []
    async with trio.open_nursery() as nursery:
        for lane in range(SIDE_BY_SIDE):
            nursery.start_soon(kill_at_each, workers, clean, where, lane, ends)
    assert min(ends) > COMMITS_LEAST, f"the conversation was over after {ends} commits"


async def kill_at_each(workers: Workers, clean: Path, where: str, lane: int, ends: list[int]) -> None:
    """Kill at commit 1, 3, 5, … (or 2, 4, 6, …). Who takes a file over and ends its conversation is killed on the next file."""
    worker = workers.start()
    for n in count(lane + 1, SIDE_BY_SIDE):
        file = clean.with_name(f"{where}-{n}.db")
        shutil.copy(clean, file)
        seen = Follower(worker)
        try:
            await worker.ask("open", path=str(file), trap={"where": where, "n": n})
            await seen.follow(worker)
            await worker.ask("converse")
        except Gone:
            pass
        else:
            ends.append(n)
            return
        seen.heard(worker)
        worker = workers.start()
        await worker.ask("open", path=str(file))
        await seen.follow(worker)
        await worker.ask("converse")
        await seen.caught_up(worker, Rows(file))
        await worker.ask("close")
        judge(Rows(file), seen)


@pytest.mark.spec("RT-9", "EVT-2", "EVT-3", "EVT-4")
async def test_killed_again_while_it_recovers(workers: Workers, tmp_path: Path) -> None:
    """The first life ends at its first commit, the next at its second, and so on: recovering is interrupted at its own commits."""
    file = await a_file_with_sessions(workers, tmp_path)
    worker = workers.start()
    seen = Follower(worker)
    for n in count(1):
        try:
            await worker.ask("open", path=str(file), trap={"where": "before" if n % 2 else "after", "n": n})
            await seen.follow(worker)
            await worker.ask("converse")
        except Gone:
            seen.heard(worker)
            worker = workers.start()
        else:
            assert n > LIVES_LEAST, "the conversation was over too soon to be interrupted while it recovered"
            break
    await seen.caught_up(worker, Rows(file))
    await worker.close()
    judge(Rows(file), seen)
    assert Rows(file).message("m-slow")["takeovers"] > 1


class Follower:
    """Somebody who follows the guide with one cursor over every life of the process."""

    def __init__(self, worker: Worker) -> None:
        self.seen: list[tuple[int, str]] = []
        self._from = len(worker.said)

    async def follow(self, worker: Worker) -> None:
        self._from = len(worker.said)
        session = (await worker.ask("session", path="/guide", agent="guide"))["id"]
        await worker.ask("follow", session=session, after=self.seen[-1][0] if self.seen else 0)

    def heard(self, worker: Worker) -> None:
        """Take over what the worker has printed since `follow`."""
        self.seen += [(line["id"], line["kind"]) for line in worker.said[self._from :] if line["said"] == "event"]
        self._from = len(worker.said)

    async def caught_up(self, worker: Worker, rows: Rows) -> None:
        (newest,) = rows.values("SELECT max(n) FROM event WHERE mailbox = ?", guide_of(rows))
        start = self._from
        await worker.until(lambda: any(line.get("id") == newest for line in worker.said[start:]))
        self.heard(worker)


def guide_of(rows: Rows) -> int:
    return rows.one("SELECT mailbox FROM session WHERE path = '/guide'")[0]


def judge(rows: Rows, follower: Follower) -> None:
    """The whole conversation, once."""
    check(rows)
    (child,) = rows.all("SELECT * FROM session WHERE parent IS NOT NULL")
    assert child["child_state"] == "completed"
    assert rows.answers("m-go") == [f"child {child['id']}"]
    assert rows.answers(f"subagent-result-{child['id']}") == ["heard ok a task"]
    assert rows.answers("m-notices") == ["notices: 1"]
    assert rows.answers("m-slow") == [PARTIAL]
    assert rows.message("m-slow")["outcome"] == "stopped"
    sent = rows.all(
        "SELECT status, reason, content FROM message JOIN entry USING (mailbox, seq)"
        " WHERE message_id GLOB 'turn_*:agent_send:*' ORDER BY message.id"
    )
    assert [tuple(row) for row in sent] == [
        ("delivered", None, "from the guide"),
        ("failed", "dropped", "wait for this"),
    ]
    done = rows.side()
    assert [line["tool"] for line in done].count("booked") == 1
    assert [line["tool"] for line in done].count("ring") <= 1
    assert len({line["action"] for line in done if line["tool"] == "book"}) == 1
    events = rows.all("SELECT n, kind FROM event WHERE mailbox = ? ORDER BY n", guide_of(rows))
    assert follower.seen == [tuple(row) for row in events]
