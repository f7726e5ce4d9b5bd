"""What does not end as asked: interrupts that pass through, children that outlive their cancel."""

import pytest
import trio
from trio.testing import MockClock

from callboard.supervisors.tree import (
    Child,
    ChildSpec,
    DynamicSupervisor,
    State,
    Stopping,
    Stuck,
    Supervisor,
    TreeEvent,
    open_tree,
)

Log = list[str]


def sleeper(name: str, log: Log) -> ChildSpec:
    async def start() -> None:
        log.append(f"+{name}")
        try:
            await trio.sleep_forever()
        finally:
            log.append(f"-{name}")

    return ChildSpec(name, start)


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


async def test_an_interrupt_below_leaves_everybody_their_grace(autojump_clock: MockClock) -> None:
    log: Log = []

    async def polite(*, child: Child) -> None:
        await child.stopping.wait()
        await trio.sleep(3)
        log.append(f"finished at {trio.current_time():g}")

    async def interrupted() -> None:
        await trio.sleep(1)
        raise KeyboardInterrupt

    pool = DynamicSupervisor("pool")
    low = Supervisor("low", [ChildSpec("polite", polite, cooperative=True), pool.spec()])

    async def run() -> None:
        async with open_tree(Supervisor("root", [ChildSpec("polite", polite, cooperative=True), low.spec()])):
            pool.start("polite", polite, cooperative=True)
            pool.start("interrupted", interrupted)
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup):
        await run()
    assert log == ["finished at 4", "finished at 7", "finished at 10"]


async def test_after_an_interrupt_no_further_child_is_started() -> None:
    async def interrupted(*, task_status: trio.TaskStatus[None]) -> None:
        raise KeyboardInterrupt

    # Which of the two tasks that the interrupt wakes is first is Trio's chance: so more than once.
    for _ in range(8):
        events: list[TreeEvent] = []
        children = [ChildSpec("interrupted", interrupted), sleeper("after", [])]
        with pytest.raises(BaseExceptionGroup):
            await Supervisor("root", children, observer=events.append).run()
        assert events == []


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_interrupt_in_the_midst_of_stopping_leaves_no_child_behind(cancelled: bool) -> None:
    log: Log = []

    def observer(event: TreeEvent) -> None:
        if isinstance(event, Stopping):
            raise KeyboardInterrupt

    supervisor = Supervisor("root", [sleeper(name, log) for name in "abc"], observer=observer)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            nursery.cancel_scope.cancel() if cancelled else supervisor.stop()

    with trio.fail_after(5), pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert sorted(log[3:]) == ["-a", "-b", "-c"]


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


async def test_a_grace_that_is_cut_short_brings_the_report_forward(autojump_clock: MockClock) -> None:
    events: list[TreeEvent] = []

    async def stubborn(*, child: Child) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 100):
            await trio.sleep_forever()

    spec = ChildSpec("stubborn", stubborn, grace_seconds=60, cooperative=True)
    times: list[float] = []

    def observer(event: TreeEvent) -> None:
        events.append(event)
        times.append(trio.current_time())

    with trio.move_on_after(7):
        async with open_tree(Supervisor("root", [spec], stuck_seconds=2, observer=observer)):
            pass
    assert times[events.index(Stuck("root", "stubborn", 9))] == 9


async def test_a_stuck_sibling_is_never_started_beside_itself(autojump_clock: MockClock) -> None:
    log: Log = []
    crash, release = trio.Event(), trio.Event()

    async def stubborn() -> None:
        log.append("+stubborn")
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
            await release.wait()
        log.append("-stubborn")
        await trio.sleep_forever()

    async def crashing() -> None:
        await crash.wait()
        if not release.is_set():
            raise ValueError
        await trio.sleep_forever()

    children = [ChildSpec("crashing", crashing), ChildSpec("stubborn", stubborn)]
    async with open_tree(Supervisor("root", children, strategy="one_for_all", stuck_seconds=2)) as tree:
        crash.set()
        await trio.sleep(50)
        assert [node.state for node in tree.snapshot().children] == ["backing-off", "stuck"]
        assert log == ["+stubborn"]
        release.set()
        await trio.sleep(1)
        assert [node.state for node in tree.snapshot().children] == ["running", "running"]
        assert log[:3] == ["+stubborn", "-stubborn", "+stubborn"]
