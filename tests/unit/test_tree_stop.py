"""Stopping a supervisor: orders, graces, cancellations from outside."""

import math

import pytest
import trio
from trio.testing import MockClock

from callboard.supervisors.tree import (
    Backoff,
    Child,
    ChildSpec,
    DynamicSupervisor,
    Exit,
    Exited,
    Stopping,
    Supervisor,
    TreeEvent,
    open_tree,
)

Log = list[str]


def sleeper(name: str, log: Log, *, cleanup: float = 0.0) -> ChildSpec:
    """A child that is not cooperative; it may take its time to clean up."""

    async def start() -> None:
        log.append(f"+{name}")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + cleanup + 1):
                await trio.sleep(cleanup)
            log.append(f"-{name}")

    return ChildSpec(name, start)


def polite(name: str, log: Log, *, needs: float, grace: float) -> ChildSpec:
    """A cooperative child that needs some seconds to finish after it was asked."""

    async def start(*, child: Child) -> None:
        log.append(f"+{name}")
        try:
            await child.stopping.wait()
            await trio.sleep(needs)
            log.append(f"finished {name}")
        finally:
            log.append(f"-{name} at {trio.current_time():g}")

    return ChildSpec(name, start, grace_seconds=grace, cooperative=True)


@pytest.mark.spec("RT-2")
async def test_children_stop_in_reverse_order_one_after_the_other(autojump_clock: MockClock) -> None:
    log: Log = []
    async with open_tree(Supervisor("root", [sleeper(name, log, cleanup=1) for name in "abc"])):
        assert log == ["+a", "+b", "+c"]
    assert log == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert trio.current_time() == 3


@pytest.mark.spec("RT-2")
async def test_a_cooperative_child_is_asked_and_cancelled_only_after_its_grace(autojump_clock: MockClock) -> None:
    log: Log = []
    children = [polite("slow", log, needs=10, grace=3), polite("quick", log, needs=2, grace=3)]
    events: list[TreeEvent] = []
    async with open_tree(Supervisor("root", children, observer=events.append)):
        pass
    assert log == ["+slow", "+quick", "finished quick", "-quick at 2", "-slow at 5"]
    # Both ended because they were asked to: neither is abnormal.
    assert [event for event in events if isinstance(event, Stopping | Exited)] == [
        Stopping("root", "quick"),
        Exited("root", "quick", Exit.SHUTDOWN, None),
        Stopping("root", "slow"),
        Exited("root", "slow", Exit.SHUTDOWN, None),
    ]


@pytest.mark.spec("RT-2")
async def test_a_brutal_stop_asks_nobody() -> None:
    log: Log = []

    async def willing(*, child: Child) -> None:
        try:
            await child.stopping.wait()
            log.append("asked")
        finally:
            log.append("gone")

    async with open_tree(Supervisor("root", [ChildSpec("willing", willing, grace_seconds=0, cooperative=True)])):
        pass
    assert log == ["gone"]


@pytest.mark.spec("RT-2")
async def test_a_cancellation_from_outside_stops_in_reverse_order_within_the_graces(autojump_clock: MockClock) -> None:
    log: Log = []
    children = [sleeper("a", log), polite("b", log, needs=2, grace=5), polite("c", log, needs=9, grace=4)]
    supervisor = Supervisor("root", children)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            scope.cancel()
    assert scope.cancelled_caught
    assert log == ["+a", "+b", "+c", "-c at 4", "finished b", "-b at 6", "-a"]


async def test_a_cancellation_while_it_stops_cuts_the_graces_short(autojump_clock: MockClock) -> None:
    log: Log = []
    supervisor = Supervisor("root", [polite(name, log, needs=50, grace=60) for name in "ab"])
    with trio.move_on_after(7):
        async with open_tree(supervisor):
            pass
    assert trio.current_time() == 7
    assert sorted(log[2:]) == ["-a at 7", "-b at 7"]


async def test_graces_cut_short_above_are_cut_short_below(autojump_clock: MockClock) -> None:
    log: Log = []
    inner = Supervisor("inner", [polite("a", log, needs=50, grace=60)])
    pool = DynamicSupervisor("pool", grace_seconds=60)
    job = polite("b", log, needs=50, grace=60).start
    # The cancellation comes while `last` is waited for: the two before it have not even been asked.
    supervisor = Supervisor("root", [inner.spec(), pool.spec(), polite("last", log, needs=50, grace=60)])
    with trio.move_on_after(7):
        async with open_tree(supervisor):
            pool.start("b", job, cooperative=True)
            await trio.sleep(1)
    assert trio.current_time() == 7
    assert sorted(log[3:]) == ["-a at 7", "-b at 7", "-last at 7"]


async def test_a_brutal_stop_reaches_the_children_below(autojump_clock: MockClock) -> None:
    log: Log = []
    inner = Supervisor("inner", [polite("a", log, needs=50, grace=60)])
    pool = DynamicSupervisor("pool", grace_seconds=60)
    job = polite("b", log, needs=50, grace=60).start
    async with open_tree(Supervisor("root", [inner.spec(grace_seconds=0), pool.spec(grace_seconds=0)])):
        pool.start("b", job, cooperative=True)
        await trio.sleep(1)
    assert log == ["+a", "+b", "-b at 1", "-a at 1"]


async def test_the_grace_of_a_nested_supervisor_cuts_short_those_of_its_children(autojump_clock: MockClock) -> None:
    log: Log = []
    inner = Supervisor("inner", [polite(name, log, needs=50, grace=60) for name in "ab"])
    async with open_tree(Supervisor("root", [inner.spec(grace_seconds=7)])):
        pass
    assert trio.current_time() == 7


async def test_an_endless_grace_waits_for_the_children_below(autojump_clock: MockClock) -> None:
    log: Log = []
    inner = Supervisor("inner", [polite(name, log, needs=50, grace=60) for name in "ab"])
    async with open_tree(Supervisor("root", [inner.spec(grace_seconds=math.inf)])):
        pass
    assert trio.current_time() == 100


async def test_errors_while_stopping_are_told_and_change_nothing() -> None:
    events: list[TreeEvent] = []
    error = ValueError("could not say goodbye")

    async def rude(*, child: Child) -> None:
        await child.stopping.wait()
        raise error

    async with open_tree(Supervisor("root", [ChildSpec("rude", rude, cooperative=True)], observer=events.append)):
        pass
    assert events[-1] == Exited("root", "rude", Exit.SHUTDOWN, error)


@pytest.mark.spec("RT-2")
async def test_a_stop_request_during_a_long_back_off_is_honoured_at_once(autojump_clock: MockClock) -> None:
    log: Log = []
    crash = trio.Event()

    async def crashing() -> None:
        await crash.wait()
        raise ValueError

    children = [ChildSpec("crashing", crashing), sleeper("a", log)]
    supervisor = Supervisor("root", children, backoff=Backoff(first_seconds=1000, cap_seconds=1000))
    async with open_tree(supervisor) as tree:
        crash.set()
        await trio.sleep(1)
        assert [node.state for node in tree.snapshot().children] == ["backing-off", "running"]
        tree.stop()
    assert trio.current_time() == 1
    assert log == ["+a", "-a"]
    assert [node.state for node in supervisor.snapshot().children] == ["stopped", "stopped"]
