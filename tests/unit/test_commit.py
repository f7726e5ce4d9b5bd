"""Group commit over a driver that does as it is told: what shares a batch, who goes first, and what becomes of those who leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import pytest
import trio
import trio.testing

from callboard.storage import commit as commit_module
from callboard.storage.changes import Aspect, Changes
from callboard.storage.commit import Applied, Failure, GroupCommit
from callboard.storage.model.errors import Busy, MailboxFull, OutcomeUnknown, StoreDown, StoreFull
from callboard.storage.model.limits import BATCH_BYTES, BATCH_OPS
from callboard.storage.ops.base import Lane, Op
from callboard.storage.store import Store


@attrs.frozen
class Post(Op[int]):
    number: int = 0
    weight: int = 1

    @property
    def size(self) -> int:
        return self.weight


@attrs.frozen
class Take(Post):
    lane: ClassVar[Lane] = Lane.CLAIMS


@attrs.frozen
class Hold(Post):
    lane: ClassVar[Lane] = Lane.HOLDERS


class Driver:
    """Keeps every batch, waits at `gate`, and answers each op with its number."""

    name = "test"
    migrated: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.batches: list[list[Post]] = []
        self.gate = trio.Event()
        self.gate.set()
        self.fault: Exception | None = None
        self.touched: dict[str, int] = {}
        self.refuse: Callable[[Post], bool] = lambda op: False

    async def apply(self, ops: Sequence[Op[Any]]) -> Applied:
        batch = [op for op in ops if isinstance(op, Post)]
        self.batches.append(batch)
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return Applied([Failure(MailboxFull("no")) if self.refuse(op) else op.number for op in batch], self.touched)

    def shut(self) -> None:
        self.gate = trio.Event()

    @property
    def numbers(self) -> list[list[int]]:
        return [[op.number for op in batch] for batch in self.batches]

    def now(self) -> float:
        return 0.0

    def announce(self, url: str) -> None:
        raise NotImplementedError

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Any]]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


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


async def behind(nursery: trio.Nursery, driver: Driver, group: GroupCommit, *ops: Post) -> None:
    """Start a first op whose batch waits at the gate, then `ops`, in this order, behind it."""
    driver.shut()
    nursery.start_soon(group.apply, Post(-1))
    await trio.testing.wait_all_tasks_blocked()
    for op in ops:
        nursery.start_soon(group.apply, op)
        await trio.testing.wait_all_tasks_blocked()


async def _run_in_a_scope(group: GroupCommit, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(group.run)
            task_status.started(scope)


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
        with pytest.RaisesGroup(ZeroDivisionError):
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
            await store.settle(Hold(1), seconds=10)
        assert trio.current_time() - began == pytest.approx(10)
        driver.gate.set()
        assert await store.settle(Hold(2), seconds=10) == 2
        nursery.cancel_scope.cancel()
    # It had begun, so it was committed all the same: whoever asks for it again must be told the first result.
    assert driver.numbers == [[1], [2]]
    assert store.statistics() == {"depth": 0, "committed": 2, "batches": 2}
