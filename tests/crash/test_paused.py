"""A process that is paused keeps its file (RT-17); what it had under way when its leases ran out counts at most once (RT-7, RT-8).

Time has to pass for a lease to run out. It is passed by refusing a second process as often as that takes.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Refused, Worker, Workers
from callboard.tests.crash.rows import Rows

SHORT = {"lease_seconds": 0.4, "renew_seconds": 0.1}


async def running(workers: Workers, file: Path, agent: str, **options: object) -> Worker:
    worker = await workers.open(file, **options)
    await worker.ask("session", path="/busy", agent=agent)
    await worker.tell("send", session="/busy", content="begin", message_id="m-1")
    await worker.heard("running", message="m-1")
    return worker


async def refused(workers: Workers, file: Path) -> Refused:
    """A second process tries the file."""
    second = workers.start()
    with pytest.raises(Refused) as refusal:
        await second.ask("open", path=str(file))
    second.signal(signal.SIGTERM)
    assert await second.gone() == 0
    return refusal.value


async def outlast(workers: Workers, file: Path, rows: Rows) -> None:
    """Until the lease of the paused worker is over. Store time is wall time here, as no clock is stepped."""
    while True:
        assert (await refused(workers, file)).code == "store_locked"
        if time.time() > rows.one("SELECT max(due) FROM mailbox WHERE holder IS NOT NULL")[0]:
            return


@pytest.mark.spec("RT-17")
async def test_a_paused_process_keeps_its_file(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await running(workers, file, "polite")
    worker.signal(signal.SIGSTOP)
    refusal = await refused(workers, file)
    assert refusal.code == "store_locked"
    for text in (refusal.line["message"], refusal.line["owner"]):
        assert f"pid {worker.pid} on host {socket.gethostname()}" in text
    assert refusal.line["path"] == str(file)
    before = rows.one("SELECT epoch, holder FROM mailbox")

    worker.signal(signal.SIGCONT)
    await worker.ask("release", gate="polite")
    await worker.ask("wait", message_id="m-1")
    assert rows.values("SELECT epoch FROM mailbox") == [before["epoch"]], "the refused process has touched the lease"
    await worker.kill()
    worker = await workers.open(file)  # the lock is gone with the process, whatever its file says
    await worker.close()
    check(rows)
    assert rows.answers("m-1") == ["done at attempt 1"]


@pytest.mark.spec("RT-7", "RT-8")
async def test_a_turn_that_was_paused_past_its_lease_is_run_again_and_commits_once(
    workers: Workers, file: Path, rows: Rows
) -> None:
    worker = await running(workers, file, "polite", tuning=SHORT)
    worker.signal(signal.SIGSTOP)
    await outlast(workers, file, rows)
    await worker.tell("release", gate="polite")  # its answer is ready the moment that it goes on
    worker.signal(signal.SIGCONT)
    await worker.ask("wait", message_id="m-1")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    (attempt,) = rows.values("SELECT attempt FROM marker")
    assert rows.answers("m-1") == [f"done at attempt {attempt}"]


@pytest.mark.spec("RT-7", "RT-18")
async def test_a_lease_that_ran_out_is_not_trusted_again(workers: Workers, file: Path, rows: Rows) -> None:
    """The agent is cancelled because its lease is over, and cleans up for a while: a renewal that works again must not make its end count."""
    worker = await running(workers, file, "late", tuning=SHORT)
    worker.signal(signal.SIGSTOP)
    await outlast(workers, file, rows)
    worker.signal(signal.SIGCONT)
    await worker.heard("cancelled", attempt=1)
    await worker.ask("session", path="/other", agent="slow")
    await worker.ask("send", session="/other", content="go on", message_id="m-2")
    await worker.heard("running", message="m-2")
    await worker.ask("renewed", times=2)
    assert [line["attempt"] for line in worker.lines("running", message="m-1")] == [1], "beside its own living task"
    await worker.ask("release", gate="late")
    await worker.ask("wait", message_id="m-1")
    await worker.ask("stop", session="/other")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    (attempt,) = rows.values(
        "SELECT attempt FROM marker JOIN message ON message.id = marker.message WHERE message_id = 'm-1'"
    )
    assert attempt > 1
    assert rows.answers("m-1") == [f"done at attempt {attempt}"]


@pytest.mark.spec("RT-8", "INB-8")
async def test_a_commit_that_was_paused_past_its_lease_counts_once(workers: Workers, file: Path, rows: Rows) -> None:
    trap = {"where": "before", "n": 1, "op": "CommitTurn", "signal": int(signal.SIGSTOP)}
    worker = await running(workers, file, "polite", tuning=SHORT, trap=trap)
    await worker.tell("release", gate="polite")
    await worker.heard("trapped")
    await outlast(workers, file, rows)
    os.kill(worker.pid, signal.SIGCONT)
    await worker.ask("wait", message_id="m-1")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert len(rows.values("SELECT attempt FROM marker")) == 1
    assert len(rows.answers("m-1")) == 1
