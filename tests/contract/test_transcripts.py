"""Transcripts: entries are numbered from 1 per session without a gap, and keep what became of their message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from callboard.storage.model.errors import CallboardError, LimitReached, MailboxFull, MessageConflict
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Reason
from callboard.storage.ops import Cancel, Fail

if TYPE_CHECKING:
    from conftest import Kit, Reopen


@pytest.mark.spec("MSG-1")
async def test_concurrent_posts_are_numbered_without_gap_or_repeat(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(3)]
    receipts: dict[str, list[int]] = {session.id: [] for session in sessions}

    async def work() -> None:
        while True:
            claims = await kit.claims(limit=2)
            if not claims and sum(map(len, receipts.values())) == 60:
                return
            for claimed in claims:
                await kit.commit(claimed, None)

    async def send(n: int) -> None:
        session = sessions[n % 3]
        receipts[session.id].append((await kit.post(session, f"{n}")).seq)

    async with trio.open_nursery() as nursery:
        for n in range(60):
            nursery.start_soon(send, n)
        nursery.start_soon(work)
    for session in sessions:
        assert sorted(receipts[session.id]) == list(range(1, 21))
        assert [entry.seq for entry in await kit.entries(session)] == list(range(1, 21))


@pytest.mark.spec("MSG-1")
async def test_a_refused_message_takes_no_number(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, message_id="m-1")
    refusals: dict[type[CallboardError], dict[str, Any]] = {
        MessageConflict: {"message_id": "m-1"},
        MailboxFull: {"depth_limit": 1},
        LimitReached: {"hops": 2, "max_hops": 1},
    }
    for kind, fields in refusals.items():
        with pytest.raises(kind):
            await kit.post(session, "refused", **fields)
    assert (await kit.post(session)).seq == 2
    assert [event.id for event in await kit.events(session)] == [1, 2]


@pytest.mark.spec("MSG-1")
async def test_a_message_has_its_entry_once_it_is_accepted_and_the_answer_follows_at_the_commit(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.post(session, "first", message_id="m-1")
    (entry,) = await kit.entries(session)
    assert (entry.seq, entry.role, entry.content, entry.sender) == (first.seq, "user", "first", kit.ann)
    assert (entry.message_id, entry.in_reply_to, entry.state) == ("m-1", None, "pending")
    assert entry.at == (await kit.message(first.id)).created_at
    claimed = await kit.claim(session)
    assert (await kit.entries(session))[0].state == "processing"
    second = await kit.post(session, "second")
    await kit.commit(claimed, "answer")
    entries = await kit.entries(session)
    assert [(entry.seq, entry.role, entry.content) for entry in entries] == [
        (1, "user", "first"),
        (2, "user", "second"),
        (3, "assistant", "answer"),
    ]
    assert (entries[2].in_reply_to, entries[2].message_id, entries[2].state) == ("m-1", None, "delivered")
    assert [entry.state for entry in entries[:2]] == ["delivered", "pending"]
    assert second.seq == 2


@pytest.mark.spec("MSG-1")
async def test_a_failed_message_keeps_its_entry_with_that_state(kit: Kit) -> None:
    session = await kit.open()
    cancelled, failed = await kit.post(session, "cancelled"), await kit.post(session, "failed")
    await kit.store.apply(Cancel(kit.scope, cancelled.id))
    await kit.store.apply(Fail((await kit.claim(session)).lease, Reason.UNDECODABLE, "not readable"))
    await kit.turn(session, "fine")
    assert [(entry.content, entry.state, entry.seq) for entry in await kit.entries(session)] == [
        ("cancelled", "failed", cancelled.seq),
        ("failed", "failed", failed.seq),
        ("fine", "delivered", 3),
        ("done", "delivered", 4),
    ]


@pytest.mark.spec("MSG-1")
async def test_numbers_go_on_after_a_restart(reopen: Reopen) -> None:
    async with reopen() as kit:
        session = await kit.open()
        await kit.turn(session, "before")
    async with reopen() as kit:
        assert (await kit.post(session, "after")).seq == 3
        assert [entry.content for entry in await kit.entries(session)] == ["before", "done", "after"]


async def test_a_transcript_is_read_from_a_cursor_or_from_its_end(kit: Kit) -> None:
    session = await kit.open()
    for n in range(4):
        await kit.turn(session, f"q{n}", f"a{n}")
    await kit.post(session, "a notice", kind=Kind.NOTICE)
    reads = kit.store.reads
    assert [entry.content for entry in await reads.transcript(kit.scope, session.id, after=6)] == [
        "q3",
        "a3",
        "a notice",
    ]
    assert [entry.seq for entry in await reads.transcript(kit.scope, session.id, after=2, limit=3)] == [3, 4, 5]
    tail, count = await reads.transcript_tail(kit.scope, session.id, 3)
    assert ([entry.content for entry in tail], count) == (["a2", "q3", "a3"], 8)
    assert await reads.transcript(kit.scope, "ses_nowhere") == []
