"""The wall clock is stepped by an hour, while a process runs and between two of them (RT-18).

A worker's own wall clock is stepped; the machine's is not touched. Store time must go on as if nothing had happened: it never falls back
by more than the floor may lag, and nothing that is held or due is seen an hour too early or too late by a process that runs.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from callboard.storage.sqlite.driver import FLOOR_SECONDS
from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Worker, Workers
from callboard.tests.crash.rows import Rows

HOUR = 3600.0
STEPS = [HOUR, -HOUR]


async def prepared(workers: Workers, file: Path, skew: float = 0.0) -> Worker:
    """A worker with a running turn (`m-1`), and one that waits for its second try (`m-2`)."""
    worker = workers.start()
    await worker.ask("skew", seconds=skew)
    await worker.ask("open", path=str(file))
    for path, agent in (("/busy", "polite"), ("/flaky", "flaky"), ("/other", "nothing")):
        await worker.ask("session", path=path, agent=agent)
    await worker.ask("send", session="/busy", content="begin", message_id="m-1")
    await worker.heard("running", message="m-1")
    await worker.ask("send", session="/flaky", content="fail once", message_id="m-2")
    await worker.heard("ended", end="retried")
    return worker


async def served(worker: Worker, message_id: str) -> None:
    """A claim that came later than everything before has been made: what is due by now is taken with it, or earlier."""
    await worker.ask("send", session="/other", content="hello", message_id=message_id)
    await worker.ask("wait", message_id=message_id)


def newest(rows: Rows) -> float:
    """The newest store time that anything committed bears."""
    return rows.one("SELECT max(at) FROM event")[0]


@pytest.mark.spec("RT-18")
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_while_the_process_runs(workers: Workers, file: Path, rows: Rows, step: float) -> None:
    worker = await prepared(workers, file)
    before = (await worker.ask("now"))["now"]
    after = (await worker.ask("skew", seconds=step))["now"]
    assert before <= after < before + HOUR / 2
    retry_at = rows.message("m-2")["available_at"]

    await worker.ask("wait", message_id="m-2")
    (tried_at,) = rows.values(
        "SELECT at FROM event WHERE kind = 'attempt.claimed' AND json_extract(data, '$.message_id') = 'm-2'"
        " AND json_extract(data, '$.attempt') = 2"
    )
    assert retry_at <= tried_at, "tried before it was due"
    assert (await worker.ask("now"))["now"] < before + HOUR / 2
    await served(worker, "m-3")
    assert [line["attempt"] for line in worker.lines("running", message="m-1")] == [1], (
        "a live lease was delivered twice"
    )

    await worker.ask("release", gate="polite")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.values("SELECT takeovers FROM message") == [0, 0, 0]


@pytest.mark.spec("RT-18", "RT-9")
async def test_a_restart_with_the_clock_an_hour_back(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await prepared(workers, file)
    await worker.kill()
    last, retry_at = newest(rows), rows.message("m-2")["available_at"]
    # A lease that is not a process's lives on over the restart: that of a reader who has taken its mail for half an hour.
    reader = (
        "INSERT INTO mailbox (scope, recipient, due, epoch, holder, holder_kind, head, last_seq, updated_at)"
        " VALUES (1, 'session:read', ?, 7, 'reader', 'mailbox', NULL, 0, ?)"
    )
    assert rows.change(reader, last + HOUR / 2, last) == 1

    worker = workers.start()
    await worker.ask("skew", seconds=-HOUR)
    start = (await worker.ask("open", path=str(file)))["now"]
    assert start > last - FLOOR_SECONDS, "store time has fallen back further than its floor may lag"
    await worker.heard("running", message="m-1", attempt=2)
    await worker.ask("wait", message_id="m-2")
    assert retry_at <= rows.message("m-2")["leased_at"], "tried before it was due"
    await served(worker, "m-3")
    box = rows.one("SELECT holder, epoch, due FROM mailbox WHERE recipient = 'session:read'")
    assert tuple(box) == ("reader", 7, last + HOUR / 2), "a live lease was taken"

    await worker.ask("release", gate="polite")
    await worker.ask("wait", message_id="m-1")
    await worker.close()
    rows.change("DELETE FROM mailbox WHERE recipient = 'session:read'")
    check(rows)
    assert rows.message("m-1")["takeovers"] == 1


@pytest.mark.spec("RT-18", "RT-9")
async def test_a_clock_that_was_an_hour_ahead_and_is_right_again(workers: Workers, file: Path, rows: Rows) -> None:
    """What was written in that hour is not waited for: time goes on from where it was."""
    worker = await prepared(workers, file, skew=HOUR)
    await worker.kill()
    last = newest(rows)

    worker = await workers.open(file)
    start = (await worker.ask("now"))["now"]
    assert last - FLOOR_SECONDS < start < last + HOUR / 2
    await worker.heard("running", message="m-1", attempt=2)
    await worker.ask("wait", message_id="m-2")
    await served(worker, "m-3")
    await worker.ask("release", gate="polite")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    events = rows.values("SELECT at FROM event ORDER BY id")
    assert all(later > earlier - FLOOR_SECONDS for earlier, later in pairwise(events))
