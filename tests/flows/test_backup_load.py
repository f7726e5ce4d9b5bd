"""A backup while messages pour in and turns run: it is one moment of the store, nobody waits for it, and it goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import trio

from callboard import open_runtime
from callboard.storage.model.errors import Busy, Conflict, StoreFull
from callboard.storage.model.limits import RESTORE_JUMP
from callboard.storage.sqlite import backup, copying
from callboard.supervisors.runtime import Runtime
from callboard.tests.contract.backup_kit import back_up, left_over, restored, rows
from callboard.tests.crash.invariants import check_any_time
from callboard.tests.crash.rows import Rows

SENDERS = 8
AFTER_STEPS = 20
MEANWHILE = 100
"""Messages that must be accepted, and turns that must be committed, while the copy is half made."""


async def echo(turn: object) -> str:
    await trio.lowlevel.checkpoint()
    return "echo"


class Flood:
    """Senders that each send one message after the other. `sent` are those that were accepted: the next one is sent only then."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.sent: dict[str, int] = {}
        self.accepted = 0
        self._news = trio.Event()

    async def pour(self, path: str) -> None:
        await self.runtime.open_session(path=path, agent="echo")
        for number in count():
            await self.runtime.send(path, f"{number}", message_id=f"{path[1:]}-{number}")
            self.sent[path] = number
            self.accepted += 1
            self._news.set()
            self._news = trio.Event()

    async def until(self, accepted: int) -> None:
        while self.accepted < accepted or self.delivered < accepted // 2:
            await self._news.wait()

    @property
    def delivered(self) -> int:
        tallies = self.runtime.store.tallies
        return sum(value for (what, _), value in tallies.items() if what == "delivered")


@contextmanager
def half_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[trio.Event, threading.Event]]:
    """Copies page by page, and holds the copy after some steps: (set then, sets it going again)."""
    reached, go_on = trio.Event(), threading.Event()
    steps, plain = count(1), backup._go_on

    def gate(doing: str, done: int, total: int) -> None:
        if next(steps) == AFTER_STEPS:
            trio.from_thread.run_sync(reached.set)
            assert go_on.wait(30.0)
        plain(doing, done, total)

    monkeypatch.setattr(copying, "STEP_PAGES", 1)
    monkeypatch.setattr(backup, "_go_on", gate)
    try:
        yield reached, go_on
    finally:
        go_on.set()


@pytest.mark.spec("OPS-5")
async def test_a_backup_under_load_is_one_moment_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "backup"
    paths = [f"/s{n}" for n in range(SENDERS)]
    with trio.fail_after(60), half_made(monkeypatch) as (reached, go_on):
        async with open_runtime(f"sqlite:///{tmp_path}/a.db", agents={"echo": echo}) as runtime:
            flood = Flood(runtime)
            async with trio.open_nursery() as pouring:
                for path in paths:
                    pouring.start_soon(flood.pour, path)
                await flood.until(400)
                before, turns = dict(flood.sent), 0
                async with trio.open_nursery() as copying_:
                    copying_.start_soon(back_up, runtime.store, copy)
                    await reached.wait()
                    turns = flood.delivered
                    await flood.until(flood.accepted + MEANWHILE)
                    meanwhile = flood.delivered - turns
                    with pytest.raises(Busy):
                        await back_up(runtime.store, tmp_path / "second")
                    go_on.set()
                after = dict(flood.sent)
                pouring.cancel_scope.cancel()
    assert meanwhile > 0, "no turn was committed while the copy was made"
    assert left_over(tmp_path) == []
    assert rows(copy, "PRAGMA integrity_check") == [("ok",)]
    check_any_time(Rows(copy))
    for path in paths:
        found = sorted(int(name.rpartition("-")[2]) for (name,) in rows(copy, OF_SENDER, f"{path[1:]}-%"))
        assert found == list(range(len(found))), "a message is there without the one before it"
        assert before[path] < len(found) <= after[path] + 2, "it is not of the time when it was made"
    open_ones = rows(copy, "SELECT count(*) FROM message WHERE status IN ('pending', 'processing')")[0][0]

    restored(copy, tmp_path / "b.db")
    with trio.fail_after(60):
        async with open_runtime(f"sqlite:///{tmp_path}/b.db", agents={"echo": echo}) as runtime:
            receipt = await runtime.send("/s0", "more", message_id="more")
            assert receipt.seq > RESTORE_JUMP
            for (name,) in rows(copy, "SELECT message_id FROM message WHERE status IN ('pending', 'processing')"):
                assert (await runtime.wait(name)).outcome == "answered"
            assert (await runtime.wait("more")).outcome == "answered"
    assert open_ones > 0, "nothing was under way, so nothing was shown"
    assert rows(tmp_path / "b.db", UNEVEN) == []
    assert rows(tmp_path / "b.db", "PRAGMA integrity_check") == [("ok",)]


OF_SENDER = "SELECT message_id FROM message WHERE message_id LIKE ?"
UNEVEN = """SELECT m.uid, m.status, count(k.id) FROM message AS m LEFT JOIN marker AS k ON k.message = m.id
    GROUP BY m.id HAVING m.status <> 'delivered' OR count(k.id) <> 1"""


@pytest.mark.spec("OPS-5")
async def test_a_cancel_ends_the_copying_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trio.fail_after(30), half_made(monkeypatch) as (reached, go_on):
        async with open_runtime(f"sqlite:///{tmp_path}/a.db", agents={"echo": echo}) as runtime:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(back_up, runtime.store, tmp_path / "backup")
                await reached.wait()
                assert len(left_over(tmp_path)) == 1
                nursery.cancel_scope.cancel()
                go_on.set()
            assert left_over(tmp_path) == []
            assert not (tmp_path / "backup").exists()
            await back_up(runtime.store, tmp_path / "backup")


@pytest.mark.spec("OPS-5")
async def test_room_for_commits_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(f"sqlite:///{tmp_path}/a.db", agents={"echo": echo}) as runtime:
        monkeypatch.setattr(copying, "RESERVE_BYTES", 1 << 60)
        with pytest.raises(StoreFull, match="no room"):
            await back_up(runtime.store, tmp_path / "backup")
        assert left_over(tmp_path) == []


async def test_a_store_in_memory_has_no_backup() -> None:
    async with open_runtime("sqlite:///:memory:", agents={"echo": echo}) as runtime:
        with pytest.raises(Conflict, match="in memory"):
            async with runtime.store.backup():
                raise AssertionError("of what?")
