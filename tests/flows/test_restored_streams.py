"""Clients that saw what a restore has lost: told once, by `resync`, and then everything that is new; all others see one jump of the ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard import client, open_runtime
from callboard.actors.tail import Feed
from callboard.storage.model.limits import RESTORE_JUMP
from callboard.supervisors.runtime import Runtime
from callboard.tests.contract.backup_kit import back_up, restored
from callboard.tests.flows.edge_kit import Served, serving_runtime

JUMP = RESTORE_JUMP


async def echo(turn: Any) -> str:
    await trio.lowlevel.checkpoint()
    return f"echo {turn.text}"


AGENTS = {"echo": echo}


@attrs.frozen
class Lost:
    """A restored store. `kept` is the newest event of the backup, `lost` the newest that clients have seen."""

    folder: Path
    session: str
    kept: int
    lost: int

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Runtime]:
        with trio.fail_after(30):
            async with open_runtime(f"sqlite:///{self.folder}/callboard.db", agents=AGENTS) as runtime:
                yield runtime

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Served]:
        async with serving_runtime(self.folder, agents=AGENTS) as served:
            yield served


@pytest.fixture
async def lost(tmp_path: Path) -> Lost:
    async with open_runtime(f"sqlite:///{tmp_path}/a.db", agents=AGENTS) as runtime:
        session = await runtime.open_session(path="/", agent="echo")
        await said(runtime, session.id, "one")
        kept = (await runtime.desk.find(runtime.scope, "/")).newest_event
        await back_up(runtime.store, tmp_path / "backup")
        await said(runtime, session.id, "two")
        newest = (await runtime.desk.find(runtime.scope, "/")).newest_event
    (tmp_path / "new").mkdir()
    restored(tmp_path / "backup", tmp_path / "new" / "callboard.db")
    return Lost(tmp_path / "new", session.id, kept, newest)


async def said(runtime: Runtime, session: str, text: str) -> None:
    receipt = await runtime.send(session, text)
    await runtime.wait(receipt.message_id)


async def until_end(feed: Feed) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    async for item in feed:
        found.append((item.id, item.kind))
        if item.kind == "turn.completed" and item.id > JUMP:
            return found
    raise AssertionError("a feed never ends")


@pytest.mark.spec("OPS-5", "EVT-3")
@pytest.mark.parametrize("new_ones_first", [True, False])
async def test_a_cursor_in_the_gap_gets_one_resync_then_all_that_is_new(lost: Lost, new_ones_first: bool) -> None:
    async with lost.running() as runtime:
        if new_ones_first:
            await said(runtime, lost.session, "three")
        for cursor in {lost.kept + 1, lost.lost, JUMP // 2}:
            async with runtime.follow(lost.session, after=cursor) as feed:
                first = await anext(feed)
                assert (first.kind, first.data) == ("resync", {"after": lost.kept + JUMP, "oldest": 1})
                if not new_ones_first:
                    await said(runtime, lost.session, "three")
                seen = await until_end(feed)
                assert seen[0] == (lost.kept + JUMP + 1, "message.created")
                assert [n for n, _ in seen] == list(range(seen[0][0], seen[-1][0] + 1)), "a gap, or a second resync"


@pytest.mark.spec("OPS-5", "EVT-2", "EVT-3")
async def test_a_cursor_from_before_the_backup_is_served_without_one(lost: Lost) -> None:
    async with lost.running() as runtime:
        await said(runtime, lost.session, "three")
        for cursor in (0, 1, lost.kept - 1, lost.kept, lost.kept + JUMP):
            async with runtime.follow(lost.session, after=cursor) as feed:
                ids = [n for n, kind in await until_end(feed) if kind != "resync"]
            old = list(range(cursor + 1, lost.kept + 1))
            assert ids[: len(old)] == old
            assert ids[len(old) :] == list(range(lost.kept + JUMP + 1, lost.kept + JUMP + 1 + len(ids) - len(old)))


@pytest.mark.spec("OPS-5", "EVT-3")
async def test_who_waits_at_the_gap_sleeps_until_something_happens(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = trio.Event()

    def join(*given: Any) -> bool:
        done = plain(*given)
        if done:
            joined.set()
        return done

    async with lost.running() as runtime:
        tails = runtime.desk.tails
        plain = tails.join
        monkeypatch.setattr(tails, "join", join)
        async with runtime.follow(lost.session, after=lost.kept) as feed, trio.open_nursery() as nursery:
            found: list[tuple[int, str]] = []

            async def read() -> None:
                found.extend(await until_end(feed))

            nursery.start_soon(read)
            await joined.wait()
            (tail,) = tails._tails.values()
            assert await runtime.store.reads.moved({lost.session: tail.position}) == [], "it would be woken each second"
            assert feed.cursor == lost.kept + JUMP, "what follows a turn to its end would never know that it is there"
            await said(runtime, lost.session, "three")
        assert found[0] == (lost.kept + JUMP + 1, "message.created")


@pytest.mark.spec("OPS-5", "EVT-3", "EVT-5")
async def test_a_client_over_a_websocket_and_one_over_sse_are_told_the_same(lost: Lost) -> None:
    async with lost.served() as served:
        async with served.stream(f"/v1/sessions/{lost.session}/events", last=lost.lost) as events:
            ((number, kind, data),) = await events.events(1)
            assert (number, kind, data) == (lost.kept + JUMP, "resync", {"after": lost.kept + JUMP, "oldest": 1})
        async with client.connect(served.url, served.token) as board:
            old = board.subscribe(lost.session, after=lost.kept)
            assert await old.started() == lost.kept + JUMP
            await said(served.runtime, lost.session, "three")
            first = await anext(old)
            assert (first.id, first.kind) == (lost.kept + JUMP + 1, "message.created")
            old.leave()
        async with client.connect(served.url, served.token) as board:
            gone = board.subscribe(lost.session, after=lost.lost)
            first = await anext(gone)
            assert (first.kind, first.id) == ("resync", lost.kept + JUMP)
            second = await anext(gone)
            assert (second.id, second.kind) == (lost.kept + JUMP + 1, "message.created")


@pytest.mark.spec("OPS-5", "MSG-1")
async def test_a_transcript_goes_on_above_what_clients_have_seen(lost: Lost) -> None:
    async with lost.running() as runtime:
        await said(runtime, lost.session, "three")
        entries = await runtime.read(lost.session, after=4)
        assert [(entry.seq, entry.content) for entry in entries] == [(JUMP + 3, "three"), (JUMP + 4, "echo three")]
        assert [entry.seq for entry in await runtime.read(lost.session)] == [1, 2, JUMP + 3, JUMP + 4]
