"""Starting a supervisor: order, reports of a start, first failures."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

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


async def test_a_start_reported_after_the_stop_was_asked_for_no_longer_counts() -> None:
    states: list[State] = []
    events: list[TreeEvent] = []

    async def late(*, task_status: trio.TaskStatus[None], child: Child) -> None:
        await child.stopping.wait()
        task_status.started()
        states.append(supervisor.snapshot().children[0].state)

    supervisor = Supervisor("root", [ChildSpec("late", late, cooperative=True)], observer=events.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        supervisor.stop()
    assert states == [State.STOPPING]
    assert events == [Stopping("root", "late"), Exited("root", "late", Exit.SHUTDOWN, None)]
