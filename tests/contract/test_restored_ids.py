"""After a restore nothing that was given out before is given out again: numbers, rows, epochs, tickets (OPS-5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.storage.clock import StoreClock
from callboard.storage.model.access import Carrier, Grant, Kind, Purpose, digest
from callboard.storage.model.errors import LeaseLost, Unauthorized
from callboard.storage.model.limits import RESTORE_JUMP
from callboard.storage.ops import IssueTicket, RedeemTicket, RevokeCredential
from callboard.storage.ops.access import issue_token
from callboard.tests.contract.backup_kit import back_up, opened, restored, rows
from callboard.tests.contract.conftest import Kit

JUMP = RESTORE_JUMP


@pytest.mark.spec("OPS-5", "EVT-2", "MSG-1")
async def test_numbers_that_were_lost_are_never_given_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as kit:
        session = await kit.open(path="/desk")
        await kit.turn(session, "one")
        await back_up(kit.store, tmp_path / "b")
        seqs = [entry.seq for entry in await kit.entries(session)]
        before = [event.id for event in await kit.events(session)]
        await kit.turn(session, "lost")
        await kit.turn(await kit.open(path="/lost"), "lost as well")
        lost = {event.id for event in await kit.events(session)} - set(before)
    restored(tmp_path / "b", tmp_path / "c.db")
    async with opened(tmp_path / "c.db") as kit:
        assert [entry.seq for entry in await kit.entries(session)] == seqs == [1, 2]
        receipt = await kit.turn(session, "two")
        assert receipt.seq == JUMP + 3
        events = [event.id for event in await kit.events(session)]
        new = events[len(before) :]
        assert events[: len(before)] == before
        assert new == list(range(len(before) + JUMP + 1, len(before) + JUMP + 1 + len(new))), "one gap, dense behind it"
        assert not lost & set(new)
        assert [entry.content for entry in await kit.entries(session)] == ["one", "done", "two", "done"]
        later = await kit.open(path="/later")
        assert (await kit.post(later)).seq == 1, "a session that is new begins at 1: no client has seen it"
    assert rows(tmp_path / "c.db", "SELECT id > ? FROM message ORDER BY id", JUMP) == [(0,), (1,), (1,)]
    assert rows(tmp_path / "c.db", "SELECT id > ? FROM mailbox ORDER BY id", JUMP) == [(0,), (1,)]


@pytest.mark.spec("OPS-5", "RT-8")
async def test_whoever_held_a_mailbox_before_writes_nothing_any_more(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as kit:
        session = await kit.open(path="/desk")
        await kit.post(session, "one")
        early = await kit.claim(session, "a reader", holder_kind="reader", seconds=3_600.0)
        await back_up(kit.store, tmp_path / "b")
        await kit.commit(early)
        await kit.post(session, "two")
        late = await kit.claim(session, "a reader", holder_kind="reader", seconds=3_600.0)
        foreign = await kit.open(path="/lost")
        await kit.post(foreign, "three")
        gone = await kit.claim(foreign, "a reader", holder_kind="reader", seconds=3_600.0)
    restored(tmp_path / "b", tmp_path / "c.db")
    async with opened(tmp_path / "c.db") as kit:
        again = await kit.claim(session)
        assert (again.head.content, again.takeovers) == ("one", 1), "its lease was void at once"
        assert again.lease.epoch > JUMP
        other = await kit.open(path="/other")
        await kit.post(other, "four")
        taken = await kit.claim(other)
        assert gone.lease.mailbox != taken.lease.mailbox, "an old lease would open a new mailbox"
        for held in (early, late, gone):
            with pytest.raises(LeaseLost):
                await kit.commit(held, "too late")
        await kit.commit(again, "in time")
        assert [entry.content for entry in await kit.entries(session)] == ["one", "in time"]


@pytest.mark.spec("OPS-5", "AUTH-1")
async def test_a_used_ticket_stays_used_and_a_revoked_token_is_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as kit:
        store, scope = kit.store, kit.scope
        ticket = IssueTicket(scope, digest("once"), Purpose.WEBSOCKET, Grant(Kind.OPERATOR, None, False), 600.0, None)
        await store.apply(ticket)
        token = await store.apply(issue_token(scope, digest("secret"), member=None, project=None, label=""))
        await back_up(store, tmp_path / "b")
        await store.apply(RedeemTicket(digest("once"), Purpose.WEBSOCKET, "use_1"))
        await store.apply(RevokeCredential(scope.tenant, token.id))
        assert await store.access.standing(digest("secret"), Carrier.BEARER, store.now()) is None
        assert await store.reads.restored() is None
    made_at = restored(tmp_path / "b", tmp_path / "c.db").backup.made_at
    async with opened(tmp_path / "c.db") as kit:
        with pytest.raises(Unauthorized):
            await kit.store.apply(RedeemTicket(digest("once"), Purpose.WEBSOCKET, "use_2"))
        assert await kit.store.access.standing(digest("secret"), Carrier.BEARER, kit.store.now()) is not None
        found = await kit.store.reads.restored()
        assert found is not None
        assert found[1] == made_at <= found[0] <= kit.store.now()


@pytest.mark.spec("OPS-5", "RT-18")
async def test_store_time_goes_on_from_the_backup_where_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 10_000_000_000.0
    monkeypatch.setattr(StoreClock.__init__, "__defaults__", (lambda: ahead,))
    async with opened(tmp_path / "a.db") as kit:
        session = await kit.open(path="/desk")
        await kit.post(session, "one")
        await kit.claim(session)
        await back_up(kit.store, tmp_path / "b")
    monkeypatch.undo()
    restored(tmp_path / "b", tmp_path / "c.db")
    async with opened(tmp_path / "c.db") as kit:
        assert kit.store.now() >= ahead
        assert (await kit.claim(session)).head.content == "one", "what was due is due at once"


@pytest.mark.spec("OPS-5")
async def test_a_store_that_is_restored_again_jumps_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as kit:
        session = await kit.open(path="/desk")
        await kit.turn(session, "one")
        await back_up(kit.store, tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "c.db")
    async with opened(tmp_path / "c.db") as kit:
        await turned(kit, "two")
        await back_up(kit.store, tmp_path / "d")
    restored(tmp_path / "d", tmp_path / "e.db")
    async with opened(tmp_path / "e.db") as kit:
        await turned(kit, "three")
        assert [entry.seq for entry in await kit.entries(session)] == [
            1, 2, JUMP + 3, JUMP + 4, 2 * JUMP + 5, 2 * JUMP + 6,
        ]  # fmt: skip


async def turned(kit: Kit, content: str) -> None:
    (session,) = (await kit.store.reads.sessions(kit.scope)).items
    await kit.turn(session, content)
