"""What a snapshot shows: every state, restarts, times and subtrees."""

import pytest
import trio
from trio.testing import MockClock

from callboard.supervisors.tree import (
    Backoff,
    Child,
    ChildSpec,
    DynamicSupervisor,
    Intensity,
    IntensityExceeded,
    Kind,
    Node,
    State,
    Supervisor,
    open_tree,
)


class Stepper:
    """A child that goes through every state when told to."""

    def __init__(self) -> None:
        self.come_up = trio.Event()
        self.crash = trio.Event()
        self.release = trio.Event()

    async def start(self, *, task_status: trio.TaskStatus[None], child: Child) -> None:
        await self.come_up.wait()
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_stopped, child, nursery.cancel_scope)
            await self.crash.wait()
            self.crash = trio.Event()
            raise ValueError("crash")

    async def _until_stopped(self, child: Child, scope: trio.CancelScope) -> None:
        await child.stopping.wait()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
            await self.release.wait()
        scope.cancel()


@pytest.mark.spec("RT-2")
async def test_a_child_is_seen_in_every_state_since_when(autojump_clock: MockClock) -> None:
    wall = 1_700_000_000.0
    child = Stepper()
    supervisor = Supervisor(
        "root",
        [ChildSpec("child", child.start, grace_seconds=3, cooperative=True)],
        backoff=Backoff(first_seconds=10),
        stuck_seconds=2,
        clock=lambda: wall + trio.current_time(),
        random=lambda: 0.0,
    )
    seen: list[tuple[str, float, int]] = []

    async def look(seconds: float) -> None:
        await trio.sleep(seconds)
        (node,) = supervisor.snapshot().children
        assert (node.name, node.kind, node.children, node.total) == ("child", Kind.WORKER, (), 0)
        seen.append((node.state, node.since - wall, node.restarts))

    assert supervisor.snapshot().state is State.STOPPED
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await look(1)
        assert supervisor.snapshot().state is State.STARTING
        child.come_up.set()
        await look(1)
        assert supervisor.snapshot().state is State.RUNNING
        child.crash.set()
        await look(1)
        await look(20)
        supervisor.stop()
        await look(1)
        assert supervisor.snapshot().state is State.STOPPING
        await look(5)
        child.release.set()
    await look(1)
    assert supervisor.snapshot().state is State.STOPPED
    assert seen == [
        ("starting", 0, 0),
        ("running", 1, 0),
        ("backing-off", 2, 0),
        ("running", 12, 1),
        ("stopping", 23, 1),
        ("stuck", 28, 1),
        ("stopped", 29, 1),
    ]


@pytest.mark.spec("RT-2")
async def test_a_supervisor_that_gave_up_and_its_child_have_failed() -> None:
    async def broken() -> None:
        raise ValueError

    supervisor = Supervisor("root", [ChildSpec("broken", broken)], intensity=Intensity(restarts=0), clock=lambda: 7.0)
    with pytest.raises(IntensityExceeded):
        await supervisor.run()
    child = Node("broken", Kind.WORKER, State.FAILED, 0, 7.0)
    assert supervisor.snapshot() == Node("root", Kind.SUPERVISOR, State.FAILED, 0, 7.0, (child,), 1)


async def test_subtrees_are_shown_below_the_child_that_runs_them() -> None:
    jobs = DynamicSupervisor("jobs", listed=2, clock=lambda: 3.0)
    inner = Supervisor("inner", [jobs.spec()], clock=lambda: 2.0)
    async with open_tree(Supervisor("root", [inner.spec()], clock=lambda: 1.0)) as tree:
        for number in range(5):
            jobs.start(f"job-{number}", trio.sleep_forever)
        listed = tuple(Node(f"job-{number}", Kind.WORKER, State.RUNNING, 0, 3.0) for number in range(2))
        jobs_node = Node("jobs", Kind.SUPERVISOR, State.RUNNING, 0, 2.0, listed, 5)
        inner_node = Node("inner", Kind.SUPERVISOR, State.RUNNING, 0, 1.0, (jobs_node,), 1)
        assert tree.snapshot() == Node("root", Kind.SUPERVISOR, State.RUNNING, 0, 1.0, (inner_node,), 1)
