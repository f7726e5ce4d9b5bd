"""A stop is stored: a process that dies before the stopped turn has ended changes nothing about it (RT-4), nor does a stuck one (RT-6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Worker, Workers
from callboard.tests.crash.rows import Rows

PARTIAL = "partial " + "." * 200
HASTY = {"stop_grace_seconds": 0.05, "stuck_after_seconds": 0.05, "renew_seconds": 0.1}


async def running(workers: Workers, file: Path, agent: str, **options: object) -> Worker:
    """A worker in which `agent` runs the turn of the message `m-1`."""
    worker = await workers.open(file, **options)
    await worker.ask("session", path="/helper", agent="nothing")
    await worker.ask("session", path=f"/{agent}", agent=agent)
    await worker.ask("send", session=f"/{agent}", content="begin", message_id="m-1")
    await worker.heard("running", message="m-1")
    return worker


async def recovered(workers: Workers, file: Path) -> Worker:
    """The next owner of the file, when it has nothing left to do and is gone."""
    worker = await workers.open(file)
    await worker.ask("idle")
    await worker.close()
    return worker


def stopped(rows: Rows, message_id: str) -> None:
    row = rows.message(message_id)
    assert (row["status"], row["outcome"], row["attempts"]) == ("delivered", "stopped", 0)


@pytest.mark.spec("RT-4", "RT-9", "INB-7")
async def test_killed_after_the_stop_was_stored(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await running(workers, file, "hang")
    await worker.ask("send", session="/hang", content="queued", message_id="m-2")
    await worker.ask("stop", session="/hang")
    await worker.kill()
    assert rows.one("SELECT stop_at FROM mailbox WHERE head IS NOT NULL")["stop_at"] is not None

    worker = await workers.open(file)
    await worker.heard("running", message="m-2")
    await worker.ask("stop", session="/hang")
    await worker.kill()
    await recovered(workers, file)

    check(rows)
    for message_id in ("m-1", "m-2"):
        stopped(rows, message_id)
        assert rows.answers(message_id) == [PARTIAL]
        assert rows.message(message_id)["takeovers"] == 1
    assert worker.lines("running", message="m-1") == [], "a stopped turn was run again"
    assert rows.kinds("m-1") == [
        "turn.started", "attempt.claimed", "turn.token", "attempt.relinquished", "attempt.claimed", "turn.stopped",
    ]  # fmt: skip


@pytest.mark.spec("RT-4", "RT-9")
@pytest.mark.parametrize("where", ["before", "after"])
async def test_killed_while_the_stopped_turn_is_committed(workers: Workers, file: Path, rows: Rows, where: str) -> None:
    worker = await running(workers, file, "slow", trap={"where": where, "n": 1, "op": "CommitTurn"})
    await worker.dies("stop", session="/slow")
    worker = await recovered(workers, file)

    check(rows)
    stopped(rows, "m-1")
    assert rows.answers("m-1") == [PARTIAL]
    assert rows.message("m-1")["takeovers"] == (where == "before")
    assert worker.lines("running") == []


@pytest.mark.spec("RT-4", "SES-10")
async def test_queued_messages_are_dropped_with_the_stop_or_not_at_all(
    workers: Workers, file: Path, rows: Rows
) -> None:
    worker = await running(workers, file, "hang", trap={"where": "before", "n": 1, "op": "RequestStop"})
    await worker.ask("send", session="/hang", content="queued", message_id="m-2")
    await worker.dies("stop", session="/hang", drop_queued=True)
    assert rows.message("m-2")["status"] == "pending"

    worker = await workers.open(file, trap={"where": "after", "n": 1, "op": "RequestStop"})
    await worker.heard("running", message="m-1", attempt=2)
    await worker.dies("stop", session="/hang", drop_queued=True)
    worker = await recovered(workers, file)

    check(rows)
    stopped(rows, "m-1")
    assert worker.lines("running") == []
    assert (rows.message("m-2")["status"], rows.message("m-2")["reason"]) == ("failed", "dropped")


@pytest.mark.spec("RT-4")
async def test_what_was_steered_into_a_stopped_turn_is_part_of_it(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await running(workers, file, "steered")
    await worker.ask("send", session="/steered", content="also this", message_id="m-2")
    await worker.ask("release", gate="steer")
    assert (await worker.heard("steered"))["messages"] == ["m-1", "m-2"]
    await worker.ask("send", session="/steered", content="not seen yet", message_id="m-3")
    await worker.ask("stop", session="/steered")
    await worker.kill()

    worker = await workers.open(file)
    await worker.heard("running", message="m-3")
    assert worker.lines("running", message="m-2") == [], "a message of a stopped turn was run again"
    await worker.ask("stop", session="/steered")
    await worker.kill()
    await recovered(workers, file)

    check(rows)
    for message_id in ("m-1", "m-2", "m-3"):
        stopped(rows, message_id)
    turns = rows.values("SELECT turn FROM marker ORDER BY message")
    assert turns[0] == turns[1] != turns[2]


@pytest.mark.spec("RT-6")
async def test_an_agent_that_survives_its_stop_is_fenced_out(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await running(workers, file, "stubborn", tuning=HASTY)
    await worker.ask("stop", session="/stubborn")
    assert (await worker.heard("ended"))["end"] == "committed"
    stopped(rows, "m-1")
    (stuck,) = rows.values("SELECT recipient FROM mailbox WHERE stuck IS NOT NULL")
    assert (await worker.ask("stuck"))["stuck"] == [stuck]

    # Its session gets nothing more here while it lives: others are served, this one waits.
    await worker.ask("send", session="/stubborn", content="again", message_id="m-2")
    await worker.ask("send", session="/helper", content="hello", message_id="m-3")
    await worker.ask("wait", message_id="m-3")
    assert worker.lines("running", message="m-2") == []

    await worker.ask("release", gate="stubborn")
    await worker.heard("fenced")
    await worker.heard("running", message="m-2", attempt=1)
    await worker.ask("wait", message_id="m-2")
    await worker.close()
    check(rows)
    sent = rows.values("SELECT content FROM message JOIN entry USING (mailbox, seq) WHERE kind = 'agent_message'")
    assert sent == ["late m-2"], "the late write of a turn that had ended counted"
    assert rows.answers("m-1") == [PARTIAL]


@pytest.mark.spec("RT-6", "RT-9")
async def test_a_stuck_mark_does_not_outlive_its_process(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await running(workers, file, "stubborn", tuning=HASTY)
    await worker.ask("stop", session="/stubborn")
    await worker.heard("ended")
    await worker.ask("send", session="/stubborn", content="again", message_id="m-2")
    await worker.kill()

    worker = await workers.open(file, tuning=HASTY)
    await worker.heard("running", message="m-2", attempt=1)
    assert rows.values("SELECT count(*) FROM mailbox WHERE stuck IS NOT NULL") == [0]
    await worker.ask("release", gate="stubborn")
    await worker.ask("wait", message_id="m-2")
    await worker.close()
    check(rows)
    stopped(rows, "m-1")
    for message_id in ("m-1", "m-2"):
        assert (rows.message(message_id)["takeovers"], rows.message(message_id)["attempts"]) == (0, 0)
