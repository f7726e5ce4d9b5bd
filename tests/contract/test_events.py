"""Events: ids are dense per session, taken in the writing transaction, never reused; pruning raises a floor and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from callboard.storage.model.errors import MessageConflict, UnknownTarget
from callboard.storage.model.events import EventKind
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Cancel, EmitTokens, Fail, HandBack, PruneEvents, RecordStep, Retry
from callboard.storage.ops.deliveries import StepEvent

if TYPE_CHECKING:
    from conftest import Kit, Reopen

    from callboard.storage.model.sessions import Session

EVERYTHING = PruneEvents(keep_seconds=-10, limit=1_000)
"""As if a day had passed."""
KEPT = {"message.created", "turn.completed", "turn.failed", "turn.stopped"}


async def dense(kit: Kit, session: Session) -> int:
    """Assert that the session's events are 1, 2, 3 … and return the newest."""
    page = await kit.store.reads.events(kit.scope, session.id, limit=1_000)
    assert [event.id for event in page.events] == list(range(1, page.newest + 1))
    assert (await kit.store.reads.session(kit.scope, session.id)).newest_event == page.newest
    return page.newest


async def a_life(kit: Kit, session: Session) -> None:
    """A session to which everything happens that writes events."""
    await kit.post(session, "one")
    await kit.store.apply(Retry((await kit.claim(session)).lease, "boom", 0))
    await kit.store.apply(HandBack((await kit.claim(session)).lease, "shutdown"))
    await kit.claim(session, seconds=-1)
    claimed = await kit.claim(session)
    await kit.store.apply(EmitTokens(claimed.lease, 1, "a"))
    events = (StepEvent("tool.call", {"tool": "t"}), StepEvent("tool.result", {"tool": "t"}))
    await kit.store.apply(RecordStep(claimed.lease, "call:0", StepKind.CALL, 0, True, {}, events=events))
    await kit.post(session, "two")
    await kit.commit(claimed, "ab", tail="b", block=2)
    await kit.commit(await kit.claim(session), None, outcome=Outcome.STOPPED)
    cancelled = await kit.post(session, "three")
    await kit.store.apply(Cancel(kit.scope, cancelled.id))
    await kit.post(session, "four")
    await kit.store.apply(Fail((await kit.claim(session)).lease, Reason.UNDECODABLE, "not readable"))


@pytest.mark.spec("EVT-1", "EVT-2")
async def test_all_that_happens_to_a_session_is_one_dense_row_of_events(kit: Kit) -> None:
    session, other = await kit.open(), await kit.open()
    await kit.post(other, "another session has ids of its own")
    await kit.commit(await kit.claim(other))
    await a_life(kit, session)
    await dense(kit, session)
    await dense(kit, other)
    events = await kit.events(session)
    assert [event.kind for event in events] == [
        "message.created",
        "turn.started", "attempt.claimed", "attempt.relinquished",
        "attempt.claimed", "attempt.relinquished",
        "attempt.claimed", "attempt.relinquished",
        "attempt.claimed", "turn.token", "tool.call", "tool.result", "message.created", "turn.token", "turn.completed",
        "turn.started", "attempt.claimed", "turn.stopped",
        "message.created", "turn.failed",
        "message.created", "turn.started", "attempt.claimed", "turn.failed",
    ]  # fmt: skip
    assert {event.kind for event in events} <= set(EventKind)
    assert [event.at for event in events] == sorted(event.at for event in events)
    for event in events:
        if event.kind == "message.created":
            assert event.turn is None
            assert event.data["content"]
        else:
            assert event.turn == event.data["turn_id"]
            assert {"message_id", "attempt"} <= set(event.data)
    first = [
        event.data["attempt"] for event in events if event.turn == events[1].turn and event.kind == "attempt.claimed"
    ]
    assert first == [1, 2, 3, 4]
    given_up = [event.data for event in events if event.kind == "attempt.relinquished"]
    assert [(data["attempt"], data["cause"]) for data in given_up] == [
        (1, "retried"),
        (2, "handed_back"),
        (3, "takeover"),
    ]


@pytest.mark.spec("EVT-2")
async def test_ids_stay_dense_under_concurrent_writers_and_refusals(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "head", message_id="m-1")
    claimed = await kit.claim(session)

    async def post(n: int) -> None:
        await kit.post(session, f"{n}")

    async def refused() -> None:
        with pytest.raises(MessageConflict):
            await kit.post(session, "other", message_id="m-1")

    async with trio.open_nursery() as nursery:
        for n in range(40):
            nursery.start_soon(post, n)
            nursery.start_soon(refused)
        for block in range(1, 21):
            await kit.store.apply(EmitTokens(claimed.lease, block, "x"))
    assert await dense(kit, session) == 3 + 40 + 20


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_a_cursor_gives_exactly_what_came_after_it_also_after_a_restart(reopen: Reopen) -> None:
    async with reopen() as kit:
        session = await kit.open()
        await a_life(kit, session)
        events = await kit.events(session)
        newest = await dense(kit, session)
        for after in range(newest + 1):
            assert await kit.events(session, after) == events[after:]
    async with reopen() as kit:
        assert await kit.events(session) == events
        await kit.post(session, "after")
        (new,) = await kit.events(session, newest)
        assert (new.id, new.kind) == (newest + 1, "message.created")
        await dense(kit, session)


@pytest.mark.spec("EVT-3")
async def test_a_page_tells_whether_more_follows_and_where_the_session_stands(kit: Kit) -> None:
    session = await kit.open()
    for n in range(5):
        await kit.post(session, f"{n}")
    reads = kit.store.reads
    page = await reads.events(kit.scope, session.id, after=1, limit=2)
    assert ([event.id for event in page.events], page.more, page.floor, page.newest) == ([2, 3], True, 0, 5)
    page = await reads.events(kit.scope, session.id, after=3, limit=2)
    assert ([event.id for event in page.events], page.more) == ([4, 5], False)
    page = await reads.events(kit.scope, session.id, after=99)
    assert (page.events, page.more, page.newest) == ((), False, 5)
    with pytest.raises(UnknownTarget):
        await reads.events(kit.scope, "ses_nowhere")


@pytest.mark.spec("EVT-3", "EVT-4")
async def test_pruning_keeps_messages_and_terminal_events_and_raises_the_floor(kit: Kit) -> None:
    session, quiet = await kit.open(), await kit.open()
    await kit.post(quiet)
    await kit.commit(await kit.claim(quiet), None)
    await a_life(kit, session)
    before = await kit.events(session)
    pruned = await kit.store.apply(EVERYTHING)
    page = await kit.store.reads.events(kit.scope, session.id)
    kept = [event for event in before if event.kind in KEPT]
    assert list(page.events) == kept
    assert page.floor == max(event.id for event in before if event.kind not in KEPT)
    assert page.newest == before[-1].id
    assert pruned == len(before) - len(kept) + 2
    # Above the floor ids are dense, also for what is written from now on.
    await kit.post(session, "after")
    await kit.claim(session)
    page = await kit.store.reads.events(kit.scope, session.id, after=page.floor)
    assert [event.id for event in page.events] == list(range(page.floor + 1, page.newest + 1))
    assert page.newest == before[-1].id + 3


@pytest.mark.spec("EVT-4")
async def test_what_is_young_is_kept(kit: Kit) -> None:
    session = await kit.open()
    await a_life(kit, session)
    before = await kit.snapshot()
    assert await kit.store.apply(PruneEvents(keep_seconds=24 * 3_600)) == 0
    assert await kit.snapshot() == before


@pytest.mark.spec("EVT-4")
async def test_pruning_goes_on_where_it_stopped(kit: Kit) -> None:
    session = await kit.open()
    await a_life(kit, session)
    before = await kit.events(session)
    pruned = 0
    for _ in range(len(before)):
        step = await kit.store.apply(PruneEvents(keep_seconds=-10, limit=2))
        assert step <= 2
        pruned += step
    assert pruned == sum(event.kind not in KEPT for event in before)
    assert await kit.store.apply(EVERYTHING) == 0


@pytest.mark.spec("EVT-4")
async def test_what_is_written_after_a_pruning_is_pruned_in_its_turn(kit: Kit) -> None:
    """Also when the newest rows of all were pruned, so that the database may give their places to new ones."""
    session = await kit.open()
    await kit.post(session)
    for _ in range(4):
        claimed = await kit.claim(session)
        await kit.store.apply(HandBack(claimed.lease, "shutdown"))
        await kit.store.apply(EVERYTHING)
        assert await kit.kinds(session) == ["message.created"]


@pytest.mark.spec("EVT-2")
async def test_pruned_ids_are_not_given_again(reopen: Reopen) -> None:
    async with reopen() as kit:
        session = await kit.open()
        await kit.post(session)
        await kit.store.apply(HandBack((await kit.claim(session)).lease, "shutdown"))
        await kit.store.apply(EVERYTHING)
    async with reopen() as kit:
        assert (await kit.store.reads.events(kit.scope, session.id)).floor == 4
        await kit.post(session)
        assert [event.id for event in await kit.events(session)] == [1, 5]


@pytest.mark.spec("EVT-4")
async def test_a_block_of_text_is_written_once_and_belongs_to_its_attempt(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    first = await kit.claim(session, seconds=-1)
    for block, text in ((1, "a"), (2, "b"), (2, "b"), (1, "a")):
        await kit.store.apply(EmitTokens(first.lease, block, text))
    second = await kit.claim(session)
    await kit.store.apply(EmitTokens(second.lease, 1, "c"))
    turn = f"turn_{receipt.id[4:]}"
    assert await kit.store.reads.tokens(kit.scope, session.id, turn) == {1: "ab", 2: "c"}
