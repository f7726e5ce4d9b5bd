"""Giving up: after how many restarts, in which order, and what stands above it."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import (
    Backoff,
    ChildSpec,
    Escalated,
    Exit,
    Exited,
    Intensity,
    IntensityExceeded,
    Restarting,
    Started,
    StartFailed,
    Supervisor,
    TreeEvent,
    open_tree,
)

AT_ONCE = Backoff(base_seconds=0)


def sleeper(name: str, log: list[str]) -> ChildSpec:
    async def start() -> None:
        try:
            await trio.sleep_forever()
        finally:
            log.append(f"-{name}")

    return ChildSpec(name, start)


def failing(name: str, starts: list[float], *, after: float = 0.0) -> ChildSpec:
    async def start() -> None:
        starts.append(trio.current_time())
        await trio.sleep(after)
        raise ValueError(f"{name} broke")

    return ChildSpec(name, start)


@pytest.mark.spec("RT-2")
async def test_the_sixth_restart_in_thirty_seconds_stops_all_and_names_child_and_cause(
    autojump_clock: MockClock,
) -> None:
    log: list[str] = []
    starts: list[float] = []
    events: list[TreeEvent] = []
    children = [sleeper("a", log), failing("bad", starts, after=1), sleeper("b", log)]
    supervisor = Supervisor("root", children, backoff=AT_ONCE, observer=events.append)
    with pytest.raises(IntensityExceeded) as caught:
        await supervisor.run()
    error = caught.value
    assert (error.supervisor, error.child, error.restarts, error.period_seconds) == ("root", "bad", 5, 30.0)
    assert str(error) == "root: child 'bad' needed more than 5 restarts in 30 s: ValueError: bad broke"
    assert isinstance(error.__cause__, ValueError)
    assert starts == [0, 1, 2, 3, 4, 5]
    assert log == ["-b", "-a"]
    assert [event for event in events if isinstance(event, Escalated)] == [Escalated("root", "bad", error)]
    assert supervisor.snapshot().state == "failed"
    assert [node.state for node in supervisor.snapshot().children] == ["stopped", "failed", "stopped"]


@pytest.mark.spec("RT-2")
async def test_restarts_slower_than_the_limit_go_on(autojump_clock: MockClock) -> None:
    starts: list[float] = []
    supervisor = Supervisor("root", [failing("bad", starts, after=6.1)], backoff=AT_ONCE)
    with trio.move_on_after(610):
        await supervisor.run()
    assert len(starts) == 100


async def test_the_restarts_of_all_children_count_together(autojump_clock: MockClock) -> None:
    starts: list[float] = []
    children = [failing("x", starts, after=1), failing("y", starts, after=1.25)]
    with pytest.raises(IntensityExceeded):
        await Supervisor("root", children, backoff=AT_ONCE).run()
    # Two first starts and five restarts.
    assert len(starts) == 7


async def test_a_permanent_child_that_keeps_returning_has_no_cause() -> None:
    async def returns() -> None: ...

    supervisor = Supervisor("root", [ChildSpec("returns", returns)], intensity=Intensity(restarts=1))
    with pytest.raises(IntensityExceeded, match="it returned") as caught:
        await supervisor.run()
    assert caught.value.__cause__ is None


@pytest.mark.spec("RT-2")
async def test_escalation_climbs_two_levels_and_each_level_tries_again(autojump_clock: MockClock) -> None:
    log: list[str] = []
    starts: list[float] = []
    events: list[TreeEvent] = []
    once = Intensity(restarts=1)
    low = Supervisor(
        "low", [sleeper("a", log), failing("leaf", starts)], intensity=once, backoff=AT_ONCE, observer=events.append
    )
    mid = Supervisor("mid", [sleeper("b", log), low.spec()], intensity=once, backoff=AT_ONCE, observer=events.append)
    top = Supervisor("top", [sleeper("c", log), mid.spec()], intensity=once, backoff=AT_ONCE, observer=events.append)
    with pytest.raises(IntensityExceeded) as caught:
        await top.run()
    # Each of three levels runs what is below it twice.
    assert len(starts) == 2 * 2 * 2
    assert log == ["-a", "-a", "-b", "-a", "-a", "-b", "-c"]
    names: list[str] = []
    cause: BaseException | None = caught.value
    while isinstance(cause, IntensityExceeded):
        names.append(f"{cause.supervisor}/{cause.child}")
        cause = cause.__cause__
    assert names == ["top/mid", "mid/low", "low/leaf"]
    assert isinstance(cause, ValueError)
    assert [event.supervisor for event in events if isinstance(event, Escalated)][-3:] == ["low", "mid", "top"]
    assert sum(isinstance(event, Restarting) and event.supervisor == "mid" for event in events) == 2


async def test_a_nested_supervisor_that_cannot_start_fails_the_start_of_the_upper_one() -> None:
    async def broken(*, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("no disk")

    log: list[str] = []
    low = Supervisor("low", [ChildSpec("broken", broken)])
    with pytest.raises(StartFailed, match="top: child 'low' failed to start: StartFailed: low: child 'broken'"):
        await Supervisor("top", [sleeper("a", log), low.spec()]).run()
    assert log == ["-a"]


async def test_a_group_of_exceptions_is_one_abnormal_exit() -> None:
    events: list[TreeEvent] = []
    again = trio.Event()

    async def part(fail: trio.Event) -> None:
        await fail.wait()
        raise ValueError("part broke")

    async def several() -> None:
        if events.count(Started("root", "several", 1)):
            again.set()
            await trio.sleep_forever()
        fail = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(part, fail)
            await wait_all_tasks_blocked()
            fail.set()

    async with open_tree(Supervisor("root", [ChildSpec("several", several)], observer=events.append)):
        await again.wait()
    exits = [event for event in events if isinstance(event, Exited)]
    assert [event.exit for event in exits] == [Exit.ABNORMAL, Exit.SHUTDOWN]
    assert "3 sub-exceptions" in str(exits[0].error)
    assert sum(isinstance(event, Restarting) for event in events) == 1
