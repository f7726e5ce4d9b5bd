"""Children that come and go: names, bounds, failures that harm nobody, and stopping them."""

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import (
    AlreadyRunning,
    Child,
    ChildSpec,
    DynamicSupervisor,
    Intensity,
    NotRunning,
    State,
    Supervisor,
    TooManyChildren,
    TreeEvent,
    open_tree,
)


async def fail(message: str) -> None:
    raise ValueError(message)


async def polite(log: list[str], needs: float, *, child: Child) -> None:
    try:
        await child.stopping.wait()
        await trio.sleep(needs)
        log.append(f"{child.name} finished")
    finally:
        log.append(f"{child.name} gone at {trio.current_time():g}")


@pytest.mark.spec("RT-3")
async def test_a_hundred_failures_in_a_moment_escalate_nothing_and_are_all_told() -> None:
    failures: dict[str, str] = {}
    events: list[TreeEvent] = []
    pool = DynamicSupervisor("pool", on_failure=lambda name, error: failures.update({name: str(error)}))
    sibling = ChildSpec("sibling", trio.sleep_forever)
    supervisor = Supervisor("root", [sibling, pool.spec()], intensity=Intensity(restarts=0), observer=events.append)
    async with open_tree(supervisor) as tree:
        pool.start("bystander", trio.sleep_forever)
        for number in range(100):
            pool.start(f"row-{number}", fail, f"undecodable {number}")
        before = len(events)
        await wait_all_tasks_blocked()
        assert failures == {f"row-{number}": f"undecodable {number}" for number in range(100)}
        assert len(events) == before
        assert pool.count == 1
        assert [(node.state, node.restarts) for node in tree.snapshot().children] == [("running", 0)] * 2


@pytest.mark.spec("RT-3")
async def test_a_child_is_temporary_however_it_ends() -> None:
    runs: list[str] = []

    async def child(name: str, *, broken: bool) -> None:
        runs.append(name)
        if broken:
            raise ExceptionGroup("two", [ValueError(), KeyError()])

    async def broken() -> None:
        await child("broken", broken=True)

    async def sound() -> None:
        await child("sound", broken=False)

    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("broken", broken)
        pool.start("sound", sound)
        pool.start("stopped", trio.sleep_forever)
        pool.stop("stopped")
        await wait_all_tasks_blocked()
        assert sorted(runs) == ["broken", "sound"]
        assert pool.count == 0


async def test_a_name_is_refused_while_its_task_lives_and_free_when_it_has_ended() -> None:
    pool = DynamicSupervisor("pool")
    go = trio.Event()
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("a", go.wait)
        assert pool.running("a")
        with pytest.raises(AlreadyRunning, match="'a' is already running"):
            pool.start("a", go.wait)
        assert pool.count == 1
        go.set()
        await pool.wait_ended("a")
        assert not pool.running("a")
        pool.start("a", go.wait)
        await pool.wait_ended("a")
        await pool.wait_ended("a")


async def test_a_failure_may_start_the_next_task_under_the_same_name() -> None:
    attempts: list[str] = []

    def again(name: str, error: Exception) -> None:
        attempts.append(str(error))
        if len(attempts) < 3:
            pool.start(name, fail, f"attempt {len(attempts) + 1}")

    pool = DynamicSupervisor("pool", on_failure=again)
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("a", fail, "attempt 1")
        await wait_all_tasks_blocked()
        assert attempts == ["attempt 1", "attempt 2", "attempt 3"]
        assert not pool.running("a")


async def test_a_failing_callback_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def callback(name: str, error: Exception) -> None:
        raise RuntimeError("callback broke")

    pool = DynamicSupervisor("pool", on_failure=callback)
    async with open_tree(Supervisor("root", [pool.spec()], intensity=Intensity(restarts=0))):
        with caplog.at_level(logging.ERROR):
            pool.start("a", fail, "x")
            await wait_all_tasks_blocked()
        assert "callback broke" in caplog.text
        pool.start("a", trio.sleep_forever)


@pytest.mark.spec("RT-14")
async def test_the_number_of_children_is_bounded() -> None:
    pool = DynamicSupervisor("pool", max_children=2)
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start("a", trio.sleep_forever)
        pool.start("b", trio.sleep_forever)
        with pytest.raises(TooManyChildren) as caught:
            pool.start("c", trio.sleep_forever)
        assert (caught.value.supervisor, caught.value.limit) == ("pool", 2)
        assert not pool.running("c")
        pool.stop("a")
        await pool.wait_ended("a")
        pool.start("c", trio.sleep_forever)


async def test_nothing_starts_before_it_runs_while_it_stops_or_afterwards(autojump_clock: MockClock) -> None:
    pool = DynamicSupervisor("pool")
    with pytest.raises(NotRunning, match="pool: is not running"):
        pool.start("a", trio.sleep_forever)
    log: list[str] = []
    supervisor = Supervisor("root", [pool.spec()])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        with pytest.raises(AlreadyRunning):
            await pool.run()
        pool.start("slow", polite, log, 3, cooperative=True)
        await wait_all_tasks_blocked()
        supervisor.stop()
        await trio.sleep(1)
        assert pool.snapshot().state is State.STOPPING
        with pytest.raises(NotRunning):
            pool.start("b", trio.sleep_forever)
    assert not pool.stop("slow")
    with pytest.raises(NotRunning):
        pool.start("c", trio.sleep_forever)
