"""`POST /v1/backup`: the bytes of one moment, to the operator alone, one at a time, and nothing left behind however it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trio

from callboard.actors.edges.edge import Pace
from callboard.storage.ops import RevokeCredential
from callboard.storage.sqlite import backup, copying
from callboard.tests.contract.backup_kit import left_over, restored, rows
from callboard.tests.flows.access_kit import make_key
from callboard.tests.flows.edge_kit import Served, serving_runtime


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[trio.Event, threading.Event]]:
    """A copy that is made stops in the middle: (set then, sets it going again)."""
    reached, go_on = trio.Event(), threading.Event()
    plain = backup._go_on

    def gate(doing: str, done: int, total: int) -> None:
        if not reached.is_set():
            trio.from_thread.run_sync(reached.set)
            while not go_on.wait(0.01):
                plain(doing, done, total)
        plain(doing, done, total)

    monkeypatch.setattr(copying, "STEP_PAGES", 1)
    monkeypatch.setattr(backup, "_go_on", gate)
    try:
        yield reached, go_on
    finally:
        go_on.set()


@pytest.mark.spec("OPS-5")
async def test_the_answer_is_a_whole_backup_with_its_length(served: Served, tmp_path: Path) -> None:
    session = await served.open()
    await served.say(session, "echo hi")
    answer = await served.client.post("/v1/backup", json={})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.sqlite3"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"].startswith('attachment; filename="callboard-2')
    assert int(answer.headers["content-length"]) == len(answer.content)
    await trio.Path(tmp_path / "b").write_bytes(answer.content)
    assert rows(tmp_path / "b", "SELECT count(*) FROM entry WHERE content = 'echo hi'") == [(1,)]
    restored(tmp_path / "b", tmp_path / "new.db")
    assert left_over(tmp_path) == []
    refused = await served.client.post("/v1/backup", json={"file": "/etc/passwd"})
    assert refused.json()["error"]["path"] == "file", "where a server writes is not a client's choice"


@pytest.mark.spec("OPS-5", "RT-14")
async def test_one_at_a_time_and_commits_go_on(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await served.open()
    statuses: list[int] = []

    async def ask() -> None:
        statuses.append((await served.client.post("/v1/backup")).status_code)

    with held_up(monkeypatch) as (reached, go_on):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await reached.wait()
            second = await served.client.post("/v1/backup")
            assert (second.status_code, second.json()["error"]["code"]) == (503, "busy")
            assert int(second.headers["retry-after"]) > 0
            assert (await served.say(session, "echo meanwhile"))["status"] == "delivered"
            go_on.set()
    assert statuses == [200]
    assert (await served.client.post("/v1/backup")).status_code == 200
    assert left_over(tmp_path) == []


@pytest.mark.spec("OPS-5")
async def test_a_client_that_leaves_ends_the_copy(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_up(monkeypatch) as (reached, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.client.post, "/v1/backup")
            await reached.wait()
            assert len(left_over(tmp_path)) == 1
            nursery.cancel_scope.cancel()
        with trio.fail_after(20):
            while (await served.client.post("/v1/backup")).status_code == 503:
                await trio.lowlevel.checkpoint()
    assert left_over(tmp_path) == []


@pytest.mark.spec("AUTH-3")
async def test_a_token_that_is_revoked_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_runtime(tmp_path, pace=Pace(recheck=0.05)) as served:
        key = await make_key(served)
        answers: list[httpx.Response] = []

        async def ask() -> None:
            answers.append(await served.client.post("/v1/backup", headers=key.headers))

        with held_up(monkeypatch) as (reached, _):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await reached.wait()
                await served.runtime.store.apply(RevokeCredential(served.runtime.scope.tenant, key.id))
        assert [answer.status_code for answer in answers] == [401]
        assert left_over(tmp_path) == []


@pytest.mark.spec("OPS-5")
async def test_no_room_and_no_file_are_told_as_such(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "RESERVE_BYTES", 1 << 60)
    full = await served.client.post("/v1/backup")
    assert (full.status_code, full.json()["error"]["code"]) == (503, "store_full")
    assert str(tmp_path) not in full.text
    (tmp_path / "other").mkdir()
    async with serving_runtime(tmp_path / "other", store="sqlite:///:memory:") as other:
        memory = await other.client.post("/v1/backup")
        assert (memory.status_code, memory.json()["error"]["code"]) == (409, "conflict")
