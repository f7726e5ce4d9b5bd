"""Restarts: whom they reach, when they happen, how often, and what they never hold up."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import (
    Backoff,
    ChildSpec,
    Exited,
    Intensity,
    IntensityExceeded,
    Started,
    State,
    Strategy,
    Supervisor,
    TreeEvent,
    open_tree,
)

AT_ONCE = Backoff(base_seconds=0)


class Probe:
    """A child that ends when and how the test wants it to."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.up = 0
        self.start_errors = 0
        self.hold: trio.Event | None = None
        self.cleanup = 0.0
        self._end = trio.Event()
        self._error: Exception | None = None

    async def start(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.log.append(f"+{self.name}")
        self.up += 1
        self._end = trio.Event()
        self._error = None
        try:
            if self.start_errors:
                self.start_errors -= 1
                raise ConnectionError("not yet")
            if self.hold is not None:
                await self.hold.wait()
            task_status.started()
            await self._end.wait()
            if self._error is not None:
                raise self._error
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
                await trio.sleep(self.cleanup)
            self.up -= 1
            self.log.append(f"-{self.name}")

    def leave(self) -> None:
        self._end.set()

    def crash(self) -> None:
        self._error = ValueError(f"{self.name} broke")
        self._end.set()

    def spec(self, restart: str = "permanent") -> ChildSpec:
        return ChildSpec(self.name, self.start, restart=restart)


def probes(names: str, log: list[str]) -> list[Probe]:
    return [Probe(name, log) for name in names]


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize(
    ("restart", "crash", "state"),
    [
        ("permanent", False, State.RUNNING),
        ("permanent", True, State.RUNNING),
        ("transient", False, State.STOPPED),
        ("transient", True, State.RUNNING),
        ("temporary", False, None),
        ("temporary", True, None),
    ],
)
async def test_who_comes_back(restart: str, crash: bool, state: State | None) -> None:
    log: list[str] = []
    a, b = probes("ab", log)
    async with open_tree(Supervisor("root", [a.spec(restart), b.spec()], backoff=AT_ONCE)) as tree:
        a.crash() if crash else a.leave()
        await wait_all_tasks_blocked()
        nodes = {node.name: node for node in tree.snapshot().children}
        assert (nodes["a"].state if "a" in nodes else None) == state
        assert b.up == 1
        assert log[:3] == ["+a", "+b", "-a"]


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy.ONE_FOR_ONE, ["-b", "+b"]),
        (Strategy.ONE_FOR_ALL, ["-b", "-d", "-c", "-a", "+a", "+b", "+c", "+d"]),
        (Strategy.REST_FOR_ONE, ["-b", "-d", "-c", "+b", "+c", "+d"]),
    ],
)
async def test_a_strategy_stops_in_reverse_and_starts_in_order(strategy: Strategy, expected: list[str]) -> None:
    log: list[str] = []
    children = probes("abcd", log)
    supervisor = Supervisor("root", [child.spec() for child in children], strategy=strategy, backoff=AT_ONCE)
    async with open_tree(supervisor):
        log.clear()
        children[1].crash()
        await wait_all_tasks_blocked()
        assert log == expected


@pytest.mark.spec("RT-2")
async def test_restarts_back_off_with_jitter(autojump_clock: MockClock) -> None:
    (a,) = probes("a", [])
    times: list[float] = []

    def observer(event: TreeEvent) -> None:
        if isinstance(event, Started | Exited):
            times.append(trio.current_time())

    async with open_tree(Supervisor("root", [a.spec()], observer=observer, random=lambda: 0.5)):
        for pause in (1, 1, 1, 40, 1):
            a.crash()
            await trio.sleep(pause)
    exited, started = times[1:-1:2], times[2::2]
    waited = [up - down for down, up in zip(exited, started, strict=True)]
    # Half of the jitter of one half is off. After 40 s, more than the period, it begins again at the first delay.
    assert waited == pytest.approx([0, 0.075, 0.15, 0.3, 0])


@pytest.mark.spec("RT-2")
async def test_a_failing_restart_begins_the_group_again_and_counts() -> None:
    log: list[str] = []
    a, b, _ = children = probes("abc", log)
    specs = [child.spec() for child in children]
    supervisor = Supervisor("root", specs, strategy="one_for_all", backoff=AT_ONCE, intensity=Intensity(restarts=4))

    async def run() -> None:
        async with open_tree(supervisor):
            log.clear()
            b.start_errors = 2
            a.crash()
            await wait_all_tasks_blocked()
            assert log == ["-a", "-c", "-b", "+a", "+b", "-b", "-a", "+a", "+b", "-b", "-a", "+a", "+b", "+c"]
            assert [node.state for node in supervisor.snapshot().children] == ["running"] * 3
            # Three of four restarts are used, so this crash is the last one allowed and the failing start one too many.
            b.start_errors = 1
            a.crash()
            await trio.sleep_forever()

    with pytest.raises(IntensityExceeded, match="ConnectionError: not yet") as caught:
        await run()
    assert caught.value.child == "b"


async def test_a_whole_group_is_shown_as_backing_off(autojump_clock: MockClock) -> None:
    children = probes("abc", [])
    backoff = Backoff(first_seconds=10)
    specs = [child.spec() for child in children]
    async with open_tree(Supervisor("root", specs, strategy="rest_for_one", backoff=backoff)) as tree:
        children[1].crash()
        await trio.sleep(1)
        assert [node.state for node in tree.snapshot().children] == ["running", "backing-off", "backing-off"]


async def test_a_slow_start_holds_up_no_other_child() -> None:
    log: list[str] = []
    children = probes("ab", log)
    a, b = children
    async with open_tree(Supervisor("root", [child.spec() for child in children], backoff=AT_ONCE)) as tree:
        a.hold = trio.Event()
        a.crash()
        await wait_all_tasks_blocked()
        assert tree.snapshot().children[0].state is State.STARTING
        b.crash()
        await wait_all_tasks_blocked()
        assert log == ["+a", "+b", "-a", "+a", "-b", "+b"]
        assert tree.snapshot().children[1].state is State.RUNNING


async def test_a_crash_while_others_still_start_restarts_the_group_and_forgets_nobody() -> None:
    log: list[str] = []
    a, b, c = children = probes("abc", log)
    b.hold = trio.Event()
    specs = [a.spec(), b.spec(), c.spec("temporary")]
    supervisor = Supervisor("root", specs, strategy="one_for_all", backoff=AT_ONCE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        assert log == ["+a", "+b"]
        a.crash()
        await wait_all_tasks_blocked()
        assert log == ["+a", "+b", "-a", "-b", "+a", "+b"]
        b.hold.set()
        await wait_all_tasks_blocked()
        assert log[6:] == ["+c"]
        assert supervisor.snapshot().state is State.RUNNING
        assert [child.up for child in children] == [1, 1, 1]
        supervisor.stop()


async def test_an_earlier_crash_takes_over_a_restart_that_is_still_stopping(autojump_clock: MockClock) -> None:
    log: list[str] = []
    children = probes("abcd", log)
    specs = [child.spec() for child in children]
    events: list[TreeEvent] = []
    supervisor = Supervisor("root", specs, strategy="rest_for_one", backoff=AT_ONCE, observer=events.append)
    async with open_tree(supervisor) as tree:
        log.clear()
        children[3].cleanup = 2
        children[2].crash()
        await trio.sleep(1)
        children[0].crash()
        await trio.sleep(5)
        assert log == ["-c", "-a", "-d", "-b", "+a", "+b", "+c", "+d"]
        assert [node.restarts for node in tree.snapshot().children] == [1, 1, 1, 1]


async def test_a_sibling_that_crashes_while_its_group_is_stopped_is_not_counted(autojump_clock: MockClock) -> None:
    log: list[str] = []
    a, b, c = children = probes("abc", log)
    specs = [child.spec() for child in children]
    supervisor = Supervisor("root", specs, strategy="one_for_all", backoff=AT_ONCE, intensity=Intensity(restarts=1))
    async with open_tree(supervisor) as tree:
        c.cleanup = 2
        a.crash()
        await trio.sleep(1)
        b.crash()
        await trio.sleep(5)
        assert [node.state for node in tree.snapshot().children] == ["running"] * 3
        assert [node.restarts for node in tree.snapshot().children] == [1, 1, 1]


async def test_a_transient_child_that_returned_starts_again_with_its_group_and_a_temporary_one_never() -> None:
    log: list[str] = []
    a, b, c = probes("abc", log)
    specs = [a.spec("transient"), b.spec("temporary"), c.spec()]
    async with open_tree(Supervisor("root", specs, strategy="one_for_all", backoff=AT_ONCE)) as tree:
        a.leave()
        await wait_all_tasks_blocked()
        assert log == ["+a", "+b", "+c", "-a"]
        c.crash()
        await wait_all_tasks_blocked()
        assert log[4:] == ["-c", "-b", "+a", "+c"]
        assert [node.name for node in tree.snapshot().children] == ["a", "c"]
