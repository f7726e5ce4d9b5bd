"""A tree around a block, and what surrounds a tree: repeated runs, failing observers."""

import contextlib
import logging

import pytest
import trio

from callboard.supervisors.tree import (
    AlreadyRunning,
    ChildSpec,
    Intensity,
    IntensityExceeded,
    NotRunning,
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


async def test_the_same_supervisor_runs_once_at_a_time_and_again_afterwards() -> None:
    log: Log = []
    supervisor = Supervisor("root", [sleeper("a", log)])
    supervisor.stop()
    for _ in range(2):
        async with open_tree(supervisor):
            with pytest.raises(AlreadyRunning):
                await supervisor.run()
            supervisor.stop()
            supervisor.stop()
    assert log == ["+a", "-a"] * 2


async def test_a_block_around_a_tree_raises_bare_errors() -> None:
    log: Log = []
    with pytest.raises(KeyError, match="mine"):
        async with open_tree(Supervisor("root", [sleeper("a", log)])):
            raise KeyError("mine")
    assert log == ["+a", "-a"]


class Fuse:
    """A child that lives until it is blown."""

    def __init__(self) -> None:
        self.blow = trio.Event()

    async def start(self) -> None:
        await self.blow.wait()
        raise ValueError("blown")


async def test_a_tree_that_gives_up_cancels_its_block() -> None:
    fuse = Fuse()
    supervisor = Supervisor("root", [ChildSpec("fuse", fuse.start)], intensity=Intensity(restarts=0))

    async def block() -> None:
        async with open_tree(supervisor):
            fuse.blow.set()
            await trio.sleep_forever()

    with trio.fail_after(5), pytest.raises(IntensityExceeded, match="blown"):
        await block()


async def test_a_block_that_fails_with_its_tree_raises_both() -> None:
    fuse = Fuse()
    supervisor = Supervisor("root", [ChildSpec("fuse", fuse.start)], intensity=Intensity(restarts=0))

    async def block() -> None:
        async with open_tree(supervisor):
            fuse.blow.set()
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert {type(error) for error in caught.value.exceptions} == {IntensityExceeded, KeyError}


async def test_a_cancellation_around_the_block_is_not_swallowed() -> None:
    log: Log = []
    with trio.CancelScope() as scope:
        async with open_tree(Supervisor("root", [sleeper("a", log)])):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert log == ["+a", "-a"]


async def test_a_failing_observer_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    log: Log = []

    def observer(event: TreeEvent) -> None:
        raise RuntimeError("observer broke")

    with caplog.at_level(logging.ERROR):
        async with open_tree(Supervisor("root", [sleeper("a", log), sleeper("b", log)], observer=observer)):
            pass
    assert log == ["+a", "+b", "-b", "-a"]
    assert "observer broke" in caplog.text


@pytest.mark.parametrize("kind", ["Started", "Exited", "Restarting", "Stopping"])
async def test_an_observer_may_stop_the_tree_from_any_event(kind: str) -> None:
    log: Log = []

    async def broken() -> None:
        raise ValueError

    def observer(event: TreeEvent) -> None:
        if type(event).__name__ == kind:
            supervisor.stop()

    children = [sleeper("a", log), ChildSpec("broken", broken)]
    supervisor = Supervisor("root", children, observer=observer)
    expected = pytest.raises(IntensityExceeded) if kind == "Stopping" else contextlib.nullcontext()
    with trio.fail_after(5), expected:
        await supervisor.run()
    assert log == ["+a", "-a"]
    assert all(node.state in ("stopped", "failed") for node in supervisor.snapshot().children)


async def test_a_tree_that_is_stopped_before_it_has_started_does_not_enter_its_block() -> None:
    log: Log = []

    def observer(event: TreeEvent) -> None:
        supervisor.stop()

    supervisor = Supervisor("root", [sleeper("a", log), sleeper("b", log)], observer=observer)

    async def block() -> None:
        async with open_tree(supervisor):
            pytest.fail("the block was entered")

    with trio.fail_after(5), pytest.raises(NotRunning, match="root"):
        await block()
    assert log == ["+a", "-a"]
