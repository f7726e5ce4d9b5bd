"""The system fails under a running process: the disk is really full, a sync fails, somebody else holds the file.

What was accepted is kept, what can't be is refused, and what was under way is taken up again when the system is well. Not here: a full
disk as SQLite counts pages, files that are deleted or can't be written (`test_disk_full`); clocks (`test_clock`); pauses (`test_paused`).
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check, check_any_time
from callboard.tests.crash.kit import Refused, Worker, Workers
from callboard.tests.crash.rows import Rows

TUNING = {"lease_seconds": 1.0, "renew_seconds": 0.2}
"""An end that could not be written leaves its lease, so the turn is taken up again when that is over."""
LONG = "long " + "." * 19_000
DISK_BYTES = 2 * 1024 * 1024


class Disk:
    """Where a file lies that will find no more room. Here: its process may make no file larger."""

    refusal = "store_down"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def fill(self, worker: Worker) -> None:
        await worker.ask("fault", name="limit growth", more=4096)

    def clear(self) -> None:
        """There is room again, for a process that is well."""

    def end(self) -> None:
        """Leave nothing behind."""


class FileSystem(Disk):
    """A file system of its own, of which not a block is free."""

    refusal = "store_full"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
        self._ballast = folder / "ballast"

    async def fill(self, worker: Worker) -> None:
        with suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def clear(self) -> None:
        self._ballast.unlink()

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def disks() -> list[type[Disk]]:
    """A file system of one's own needs a right that not everybody has."""
    folder = tempfile.mkdtemp()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
        if done.returncode != 0:
            return [Disk]
        subprocess.run(["umount", folder], check=True)
    except FileNotFoundError:
        return [Disk]
    finally:
        os.rmdir(folder)
    return [Disk, FileSystem]


@pytest.fixture(params=disks())
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    disk = request.param(tmp_path)
    yield disk
    disk.end()


async def opened(workers: Workers, file: Path) -> Worker:
    """A worker with a turn that runs until it is released."""
    worker = await workers.open(file, tuning=TUNING)
    await worker.ask("session", path="/helper", agent="nothing")
    await worker.ask("session", path="/polite", agent="polite")
    await worker.ask("send", session="/polite", content="begin", message_id="m-polite")
    await worker.heard("running", message="m-polite")
    return worker


async def refused(worker: Worker, message_id: str, content: str = "hello") -> str:
    """Send what can't be accepted; the code of the refusal."""
    with pytest.raises(Refused) as refusal:
        await worker.ask("send", session="/helper", content=content, message_id=message_id)
    return refusal.value.code


async def end_refused(worker: Worker) -> None:
    """The turn's agent is done, and its end can't be written."""
    await worker.ask("release", gate="polite")
    await worker.until(lambda: [line for line in worker.lines("not_committed") if "CommitTurn" in line["ops"]])


async def finish(worker: Worker, rows: Rows, *messages: str) -> None:
    """All is well again: what was refused is sent again, and everything comes to its end."""
    for message_id in messages:
        await worker.ask("send", session="/helper", content="hello", message_id=message_id)
    await worker.ask("release", gate="polite")
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert set(rows.values("SELECT outcome FROM message")) == {"answered"}
    assert rows.values("SELECT count(*) FROM message") == [1 + len(messages)]
    assert rows.message("m-polite")["attempts"] == 0, "the system's fault was taken for the agent's"


@pytest.mark.spec("INB-1", "RT-9")
@pytest.mark.parametrize("killed", [False, True])
async def test_no_room_is_left(workers: Workers, disk: Disk, killed: bool) -> None:
    file = disk.folder / "desk.db"
    rows = Rows(file)
    worker = await opened(workers, file)
    await disk.fill(worker)
    assert await refused(worker, "m-long", LONG) == disk.refusal
    await end_refused(worker)
    assert rows.message("m-polite")["status"] == "processing"
    if killed:
        await worker.kill()
    else:
        await worker.ask("fault", name="mend")
    disk.clear()
    check_any_time(rows)
    if killed:
        worker = await workers.open(file, tuning=TUNING)
    await finish(worker, rows, "m-1", "m-2")


@pytest.mark.spec("INB-1", "RT-9")
async def test_a_disk_that_drops_out_loses_nothing_that_was_accepted(workers: Workers, file: Path, rows: Rows) -> None:
    """What is written is gone, and the sync that should have kept it fails."""
    worker = await opened(workers, file)
    await worker.ask("send", session="/helper", content="hello", message_id="m-1")
    await worker.ask("wait", message_id="m-1")
    await worker.ask("fault", name="lose log")
    assert await refused(worker, "m-2") == "store_down"
    await end_refused(worker)
    check_any_time(rows)
    assert rows.values("SELECT message_id FROM message WHERE message_id = 'm-2'") == []
    await worker.ask("fault", name="mend")
    await finish(worker, rows, "m-1", "m-2")


@pytest.mark.spec("INB-1", "INB-4", "RT-9")
async def test_what_a_failed_sync_leaves_on_the_disk_counts_once(workers: Workers, file: Path, rows: Rows) -> None:
    """A sync fails although all was written: the refusal says that nothing is known, and the next process finds either outcome."""
    worker = await opened(workers, file)
    await worker.ask("fault", name="fail syncs")
    assert await refused(worker, "m-1") == "store_down"
    await end_refused(worker)
    await worker.kill()
    check_any_time(rows)

    worker = await workers.open(file, tuning=TUNING)
    await finish(worker, rows, "m-1", "m-2")
    assert len(rows.answers("m-polite")) == 1


@pytest.mark.spec("INB-1", "RT-9")
@pytest.mark.parametrize("killed", [False, True])
async def test_another_program_holds_the_file(workers: Workers, file: Path, rows: Rows, killed: bool) -> None:
    worker = await opened(workers, file)
    await worker.ask("pragma", name="busy_timeout", value=20)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await refused(worker, "m-1") == "store_down"
        await end_refused(worker)
        if killed:
            await worker.kill()
        other.execute("ROLLBACK")
    check_any_time(rows)
    if killed:
        worker = await workers.open(file, tuning=TUNING)
    await finish(worker, rows, "m-1", "m-2")
