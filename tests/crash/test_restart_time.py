"""How soon a new owner takes up what a dead one has left, what that costs the message, and how a clean stop differs.

The figure (0.5 s after the lock) is a row of the benchmarks; here is the mechanism: leases are voided before anything runs, and the very
first claim takes them.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Worker, Workers
from callboard.tests.crash.rows import Rows


async def busy(workers: Workers, file: Path, agent: str = "polite", **options: object) -> Worker:
    """A worker with one running turn, of the message `m-1`, and a message that waits behind it."""
    worker = await workers.open(file, **options)
    await worker.ask("session", path="/busy", agent=agent)
    await worker.ask("send", session="/busy", content="begin", message_id="m-1")
    await worker.heard("running", message="m-1")
    await worker.ask("send", session="/busy", content="then this", message_id="m-2")
    return worker


def cost(rows: Rows, message_id: str) -> tuple[int, int]:
    """Takeovers and attempts that were counted."""
    row = rows.message(message_id)
    return row["takeovers"], row["attempts"]


def turns(worker: Worker, round: int) -> list[tuple[str, int]]:
    """Messages and attempts that the worker's n-th claim took."""
    return [
        (message, attempt) for line in worker.lines("claimed", round=round) for _, message, attempt in line["turns"]
    ]


async def answered(worker: Worker, rows: Rows) -> None:
    await worker.ask("release", gate="polite")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.values("SELECT outcome FROM message") == ["answered", "answered"]


@pytest.mark.spec("RT-9", "INB-7")
async def test_the_first_claim_of_a_new_owner_takes_what_a_killed_one_held(
    workers: Workers, file: Path, rows: Rows
) -> None:
    worker = await busy(workers, file)
    await worker.kill()
    held = rows.one("SELECT holder, due FROM mailbox WHERE head IS NOT NULL")

    worker = await workers.open(file)
    first = await worker.heard("claimed", round=1)
    assert worker.lines("voided") == [{"said": "voided", "leases": 1}]
    assert turns(worker, 1) == [("m-1", 2)]
    assert first["after_lock"] > 0
    print(f"first redelivery {first['after_lock']:.4f} s after the file was locked")
    (claimed_at,) = rows.values("SELECT at FROM event WHERE kind = 'attempt.claimed' ORDER BY n DESC LIMIT 1")
    assert claimed_at < held["due"], "the dead owner's lease was waited for"
    assert rows.one("SELECT holder FROM mailbox WHERE head IS NOT NULL")["holder"] != held["holder"]
    await answered(worker, rows)
    assert rows.answers("m-1") == ["done at attempt 2"]
    assert cost(rows, "m-1") == (1, 0)
    assert cost(rows, "m-2") == (0, 0)


@pytest.mark.spec("RT-5", "RT-9", "INB-7")
@pytest.mark.parametrize("agent", ["slow", "hang"])
async def test_a_clean_stop_gives_leases_back_at_once(workers: Workers, file: Path, rows: Rows, agent: str) -> None:
    """One agent ends when it is asked to, the other is cancelled when its grace is over."""
    hasty = {"stop_grace_seconds": 0.2}
    worker = await busy(workers, file, agent, tuning=hasty)
    worker.signal(signal.SIGTERM)
    assert await worker.gone() == 0
    box = rows.one("SELECT holder, due, updated_at FROM mailbox WHERE depth = 2")
    assert box["holder"] is None
    assert box["due"] <= box["updated_at"], "due at once"
    assert rows.message("m-1")["status"] == "pending"
    assert cost(rows, "m-1") == (0, 0)

    worker = await workers.open(file, tuning=hasty)
    await worker.heard("running", message="m-1", attempt=2)
    assert worker.lines("voided") == [{"said": "voided", "leases": 0}]
    assert turns(worker, 1) == [("m-1", 2)]
    await worker.ask("stop", session="/busy", drop_queued=True)
    await worker.ask("wait", message_id="m-1")
    await worker.close()
    check(rows)
    assert cost(rows, "m-1") == (0, 0)


@pytest.mark.spec("INB-7", "INB-2")
async def test_the_twentieth_takeover_is_the_last(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await busy(workers, file)
    for n in range(1, 4):
        await worker.kill()
        if n == 2:
            assert rows.change("UPDATE message SET takeovers = 17, claims = 18 WHERE message_id = 'm-1'") == 1
        worker = await workers.open(file)
        await worker.heard("running", message="m-1")
    assert rows.message("m-1")["takeovers"] == 19
    await worker.kill()

    worker = await workers.open(file)
    await worker.heard("running", message="m-2")
    assert worker.lines("running", message="m-1") == []
    failed = rows.message("m-1")
    assert (failed["status"], failed["reason"], failed["takeovers"]) == ("failed", "takeovers_used", 20)
    assert failed["attempts"] == 0
    await worker.ask("release", gate="polite")
    await worker.ask("idle")
    await worker.close()
    assert rows.answers("m-1") == []
    assert rows.answers("m-2") == ["done at attempt 1"]
    assert rows.kinds("m-1")[-1] == "turn.failed"
