"""The step log: what a turn has done is committed as it happens, and an attempt that follows continues after it (RT-10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Call, Interrupted, InvalidField, Tool, Turn, UnknownTarget, tool
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import RecordStep
from callboard.tests.flows.turn_kit import Bench, Board

pytestmark = pytest.mark.spec("RT-10")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("failing", range(8))
async def test_an_attempt_that_fails_after_any_step_is_continued_and_nothing_is_repeated(
    board: Board, autojump_clock: MockClock, bench: Bench, failing: int
) -> None:
    session, other = await board.open(path="/here"), await board.open(path="/other")
    pure, durable, external = bench.tool("pure"), bench.tool("durable"), bench.tool("external")
    results: list[list[Any]] = []

    async def work(turn: Turn) -> str:
        mine: list[Any] = []
        results.append(mine)
        steps: list[Callable[[], Any]] = [
            lambda: turn.step(pure),
            lambda: turn.step(durable, amount=3),
            lambda: turn.step(external, to="world"),
            lambda: turn.tools.agent_send("/other", "once"),
            lambda: turn.tools.agent("a task", title="child"),
            lambda: turn.step(external, to="world"),
            lambda: turn.tools.agent_list("recent"),
        ]
        for number, step in enumerate(steps):
            if turn.attempt == 1 and number == failing:
                raise ValueError("cut off")
            mine.append(await step())
        if turn.attempt == 1:
            raise ValueError("cut off at the end")
        return "done"

    board.plan(session, work, work)
    view = await board.ask(session)
    await trio.sleep(1)
    assert (view.outcome, view.attempts, view.attempt) == (Outcome.ANSWERED, 1, 2)
    assert bench.ran == ["pure", "durable", "external", "external"]
    assert results[0] == results[1][:failing], "a recorded result is given back as it was"
    assert await board.texts(other, "user") == ["once"]
    children = [s for s in await board.runtime.list_sessions() if s.parent == session.id]
    assert len(children) == 1
    assert await board.texts(children[0], "user") == ["a task"]
    assert len(set(bench.actions)) == 4
    for kind in ("tool.call", "tool.result"):
        seen = [event.data["action_id"] for event in await board.events(session, kind)]
        assert len(seen) == len(set(seen)) == 7, "one event for each call, over all attempts"
    steps = await board.runtime.store.reads.steps(board.scope, view.id)
    assert [step.done for step in steps] == [True] * 7


@pytest.mark.parametrize(
    ("kind", "runs"), [("pure", 2), ("durable", 2), ("external", 1)], ids=["pure", "durable", "external"]
)
async def test_a_call_that_was_cut_off_goes_by_its_class(
    board: Board, autojump_clock: MockClock, kind: str, runs: int
) -> None:
    session = await board.open()
    actions: list[str] = []

    @tool(kind)
    async def fragile(amount: int, call: Call) -> str:
        actions.append(call.action_id)
        if len(actions) == 1:
            raise OSError("the connection broke")
        return f"paid {amount}"

    async def work(turn: Turn) -> str:
        result = await turn.step(fragile, amount=3)
        if isinstance(result, Interrupted):
            assert (result.tool, result.action_id) == ("fragile", actions[0])
        return str(result)

    board.plan(session, work, work)
    view = await board.ask(session)
    assert (view.outcome, view.attempt) == (Outcome.ANSWERED, 2)
    assert len(actions) == runs
    assert len(set(actions)) == 1, "it runs again under the same action id"
    expected = "interrupted: fragile may have run; it was not repeated" if kind == "external" else "paid 3"
    assert await board.texts(session) == [expected]
    (result,) = await board.events(session, "tool.result")
    assert result.data["result"] == ({"interrupted": True} if kind == "external" else {"ok": "paid 3"})


async def test_an_interrupted_call_stays_interrupted(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    runs: list[int] = []

    @tool("external")
    async def fragile() -> str:
        runs.append(1)
        raise OSError("broke")

    async def work(turn: Turn) -> str:
        result = await turn.step(fragile)
        if turn.attempt == 2:
            raise ValueError("again")
        return type(result).__name__

    board.plan(session, work, work, work)
    assert (await board.ask(session)).attempt == 3
    assert len(runs) == 1
    assert await board.texts(session) == ["Interrupted"]


async def test_an_external_call_is_on_record_before_it_runs(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    seen: dict[str, list[str]] = {}

    def watching(kind: str) -> Tool:
        @tool(kind, name=kind)
        async def watch() -> None:
            seen[kind] = (await board.kinds(session))[-1:]

        return watch

    async def work(turn: Turn) -> None:
        for kind in ("pure", "durable", "external"):
            await turn.step(watching(kind))
            assert (await board.kinds(session))[-2:] == ["tool.call", "tool.result"], "committed before it returns"

    await board.inside(session, work)
    assert seen == {"pure": ["attempt.claimed"], "durable": ["tool.result"], "external": ["tool.call"]}


async def test_action_ids_name_turn_tool_arguments_and_occurrence(
    board: Board, autojump_clock: MockClock, bench: Bench
) -> None:
    session = await board.open()
    pure, other = bench.tool("pure"), bench.tool("pure", "other")

    async def work(turn: Turn) -> str:
        await turn.step(pure, a=1, b={"x": [1, 2], "y": None})
        await turn.step(pure, b={"y": None, "x": [1, 2]}, a=1)
        await turn.step(pure, a=2, b={})
        await turn.step(other, a=2, b={})
        return turn.id

    board.plan(session, work, work)
    await board.ask(session)
    await board.ask(session)
    turns = await board.texts(session)
    assert len(bench.actions) == len(set(bench.actions)) == 8
    for turn, actions in zip(turns, (bench.actions[:4], bench.actions[4:]), strict=True):
        first, second, third, fourth = actions
        assert first.startswith(f"{turn}:pure:")
        assert first.endswith(":1")
        assert second == first[:-1] + "2", "the order of names does not matter, the occurrence does"
        assert third.endswith(":1")
        assert third.rpartition(":")[0] != first.rpartition(":")[0]
        assert fourth.startswith(f"{turn}:other:")


async def test_a_later_attempt_that_takes_another_way_runs_what_is_new(
    board: Board, autojump_clock: MockClock, bench: Bench
) -> None:
    session = await board.open()
    pure = bench.tool("pure")

    async def first(turn: Turn) -> None:
        await turn.step(pure, n=1)
        await turn.step(pure, n=2)
        raise ValueError("cut off")

    async def second(turn: Turn) -> str:
        return f"{await turn.step(pure, n=2)}, {await turn.step(pure, n=3)}, {await turn.step(pure, n=1)}"

    board.plan(session, first, second)
    await board.ask(session)
    assert await board.texts(session) == ["pure 2, pure 3, pure 1"]


async def test_a_refusal_is_a_result_and_is_fed_back(board: Board, autojump_clock: MockClock) -> None:
    """What was refused once stays refused in the same turn, also if it would be possible by now."""
    session = await board.open()
    told: list[tuple[type[BaseException], str, str | None]] = []

    async def work(turn: Turn) -> str:
        try:
            await turn.tools.agent_send("/later", "hello")
        except UnknownTarget as error:
            told.append((type(error), error.message, error.path))
        if turn.attempt == 1:
            await board.open(path="/later")
            raise ValueError("cut off")
        return "done"

    board.plan(session, work, work)
    await board.ask(session)
    assert told == [(UnknownTarget, "no session has this path", "path")] * 2
    (result,) = await board.events(session, "tool.result")
    assert result.data["result"] == {
        "refused": {"code": "unknown_target", "message": "no session has this path", "path": "path"}
    }
    later = await board.runtime.desk.find(board.scope, "/later")
    assert await board.entries(later) == []


async def test_an_agents_own_tool_may_refuse_too(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    runs: list[int] = []

    @tool("external")
    async def picky(amount: int) -> None:
        runs.append(amount)
        raise InvalidField("must be positive", path="amount")

    async def work(turn: Turn) -> str:
        with pytest.raises(InvalidField, match="amount: must be positive") as caught:
            await turn.step(picky, amount=-1)
        if turn.attempt == 1:
            raise ValueError("cut off")
        return f"{caught.value.path}"

    board.plan(session, work, work)
    await board.ask(session)
    assert (runs, await board.texts(session)) == ([-1], ["amount"])


async def test_what_the_store_could_not_take_is_not_recorded_as_a_result(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open(path="/other")

    async def work(turn: Turn) -> str:
        if turn.attempt == 1:
            board.gate.broken = (RecordStep,)
            try:
                await turn.tools.agent_send("/other", "hello")
            finally:
                board.gate.broken = ()
        return (await turn.tools.agent_send("/other", "hello"))["status"]

    board.plan(session, work, work)
    view = await board.ask(session)
    assert (view.outcome, view.attempts, view.attempt) == (Outcome.ANSWERED, 0, 2)
    assert await board.texts(other, "user") == ["hello"]


async def test_steered_messages_come_again_at_the_same_place(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    looks: list[list[list[str]]] = []

    async def work(turn: Turn) -> str:
        mine: list[list[str]] = []
        looks.append(mine)
        for name in ("one", "two", "three"):
            if turn.attempt == 1 and name != "three":
                await board.post(session, name)
            mine.append([message.content for message in await turn.steered()])
        if turn.attempt == 1:
            await board.post(session, "after")
            raise ValueError("cut off")
        mine.append([message.content for message in await turn.steered()])
        return " ".join(message.content for message in turn.messages)

    board.plan(session, work, work)
    view = await board.ask(session, "head")
    assert looks == [[["one"], ["two"], []], [["one"], ["two"], [], ["after"]]]
    assert view.attempt == 2
    assert await board.texts(session) == ["head one two after"]
    for entry in await board.entries(session):
        assert entry.state == "delivered"
    assert board.runs(session) == 2


async def test_a_step_of_one_turn_is_nothing_to_the_next(board: Board, autojump_clock: MockClock, bench: Bench) -> None:
    session = await board.open()
    durable = bench.tool("durable")

    async def work(turn: Turn) -> str:
        return await turn.step(durable)

    board.plan(session, work, work)
    await board.ask(session)
    await board.ask(session)
    assert await board.texts(session) == ["durable 1", "durable 2"]


async def test_two_calls_at_once_are_two_steps(board: Board, autojump_clock: MockClock, bench: Bench) -> None:
    session = await board.open()
    pure = bench.tool("pure")
    results: list[str] = []

    async def one(turn: Turn, n: int) -> None:
        results.append(await turn.step(pure, n=n))

    async def work(turn: Turn) -> None:
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(one, turn, n)
        if turn.attempt == 1:
            raise ValueError("cut off")

    board.plan(session, work, work)
    await board.ask(session)
    assert len(bench.ran) == 5
    assert sorted(results[:5]) == sorted(results[5:])


@pytest.mark.spec("RT-8")
async def test_steps_that_were_committed_stay_when_the_attempt_ends_badly(
    board: Board, autojump_clock: MockClock, bench: Bench
) -> None:
    session = await board.open()
    external = bench.tool("external")

    async def work(turn: Turn) -> None:
        await turn.step(external)
        raise ValueError("and that was all")

    board.plan(session, work)
    view = await board.ask(session, max_attempts=1)
    assert view.status is Status.FAILED
    (step,) = await board.runtime.store.reads.steps(board.scope, view.id)
    assert step.result == {"ok": "external 1"}
