"""Processes that share a store: each is a row that its claims keep fresh, and is forgotten when it leaves or has been dead for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.model.messages import Kind
from callboard.storage.ops import PruneProcesses
from callboard.storage.overview import ProcessView

if TYPE_CHECKING:
    from conftest import Kit


async def seen(kit: Kit, *, ahead: float = 0.0) -> dict[str, ProcessView]:
    return {found.name: found for found in await kit.store.reads.processes(kit.store.now() + ahead)}


@pytest.mark.spec("RT-17", "OPS-4")
async def test_each_process_is_listed_with_its_leases_and_those_that_have_run_out(kit: Kit) -> None:
    first, second, third = [await kit.open() for _ in range(3)]
    for session in (first, second):
        await kit.post(session)
    await kit.claims("one", seconds=30.0)
    await kit.post(third)
    await kit.claims("two", seconds=90.0)
    await kit.claims("idle")
    before = kit.store.now()
    found = await seen(kit)
    assert {name: (view.held, view.run_out) for name, view in found.items()} == {
        "one": (2, 0),
        "two": (1, 0),
        "idle": (0, 0),
    }
    assert all(before - 5 < view.seen_at <= before + 1 for view in found.values())
    later = await seen(kit, ahead=60.0)
    assert {name: (view.held, view.run_out) for name, view in later.items()} == {
        "one": (2, 2),
        "two": (1, 0),
        "idle": (0, 0),
    }
    assert await kit.store.reads.run_out(kit.store.now()) == 0
    assert await kit.store.reads.run_out(kit.store.now() + 60.0) == 2
    await kit.claims("idle", limit=0)
    again = await seen(kit)
    assert again["idle"].seen_at > found["idle"].seen_at
    assert again["one"] == found["one"]


async def test_a_claim_of_nothing_only_says_that_the_process_lives(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    assert await kit.claims("full", limit=0) == ()
    assert list(await seen(kit)) == ["full"]
    assert (await kit.claim(session, "free")).lease.attempt == 1


async def test_the_oldest_message_is_the_one_that_has_been_open_for_longest(kit: Kit) -> None:
    assert await kit.store.reads.oldest_open() is None
    session = await kit.open()
    done, waits = await kit.post(session, "done"), await kit.post(session, "waits")
    assert await kit.store.reads.oldest_open() == (done.id, (await kit.message(done.id)).created_at)
    await kit.commit(await kit.claim(session))
    assert (await kit.store.reads.oldest_open() or ())[0] == waits.id
    notice = await kit.post(await kit.open(), "waits for a turn", kind=Kind.NOTICE)
    await kit.commit(await kit.claim(session))
    assert (await kit.store.reads.oldest_open() or ())[0] == notice.id


@pytest.mark.spec("RT-17")
async def test_a_process_is_forgotten_when_it_leaves_or_after_a_day_and_its_stuck_marks_with_it(kit: Kit) -> None:
    sessions = {name: await kit.open() for name in ("one", "two")}
    for name, session in sessions.items():
        await kit.post(session)
        claimed = await kit.claim(session, name)
        await kit.commit(claimed, None, stuck=name)
    assert await kit.store.apply(PruneProcesses()) == 0
    assert len(await kit.store.reads.stuck()) == 2
    assert await kit.store.apply(PruneProcesses(left="one")) == 1
    assert list(await seen(kit)) == ["two"]
    assert [holder for _, holder in await kit.store.reads.stuck()] == ["two"]
    assert await kit.store.apply(PruneProcesses(keep_seconds=-1.0)) == 1
    assert await seen(kit) == {}
    assert await kit.store.reads.stuck() == []
    await kit.claims("two")
    assert list(await seen(kit)) == ["two"], "whoever lives is there again with the next claim"
