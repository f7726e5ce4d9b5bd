"""Group commit when somebody leaves or something ends: callers that are cancelled, stores that stop, drivers that break or hang."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from callboard.storage import commit as commit_module
from callboard.storage.changes import Aspect, Changes
from callboard.storage.commit import GroupCommit
from callboard.storage.model.errors import OutcomeUnknown, StoreDown
from callboard.storage.model.limits import BATCH_BYTES, COMMIT_SECONDS
from callboard.storage.store import Store
from callboard.tests.unit.commit_kit import Driver, Hold, Post, Take, behind


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


async def _run_in_a_scope(group: GroupCommit, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(group.run)
            task_status.started(scope)


async def test_an_op_whose_caller_leaves_before_it_begins_never_runs(driver: Driver, group: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as leaving:
            async with trio.open_nursery() as callers:
                await behind(callers, driver, group, Post(0))
                nursery.start_soon(group.apply, Post(1))
                await trio.testing.wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
        assert not leaving.cancelled_caught
        driver.gate.set()
    assert [0] not in driver.numbers
    assert driver.numbers == [[-1], [1]]


async def test_an_op_that_has_begun_commits_though_its_caller_left(
    driver: Driver, group: GroupCommit, changes: Changes
) -> None:
    told: list[int] = []
    driver.touched = {"session:a": Aspect.EVENTS}
    driver.shut()
    with changes.watch("session:a", told.append), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.apply, Post(0))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert group.committed == 0
    with changes.watch("session:a", told.append):
        driver.gate.set()
        await group.apply(Post(1))
    assert group.committed == 2
    assert told == [Aspect.EVENTS, Aspect.EVENTS]


async def test_a_caller_that_is_cancelled_already_sends_nothing(driver: Driver, group: GroupCommit) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await group.apply(Post(0))
    assert (driver.batches, group.depth) == ([], 0)


async def test_a_store_that_does_not_run_takes_no_op(driver: Driver, changes: Changes) -> None:
    group = GroupCommit(driver, changes)
    with pytest.raises(StoreDown):
        await group.apply(Post(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(group.run)
        assert await group.apply(Post(1)) == 1
        nursery.cancel_scope.cancel()
    for op in (Post(2), Hold(2), Take(2)):
        with pytest.raises(StoreDown):
            await group.apply(op)
    assert driver.numbers == [[1]]


async def test_the_end_commits_what_had_queued(driver: Driver, changes: Changes) -> None:
    group = GroupCommit(driver, changes)
    results: list[int] = []

    async def send(n: int) -> None:
        results.append(await group.apply(Post(n)))

    async with trio.open_nursery() as callers:
        running = await callers.start(_run_in_a_scope, group)
        driver.shut()
        for n in range(3):
            callers.start_soon(send, n)
            await trio.testing.wait_all_tasks_blocked()
        running.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert results == []
        driver.gate.set()
    assert sorted(results) == [0, 1, 2]
    assert driver.numbers == [[0], [1, 2]]


async def test_a_driver_that_breaks_ends_the_store_and_everybody_learns_it(driver: Driver, changes: Changes) -> None:
    group = GroupCommit(driver, changes)
    errors: list[type[BaseException]] = []

    async def send(op: Post) -> None:
        try:
            await group.apply(op)
        except StoreDown as error:
            errors.append(type(error))

    async with trio.open_nursery() as callers:
        with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
            async with trio.open_nursery() as running:
                await running.start(group.run)
                driver.shut()
                driver.fault = ZeroDivisionError()
                callers.start_soon(send, Post(0))
                await trio.testing.wait_all_tasks_blocked()
                for op in (Post(1, BATCH_BYTES), Post(2, BATCH_BYTES), Hold(3)):
                    callers.start_soon(send, op)
                await trio.testing.wait_all_tasks_blocked()
                driver.gate.set()
        await send(Post(4))
    assert errors == [StoreDown] * 5


async def test_a_driver_that_hangs_keeps_nobody_for_ever(
    driver: Driver, changes: Changes, autojump_clock: trio.testing.MockClock
) -> None:
    """Every wait has an end: for those in the hung batch, for those behind it, and for the end of the store."""
    group = GroupCommit(driver, changes)
    outcomes: list[str] = []

    async def send(op: Post) -> None:
        try:
            await group.apply(op)
        except (OutcomeUnknown, StoreDown) as error:
            outcomes.append(error.code)

    async with trio.open_nursery() as callers, trio.open_nursery() as running:
        await running.start(group.run)
        driver.shut()
        callers.start_soon(send, Post(0))
        await trio.testing.wait_all_tasks_blocked()
        for op in (Post(1), Hold(2), Take(3)):
            callers.start_soon(send, op)
        await trio.testing.wait_all_tasks_blocked()
        running.cancel_scope.cancel()
    assert len(outcomes) == 4
    assert outcomes[0] == "outcome_unknown"
    assert trio.current_time() <= 2 * commit_module.BATCH_SECONDS


async def test_settle_commits_for_a_caller_that_is_being_cancelled(driver: Driver) -> None:
    store = Store(driver)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await store.settle(Hold(1)) == 1
        nursery.cancel_scope.cancel()
    assert driver.numbers == [[1]]


async def test_settle_gives_up_after_its_time_and_says_that_it_does_not_know(
    driver: Driver, autojump_clock: trio.testing.MockClock
) -> None:
    store = Store(driver)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        driver.shut()
        began = trio.current_time()
        with pytest.raises(OutcomeUnknown):
            await store.settle(Hold(1))
        assert trio.current_time() - began == pytest.approx(COMMIT_SECONDS)
        driver.gate.set()
        assert await store.settle(Hold(2)) == 2
        nursery.cancel_scope.cancel()
    # It had begun, so it was committed all the same: whoever asks for it again must be told the first result.
    assert driver.numbers == [[1], [2]]
    assert store.statistics() == {"depth": 0, "committed": 2, "batches": 2}
