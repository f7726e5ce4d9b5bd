"""Children in stages: what is carried out, how they end, and what Trio sees of them."""

import gc
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisors.tree import AlreadyRunning, DynamicSupervisor, NotRunning, State, Supervisor, open_tree
from callboard.supervisors.tree.stages import Staged


async def nothing() -> None:
    return


@attrs.define
class Work:
    """What `begin` gives is awaited in a scope, as a real one does it; `last` follows after that, and may fail."""

    begin_with: Callable[[], Awaitable[object]]
    last: Callable[[], Awaitable[object]] = nothing
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    told: list[object] = attrs.field(factory=list)

    def begin(self) -> Awaitable[object]:
        self.scope.__enter__()
        return self.begin_with()

    async def end(self, result: object, error: BaseException | None, /) -> None:
        if self.scope.__exit__(None if error is None else type(error), error, None):
            error = None
        self.told.append(error or result)
        await self.last()


@attrs.frozen
class Foreign:
    """An awaitable that is no coroutine."""

    inner: Callable[[], Awaitable[object]]

    def __await__(self) -> Generator[Any, None, object]:
        return self.inner().__await__()


def failing(error: BaseException) -> Callable[[], Awaitable[object]]:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return fail


def at_once(error: BaseException) -> Callable[[], Awaitable[object]]:
    def fail() -> Awaitable[object]:
        raise error

    return fail


async def answer() -> str:
    await trio.lowlevel.checkpoint()
    return "done"


WRONG = ValueError("wrong")
WAYS: dict[str, tuple[Callable[[], Awaitable[object]], object]] = {
    "a result": (answer, "done"),
    "an awaitable of another kind": (lambda: Foreign(answer), "done"),
    "a failure": (failing(WRONG), WRONG),
    "a failure at once": (at_once(WRONG), WRONG),
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_end_is_told_how_the_rest_went(way: str) -> None:
    failures: list[str] = []
    pool = DynamicSupervisor("pool", on_failure=lambda name, _: failures.append(name))
    work = Work(WAYS[way][0])
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("one", work)
        with pytest.raises(AlreadyRunning):
            pool.start_staged("one", Work(answer))
        await pool.wait_ended("one")
        assert not pool.running("one")
    assert work.told == [WAYS[way][1]]
    assert failures == [], "what the end has taken note of is no failure of the child"
    with pytest.raises(NotRunning):
        pool.start_staged("one", work)


async def test_what_is_awaited_must_be_awaitable() -> None:
    work = Work(lambda: None)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("one", work)
        await pool.wait_ended("one")
    assert isinstance(work.told[0], TypeError)


@pytest.mark.spec("RT-3")
async def test_a_failing_end_is_told_after_its_name_is_free_and_harms_nobody() -> None:
    told: list[tuple[str, str, bool]] = []
    pool = DynamicSupervisor("pool", on_failure=lambda name, e: told.append((name, str(e), pool.running(name))))
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("bystander", Work(trio.sleep_forever))
        pool.start_staged("one", Work(answer, failing(WRONG)))
        await wait_all_tasks_blocked()
        assert told == [("one", "wrong", False)]
        assert pool.count == 1


async def test_an_interrupt_out_of_the_end_stops_all_and_goes_on() -> None:
    bystander = Work(trio.sleep_forever)
    pool = DynamicSupervisor("pool")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            pool.start_staged("bystander", bystander)
            pool.start_staged("one", Work(answer, failing(KeyboardInterrupt())))

    with pytest.raises(BaseExceptionGroup) as raised:
        await run()
    assert raised.group_contains(KeyboardInterrupt)
    assert [type(told) for told in bystander.told] == [trio.Cancelled]


async def test_it_is_stopped_through_its_scope_and_may_finish(autojump_clock: MockClock) -> None:
    ended: dict[str, float] = {}
    pool = DynamicSupervisor("pool", grace_seconds=4)

    def finishing(name: str) -> Work:
        async def last() -> None:
            await trio.sleep(2)
            ended[name] = trio.current_time()

        return Work(trio.sleep_forever, last)

    async with open_tree(Supervisor("root", [pool.spec()])):
        for name in ("one", "two"):
            pool.start_staged(name, finishing(name))
        await trio.sleep(1)
        assert pool.stop("one")
        assert [node.state for node in pool.snapshot().children] == [State.STOPPING, State.RUNNING]
        await pool.wait_ended("one")
        assert ended == {"one": 3}
        assert pool.running("two")
    assert ended == {"one": 3, "two": 5}


async def test_one_that_is_stopped_before_its_first_step_is_cancelled_at_its_first_checkpoint() -> None:
    work = Work(answer)
    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("one", work)
        assert pool.stop("one")
        await pool.wait_ended("one")
    assert work.told == [None], "cancelled, it has no result"


async def test_trio_sees_the_work_as_the_tasks_coroutine() -> None:
    release, lock = trio.Event(), trio.Lock()
    tasks: list[trio.lowlevel.Task] = []

    async def waits() -> None:
        tasks.append(trio.lowlevel.current_task())
        # Asks its task's coroutine whether it is over.
        async with lock:
            await release.wait()

    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("one", Work(waits))
        await wait_all_tasks_blocked()
        (task,) = tasks
        assert task.name == "one"
        frames = [frame.f_code.co_name for frame, _ in task.iter_await_frames()]
        assert frames[:2] == ["waits", "wait"]
        release.set()
        await pool.wait_ended("one")
        assert not lock.locked()


async def test_what_is_no_trap_of_trios_fails_in_the_work() -> None:
    class Alien:
        def __await__(self) -> Generator[Any, None, None]:
            yield "nothing that Trio knows"

    async def strays() -> None:
        await Alien()

    work = Work(strays)
    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        pool.start_staged("one", work)
        await pool.wait_ended("one")
    (error,) = work.told
    assert isinstance(error, TypeError)


async def test_a_failure_leaves_no_cycle_behind() -> None:
    gone: list[str] = []

    class Noticed(Exception):
        def __del__(self) -> None:
            gone.append("freed")

    @attrs.define
    class Failing:
        scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

        async def begin(self) -> object:
            raise Noticed

        async def end(self, result: object, error: BaseException | None, /) -> None:
            await trio.lowlevel.checkpoint()

    pool = DynamicSupervisor("pool")
    async with open_tree(Supervisor("root", [pool.spec()])):
        gc.disable()
        try:
            staged: Staged = Failing()
            pool.start_staged("one", staged)
            await pool.wait_ended("one")
            assert gone == ["freed"]
        finally:
            gc.enable()
