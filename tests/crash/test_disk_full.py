"""The disk is full, the file can't be written, or it is gone: what was accepted is kept, what can't be is refused, nobody hangs."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Refused, Worker, Workers
from callboard.tests.crash.rows import Rows

LONG = "long " + "." * 19_000
TUNING = {"lease_seconds": 1.0, "renew_seconds": 0.2}
"""An end that could not be written leaves its lease, so the turn is taken up again when that is over."""
NO_LIMIT = 1 << 30


async def full(worker: Worker) -> None:
    """Not a page more than there are."""
    await worker.ask("pragma", name="max_page_count", value=1)


async def roomy(worker: Worker) -> None:
    await worker.ask("pragma", name="max_page_count", value=NO_LIMIT)


async def opened(workers: Workers, file: Path, *agents: str) -> Worker:
    worker = await workers.open(file, tuning=TUNING)
    await worker.ask("session", path="/helper", agent="nothing")
    for agent in agents:
        await worker.ask("session", path=f"/{agent}", agent=agent)
        await worker.ask("send", session=f"/{agent}", content="begin", message_id=f"m-{agent}")
        await worker.heard("running", message=f"m-{agent}")
    return worker


@pytest.mark.spec("INB-1", "RT-9")
async def test_a_full_disk_refuses_sends_and_loses_nothing(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await opened(workers, file)
    await full(worker)
    accepted: list[str] = []
    refused: list[str] = []
    reasons: list[Refused] = []
    for n in range(12):
        try:
            await worker.ask("send", session="/helper", content=LONG if n % 2 else f"short {n}", message_id=f"m-{n}")
            accepted.append(f"m-{n}")
        except Refused as refusal:
            refused.append(f"m-{n}")
            reasons.append(refusal)
    assert len(refused) >= 6, "a long message had room"
    assert {refusal.code for refusal in reasons} == {"store_full"}
    assert {refusal.line["path"] for refusal in reasons} == {str(file)}
    assert "no space is left" in str(reasons[0])
    assert set(rows.values("SELECT message_id FROM message")) == set(accepted), "a refused send has left something"
    assert rows.values("SELECT count(*) FROM entry WHERE role = 'user'") == [len(accepted)]

    await roomy(worker)
    for message_id in refused:
        reply = await worker.ask("send", session="/helper", content=f"again {message_id}", message_id=message_id)
        assert reply["created"]
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.values("SELECT DISTINCT outcome FROM message") == ["answered"]
    assert len(rows.values("SELECT id FROM message")) == 12


@pytest.mark.spec("INB-7", "INB-8", "RT-9")
async def test_a_turn_whose_end_has_no_room_ends_when_there_is(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await opened(workers, file, "big")
    await full(worker)
    await worker.ask("release", gate="big")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "CommitTurn" in line["ops"]])
    assert rows.answers("m-big") == []
    assert rows.message("m-big")["status"] == "processing"
    await roomy(worker)
    await worker.ask("wait", message_id="m-big")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.answers("m-big") == [LONG]
    assert rows.message("m-big")["attempts"] == 0, "the disk was taken for a failure of the agent"


@pytest.mark.spec("RT-10", "INB-7")
async def test_a_step_that_has_no_room_is_no_verdict_about_its_call(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await opened(workers, file, "herald")
    await full(worker)
    await worker.ask("release", gate="herald")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "RecordStep" in line["ops"]])
    await roomy(worker)
    await worker.ask("wait", message_id="m-herald")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.answers("m-herald") == ["sent"]
    assert rows.message("m-herald")["attempts"] == 0, "the disk was taken for a failure of the agent"
    assert len(rows.values("SELECT id FROM message WHERE kind = 'agent_message'")) == 1


@pytest.mark.spec("INB-1", "RT-9")
async def test_killed_while_the_disk_is_full(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await opened(workers, file, "big")
    await worker.ask("send", session="/big", content="then this", message_id="m-2")
    await full(worker)
    await worker.ask("release", gate="big")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "CommitTurn" in line["ops"]])
    await worker.kill()

    worker = await workers.open(file, tuning=TUNING)
    await worker.ask("release", gate="big")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.answers("m-big") == rows.answers("m-2") == [LONG]


@pytest.mark.spec("INB-1")
async def test_a_file_that_turns_read_only_under_a_running_process(workers: Workers, file: Path, rows: Rows) -> None:
    worker = await opened(workers, file, "polite")
    await worker.ask("pragma", name="query_only", value=1)
    with pytest.raises(Refused, match="can't be written") as refusal:
        await worker.ask("send", session="/helper", content="hello", message_id="m-1")
    assert refusal.value.code == "store_read_only"
    await worker.ask("release", gate="polite")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "CommitTurn" in line["ops"]])
    await worker.ask("pragma", name="query_only", value=0)
    await worker.ask("wait", message_id="m-polite")
    await worker.ask("send", session="/helper", content="hello", message_id="m-1")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert len(rows.values("SELECT id FROM marker")) == 2


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that somebody who is not root reaches too."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


async def test_a_read_only_file_is_refused_and_the_process_goes_on(workers: Workers, folder: Path) -> None:
    file, lock = folder / "desk.db", folder / "desk.db.lock"
    worker = await workers.open(file)
    await worker.close()
    file.chmod(0o444)
    lock.chmod(0o666)
    before = file.read_bytes()
    worker = workers.start()
    with pytest.raises(Refused, match="write access") as refusal:
        await worker.ask("open", path=str(file), plain_user=True)
    assert refusal.value.code == "store_read_only"
    assert file.read_bytes() == before
    await worker.ask("open", path=str(folder / "other.db"))
    await worker.ask("session", path="/helper", agent="nothing")
    await worker.ask("send", session="/helper", content="hello", message_id="m-1")
    await worker.ask("idle")
    await worker.close()
    check(Rows(folder / "other.db"))


@pytest.mark.spec("INB-1")
@pytest.mark.parametrize("gone", ["database", "log", "replaced"])
async def test_a_file_that_is_deleted_while_it_is_open(workers: Workers, file: Path, gone: str) -> None:
    """What would be written to a file that nobody will find again must not be called accepted."""
    worker = await opened(workers, file, "polite")
    path = Path(f"{file}-wal") if gone == "log" else file
    path.unlink()
    if gone == "replaced":
        shutil.copy(os.devnull, file)
    with pytest.raises(Refused, match="deleted or replaced") as refusal:
        await worker.ask("send", session="/helper", content="hello", message_id="m-1")
    assert refusal.value.code == "store_error"
    assert refusal.value.line["path"] == str(file)
    await worker.ask("release", gate="polite")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "CommitTurn" in line["ops"]])
    worker.signal(signal.SIGTERM)
    await worker.heard("failed", error="store_error")
    assert await worker.gone() == 0
