"""Stopping children that come and go: one, all, and those that will not."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import (
    AlreadyRunning,
    Child,
    DynamicSupervisor,
    State,
    Stuck,
    Supervisor,
    TreeEvent,
    open_tree,
)


async def polite(log: list[str], needs: float, *, child: Child) -> None:
    try:
        await child.stopping.wait()
        await trio.sleep(needs)
        log.append(f"{child.name} finished")
    finally:
        log.append(f"{child.name} gone at {trio.current_time():g}")


async def shielded(release: trio.Event) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
        await release.wait()


async def test_stop_asks_the_cooperative_and_cancels_the_others(autojump_clock: MockClock) -> None:
    log: list[str] = []
    events: list[TreeEvent] = []
    pool = DynamicSupervisor("pool", grace_seconds=4, observer=events.append)
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("plain", trio.sleep_forever)
        pool.start("quick", polite, log, 2, cooperative=True)
        pool.start("slow", polite, log, 9, cooperative=True)
        await trio.sleep(1)
        assert all(pool.stop(name) for name in ("plain", "quick", "slow", "slow"))
        assert not pool.stop("unknown")
        await pool.wait_ended("plain")
        assert trio.current_time() == 1
        assert {node.state for node in pool.snapshot().children} == {State.STOPPING}
        await pool.wait_ended("slow")
        assert log == ["quick finished", "quick gone at 3", "slow gone at 5"]
        await trio.sleep(60)
    assert events == []


async def test_all_are_stopped_at_the_same_time_within_one_grace(autojump_clock: MockClock) -> None:
    log: list[str] = []
    pool = DynamicSupervisor("pool", grace_seconds=4)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            for name, needs in (("a", 3), ("b", 3), ("c", 9)):
                pool.start(name, polite, log, needs, cooperative=True)
            await wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert trio.current_time() == 4
    assert sorted(log) == ["a finished", "a gone at 3", "b finished", "b gone at 3", "c gone at 4"]


async def test_a_cancellation_while_it_stops_cuts_the_grace_short(autojump_clock: MockClock) -> None:
    log: list[str] = []
    pool = DynamicSupervisor("pool", grace_seconds=60)
    with trio.move_on_after(5):
        async with open_tree(Supervisor("root", [pool.spec()])):
            pool.start("slow", polite, log, 50, cooperative=True)
            await wait_all_tasks_blocked()
    assert log == ["slow gone at 5"]


async def test_a_child_that_outlives_its_stop_is_reported_once_and_keeps_its_name(autojump_clock: MockClock) -> None:
    events: list[TreeEvent] = []
    release = trio.Event()
    pool = DynamicSupervisor("pool", grace_seconds=1, stuck_seconds=2, observer=events.append)
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("a", shielded, release)
        await wait_all_tasks_blocked()
        pool.stop("a")
        await trio.sleep(2.9)
        assert events == []
        await trio.sleep(0.2)
        assert events == [Stuck("pool", "a", 3)]
        assert [node.state for node in pool.snapshot().children] == [State.STUCK]
        with pytest.raises(AlreadyRunning):
            pool.start("a", trio.sleep_forever)
        release.set()
        await pool.wait_ended("a")
    assert len(events) == 1


async def test_a_stuck_child_holds_the_end_and_is_reported_at_shutdown(autojump_clock: MockClock) -> None:
    events: list[TreeEvent] = []
    release = trio.Event()
    pool = DynamicSupervisor("pool", grace_seconds=1, stuck_seconds=2, observer=events.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        pool.start("a", shielded, release)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
            await trio.sleep(30)
            assert events == [Stuck("pool", "a", 3)]
            release.set()
    assert trio.current_time() == 30
    assert pool.count == 0


async def test_an_interrupt_in_a_child_stops_the_others_and_goes_on() -> None:
    log: list[str] = []

    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def run() -> None:
        pool = DynamicSupervisor("pool")
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            pool.start("polite", polite, log, 0, cooperative=True)
            pool.start("interrupted", interrupted)

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert log[0] == "polite finished"


async def test_a_brutal_stop_asks_nobody() -> None:
    log: list[str] = []

    async def willing(*, child: Child) -> None:
        try:
            await child.stopping.wait()
            log.append("asked")
        finally:
            log.append("gone")

    pool = DynamicSupervisor("pool", grace_seconds=0)
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("willing", willing, cooperative=True)
        await wait_all_tasks_blocked()
    assert log == ["gone"]


async def test_an_interrupt_in_the_midst_of_stopping_leaves_no_child_behind() -> None:
    interrupted = False

    def clock() -> float:
        if interrupted:
            raise KeyboardInterrupt
        return 0.0

    pool = DynamicSupervisor("pool", clock=clock)

    async def run() -> None:
        nonlocal interrupted
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            pool.start("a", trio.sleep_forever)
            pool.start("b", trio.sleep_forever)
            interrupted = True
            nursery.cancel_scope.cancel()

    with pytest.raises(BaseExceptionGroup):
        await run()
    assert pool.count == 0
