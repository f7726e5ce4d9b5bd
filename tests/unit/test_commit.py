"""Group commit: what shares a batch, who goes first, how much waits, and whom a failure reaches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from callboard.storage import commit as commit_module
from callboard.storage.changes import Aspect, Changes
from callboard.storage.commit import GroupCommit
from callboard.storage.model.errors import Busy, MailboxFull, StoreDown, StoreFull
from callboard.storage.model.limits import BATCH_BYTES, BATCH_OPS
from callboard.tests.unit.commit_kit import Driver, Hold, Post, Take, Wake, behind


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
async def group(driver: Driver, changes: Changes) -> AsyncIterator[GroupCommit]:
    commit = GroupCommit(driver, changes)
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        yield commit
        driver.gate.set()
        nursery.cancel_scope.cancel()


async def test_a_lone_op_waits_for_nobody(driver: Driver, group: GroupCommit) -> None:
    assert [await group.apply(Post(n)) for n in range(3)] == [0, 1, 2]
    assert driver.numbers == [[0], [1], [2]]
    assert (group.committed, group.batches, group.depth) == (3, 3, 0)


async def test_ops_that_come_while_a_batch_commits_are_the_next_batch(driver: Driver, group: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        await behind(nursery, driver, group, *map(Post, range(5)))
        assert (driver.numbers, group.depth) == ([[-1]], 5)
        driver.gate.set()
    assert driver.numbers == [[-1], [0, 1, 2, 3, 4]]


@pytest.mark.spec("RT-14")
async def test_holders_go_before_claims_and_claims_before_newcomers(driver: Driver, group: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        await behind(nursery, driver, group, Post(5), Take(3), Hold(1), Post(6), Take(4), Hold(2))
        driver.gate.set()
    assert driver.numbers == [[-1], [1, 2, 3, 4, 5, 6]]


@pytest.mark.spec("RT-14")
async def test_a_batch_is_bounded_in_ops_and_holders_fill_it_first(driver: Driver, group: GroupCommit) -> None:
    driver.shut()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.apply, Post(-1))
        await trio.testing.wait_all_tasks_blocked()
        for n in range(BATCH_OPS - 1):
            nursery.start_soon(group.apply, Post(n))
        for n in range(2):
            nursery.start_soon(group.apply, Hold(1000 + n))
        await trio.testing.wait_all_tasks_blocked()
        driver.gate.set()
    assert [len(batch) for batch in driver.batches] == [1, BATCH_OPS, 1]
    assert sorted(driver.numbers[1])[-2:] == [1000, 1001]
    assert sorted(op.number for batch in driver.batches[1:] for op in batch) == [*range(BATCH_OPS - 1), 1000, 1001]


@pytest.mark.spec("RT-14")
async def test_a_batch_is_bounded_in_bytes(driver: Driver, group: GroupCommit) -> None:
    third = BATCH_BYTES // 3
    ops = (Post(0, third), Post(1, third), Post(2, third), Post(3, third), Post(4, 2 * BATCH_BYTES), Post(5))
    async with trio.open_nursery() as nursery:
        await behind(nursery, driver, group, *ops)
        driver.gate.set()
    assert driver.numbers == [[-1], [0, 1, 2], [3], [4], [5]]
    assert all(sum(op.size for op in batch) <= BATCH_BYTES or len(batch) == 1 for batch in driver.batches)


@pytest.mark.spec("INB-13")
async def test_a_refusal_reaches_its_caller_alone(driver: Driver, group: GroupCommit) -> None:
    driver.refuse = lambda op: op.number == 1
    results: dict[int, Any] = {}

    async def send(n: int) -> None:
        try:
            results[n] = await group.apply(Post(n))
        except MailboxFull as error:
            results[n] = error.code

    async with trio.open_nursery() as nursery:
        for n in range(3):
            nursery.start_soon(send, n)
    assert len(driver.batches) == 1
    assert results == {0: 0, 1: "mailbox_full", 2: 2}


@pytest.mark.spec("INB-13")
async def test_a_store_failure_fails_its_batch_and_not_the_next(
    driver: Driver, group: GroupCommit, changes: Changes
) -> None:
    driver.fault = StoreFull("no space is left")
    driver.touched = {"session:a": Aspect.EVENTS}
    told: list[int] = []
    failed = 0

    async def send(n: int) -> None:
        nonlocal failed
        with pytest.raises(StoreFull):
            await group.apply(Post(n))
        failed += 1

    with changes.watch(None, told.append):
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(send, n)
        assert (failed, told, group.committed) == (3, [], 0)
        driver.fault = None
        assert await group.apply(Post(7)) == 7
    assert told == [Aspect.EVENTS]


@pytest.mark.spec("RT-14")
async def test_a_full_lane_of_newcomers_is_busy_and_holders_pass(
    driver: Driver, group: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "LANE_OPS", 3)
    async with trio.open_nursery() as nursery:
        await behind(nursery, driver, group, *map(Post, range(3)))
        with pytest.raises(Busy) as caught:
            await group.apply(Post(3))
        assert (caught.value.status, caught.value.code) == (503, "busy")
        assert caught.value.retry_after > 0
        nursery.start_soon(group.apply, Hold(10))
        nursery.start_soon(group.apply, Take(11))
        await trio.testing.wait_all_tasks_blocked()
        driver.gate.set()
    assert driver.numbers == [[-1], [10, 11, 0, 1, 2]]
    assert await group.apply(Post(4)) == 4


@pytest.mark.spec("RT-14")
async def test_the_lane_is_bounded_in_bytes_too_and_those_who_leave_make_room(
    driver: Driver, group: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "LANE_BYTES", 100)
    for _ in range(3):
        async with trio.open_nursery() as nursery:
            await behind(nursery, driver, group, Post(0, weight=60), Post(1, weight=60))
            with pytest.raises(Busy):
                await group.apply(Post(2))
            nursery.cancel_scope.cancel()
        driver.gate.set()
        await group.apply(Hold(3))
    assert await group.apply(Post(4, weight=60)) == 4


async def test_a_rider_goes_last_in_the_next_batch_that_may_wake_somebody(driver: Driver, group: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        results: list[int] = []

        async def ride() -> None:
            results.append(await group.ride(lambda: Take(9)))

        nursery.start_soon(ride)
        await trio.testing.wait_all_tasks_blocked()
        await group.apply(Hold(1))
        assert results == []
        await group.apply(Wake(2))
        await trio.testing.wait_all_tasks_blocked()
        assert results == [9]
        await group.apply(Wake(3))
    assert driver.numbers == [[1], [2, 9], [3]]


async def test_a_rider_may_leave_until_its_batch_has_begun(driver: Driver, group: GroupCommit) -> None:
    results: list[int] = []

    async def ride(scope: trio.CancelScope) -> None:
        with scope:
            results.append(await group.ride(lambda: Take(9)))

    async with trio.open_nursery() as nursery:
        for begun in (False, True):
            scope = trio.CancelScope()
            nursery.start_soon(ride, scope)
            await trio.testing.wait_all_tasks_blocked()
            driver.shut()
            if begun:
                nursery.start_soon(group.apply, Wake(1))
                await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            driver.gate.set()
            await group.apply(Wake(2))
    assert results == [9]
    assert driver.numbers == [[2], [1, 9], [2]]


async def test_a_rider_that_was_cancelled_a_moment_ago_takes_nothing(driver: Driver, group: GroupCommit) -> None:
    taken: list[Take] = []

    def make() -> Take:
        taken.append(Take(9))
        return taken[-1]

    for _ in range(20):  # which task runs first, the rider's or the flusher's, is drawn
        async with trio.open_nursery() as nursery:
            driver.shut()
            nursery.start_soon(group.apply, Post(0))
            nursery.start_soon(group.ride, make)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            driver.gate.set()
            with trio.CancelScope(shield=True):
                await group.apply(Wake(1))
    assert taken == []


async def told(group: GroupCommit, op: Post, by: list[int]) -> None:
    by.append(await group.apply(op))


async def test_callers_are_told_while_the_next_batch_waits_for_the_disk(driver: Driver, group: GroupCommit) -> None:
    results: list[int] = []
    async with trio.open_nursery() as nursery:
        driver.shut()
        for n in (1, 2):
            nursery.start_soon(told, group, Post(n), results)
            await trio.testing.wait_all_tasks_blocked()
        driver.work, free, driver.gate = trio.Event(), driver.gate, trio.Event()
        free.set()
        while len(driver.batches) < 2:
            await trio.lowlevel.checkpoint()
        assert results == []  # the second batch is at work, and what the first caller does next would be in its way
        driver.work.set()
        await trio.testing.wait_all_tasks_blocked()
        assert results == [1]
        driver.gate.set()
    assert results == [1, 2]


async def test_a_batch_that_is_kept_waiting_keeps_nobody_of_the_one_before(
    driver: Driver, group: GroupCommit, autojump_clock: trio.testing.MockClock
) -> None:
    results: list[int] = []
    async with trio.open_nursery() as nursery:
        driver.shut()
        for n in (1, 2, 3):
            nursery.start_soon(told, group, Post(n), results)
            await trio.testing.wait_all_tasks_blocked(0.001)
        driver.work = trio.Event()
        driver.gate.set()
        await trio.sleep(2 * commit_module.TELL_SECONDS + 0.01)
        assert results == [1]
        driver.work.set()
    assert sorted(results) == [1, 2, 3]


async def test_callers_are_told_though_the_next_batch_fails(driver: Driver, group: GroupCommit) -> None:
    results: list[int] = []
    async with trio.open_nursery() as nursery:
        driver.shut()
        nursery.start_soon(told, group, Post(1), results)
        await trio.testing.wait_all_tasks_blocked()

        async def fails() -> None:
            with pytest.raises(StoreFull):
                await group.apply(Post(2))

        nursery.start_soon(fails)
        await trio.testing.wait_all_tasks_blocked()
        work, driver.work = driver.work, trio.Event()
        driver.gate.set()
        while len(driver.batches) < 2:
            await trio.lowlevel.checkpoint()
        driver.fault = StoreFull("no room")
        driver.work.set()
        work.set()
    assert results == [1]


async def test_a_rider_that_waits_learns_that_the_store_ends(driver: Driver, changes: Changes) -> None:
    group = GroupCommit(driver, changes)
    async with trio.open_nursery() as nursery, trio.open_nursery() as running:
        await running.start(group.run)

        async def ride() -> None:
            with pytest.raises(StoreDown):
                await group.ride(lambda: Take(9))

        nursery.start_soon(ride)
        await trio.testing.wait_all_tasks_blocked()
        running.cancel_scope.cancel()
    assert driver.numbers == []
