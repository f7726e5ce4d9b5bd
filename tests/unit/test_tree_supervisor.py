"""Starting, stopping and ending a supervisor: orders, graces, cancellations."""

import math
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import (
    Child,
    ChildSpec,
    Exit,
    Exited,
    Intensity,
    IntensityExceeded,
    StartFailed,
    State,
    Stopping,
    Stuck,
    Supervisor,
    TreeEvent,
    open_tree,
)

Log = list[str]
Start = Callable[[], Awaitable[None]]


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
async def test_children_start_in_order_and_wait_for_started() -> None:
    log: Log = []
    bound = trio.Event()

    async def listener(*, task_status: trio.TaskStatus[None]) -> None:
        log.append("binding")
        await bound.wait()
        log.append("bound")
        task_status.started()
        await trio.sleep_forever()

    supervisor = Supervisor("root", [sleeper("a", log), ChildSpec("listener", listener), sleeper("b", log)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        assert log == ["+a", "binding"]
        bound.set()
        await wait_all_tasks_blocked()
        assert log == ["+a", "binding", "bound", "+b"]
        supervisor.stop()


@pytest.mark.spec("RT-2")
async def test_children_stop_in_reverse_order_one_after_the_other(autojump_clock: MockClock) -> None:
    log: Log = []
    async with open_tree(Supervisor("root", [sleeper(name, log, cleanup=1) for name in "abc"])):
        assert log == ["+a", "+b", "+c"]
    assert log == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert trio.current_time() == 3


@pytest.mark.spec("RT-2")
async def test_a_failed_first_start_stops_the_started_ones_in_reverse_and_names_the_child() -> None:
    log: Log = []

    async def broken(*, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("port taken")

    children = [sleeper("a", log), sleeper("b", log), ChildSpec("broken", broken), sleeper("c", log)]
    supervisor = Supervisor("root", children)
    with pytest.raises(StartFailed, match="root: child 'broken' failed to start: OSError: port taken") as caught:
        async with open_tree(supervisor):
            pytest.fail("the block was entered")
    assert (caught.value.supervisor, caught.value.child) == ("root", "broken")
    assert isinstance(caught.value.__cause__, OSError)
    assert log == ["+a", "+b", "-b", "-a"]
    assert [node.state for node in supervisor.snapshot().children] == ["stopped", "stopped", "failed", "stopped"]


async def test_a_child_that_returns_before_it_reported_its_start_has_failed_to_start() -> None:
    async def forgetful(*, task_status: trio.TaskStatus[None]) -> None: ...

    with pytest.raises(StartFailed, match="returned before it had reported its start"):
        await Supervisor("root", [ChildSpec("forgetful", forgetful)]).run()


async def test_started_twice_is_refused_as_in_trio() -> None:
    async def eager(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        task_status.started()

    with pytest.raises(IntensityExceeded, match="called 'started' twice"):
        await Supervisor("root", [ChildSpec("eager", eager)], intensity=Intensity(restarts=0)).run()


async def test_a_stop_is_honoured_while_a_child_never_comes_up() -> None:
    async def never(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep_forever()

    supervisor = Supervisor("root", [ChildSpec("never", never)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        assert supervisor.snapshot().state is State.STARTING
        supervisor.stop()
    assert supervisor.snapshot().state is State.STOPPED


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
async def test_a_brutal_stop_gives_no_grace(autojump_clock: MockClock) -> None:
    log: Log = []
    async with open_tree(Supervisor("root", [polite("a", log, needs=1, grace=0)])):
        pass
    assert log == ["+a", "-a at 0"]


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), BaseExceptionGroup("", [KeyboardInterrupt()])])
async def test_what_is_no_exception_stops_the_others_and_goes_on(error: BaseException) -> None:
    log: Log = []
    go = trio.Event()

    async def interrupted() -> None:
        await go.wait()
        raise error

    children = [sleeper("a", log), ChildSpec("interrupted", interrupted), sleeper("b", log)]
    supervisor = Supervisor("root", children)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            go.set()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    leaves = caught.value.subgroup((KeyboardInterrupt, SystemExit))
    assert leaves is not None
    assert caught.value.split((KeyboardInterrupt, SystemExit))[1] is None
    assert log == ["+a", "+b", "-b", "-a"]


async def test_a_child_that_outlives_its_cancel_is_reported_and_holds_nobody_but_the_end(
    autojump_clock: MockClock,
) -> None:
    log: Log = []
    release = trio.Event()
    events: list[TreeEvent] = []

    async def stubborn() -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
            await release.wait()

    children = [sleeper("a", log), ChildSpec("stubborn", stubborn, grace_seconds=2), sleeper("b", log)]
    supervisor = Supervisor("root", children, stuck_seconds=3, observer=events.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.stop()
        await trio.sleep(4.9)
        assert log[2:] == ["-b"]
        await trio.sleep(0.2)
        assert Stuck("root", "stubborn", 5) in events
        assert log[2:] == ["-b", "-a"]
        assert supervisor.snapshot().children[1].state is State.STUCK
        await trio.sleep(20)
        assert supervisor.snapshot().state is State.STOPPING
        release.set()
    assert trio.current_time() == pytest.approx(25.1)
    assert [event for event in events if isinstance(event, Stuck)] == [Stuck("root", "stubborn", 5)]
    assert supervisor.snapshot().children[1].state is State.STOPPED


async def test_a_stuck_child_is_also_reported_when_the_stop_comes_from_outside(autojump_clock: MockClock) -> None:
    events: list[TreeEvent] = []

    async def stubborn() -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
            await trio.sleep_forever()

    spec = ChildSpec("stubborn", stubborn, grace_seconds=0)
    supervisor = Supervisor("root", [spec], stuck_seconds=3, observer=events.append)
    with trio.move_on_after(1):
        await supervisor.run()
    assert Stuck("root", "stubborn", 3) in events
    assert trio.current_time() == 30


async def test_errors_while_stopping_are_told_and_change_nothing() -> None:
    events: list[TreeEvent] = []
    error = ValueError("could not say goodbye")

    async def rude(*, child: Child) -> None:
        await child.stopping.wait()
        raise error

    async with open_tree(Supervisor("root", [ChildSpec("rude", rude, cooperative=True)], observer=events.append)):
        pass
    assert events[-1] == Exited("root", "rude", Exit.SHUTDOWN, error)
