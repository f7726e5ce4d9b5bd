"""What goes into the step log and comes out of it: JSON, the same in every attempt, and nothing that no database takes (RT-10)."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from callboard import InvalidField, Turn, tool
from callboard.storage.model.states import Outcome, Status
from callboard.tests.flows.turn_kit import Bench, Board

pytestmark = pytest.mark.spec("RT-10")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((1, 2), [1, 2]),
        ({"a": (1,), 2: "two"}, {"a": [1], "2": "two"}),
        ({"text": "half a pair \ud800 and NUL \0"}, {"text": "half a pair ? and NUL \0"}),
        ("ünïcödé 🎈", "ünïcödé 🎈"),
        (0, 0),
        (False, False),
        ("", ""),
    ],
)
async def test_a_result_is_the_same_in_every_attempt(
    board: Board, autojump_clock: MockClock, bench: Bench, given: Any, kept: Any
) -> None:
    session = await board.open()
    pure = bench.tool("pure", result=given)
    results: list[Any] = []

    async def work(turn: Turn) -> None:
        results.append(await turn.step(pure))
        if turn.attempt == 1:
            raise ValueError("cut off")

    board.plan(session, work, work)
    assert (await board.ask(session)).status is Status.DELIVERED
    assert results == [kept, kept]
    assert [type(result) for result in results] == [type(kept)] * 2
    assert bench.ran == ["pure"]


async def test_no_result_is_one_too(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    runs: list[int] = []

    @tool("external")
    async def silent() -> None:
        runs.append(1)

    async def work(turn: Turn) -> str:
        assert await turn.step(silent) is None
        if turn.attempt == 1:
            raise ValueError("cut off")
        return "done"

    board.plan(session, work, work)
    await board.ask(session)
    assert runs == [1]


@pytest.mark.parametrize(
    "result", [object(), float("nan"), {"x": {1, 2}}, b"bytes"], ids=["object", "nan", "set", "bytes"]
)
async def test_a_result_that_is_not_json_is_refused_and_named(
    board: Board, autojump_clock: MockClock, bench: Bench, result: Any
) -> None:
    session = await board.open()
    odd = bench.tool("external", "odd", result=result)
    paths: list[str | None] = []

    async def work(turn: Turn) -> None:
        with pytest.raises(InvalidField) as caught:
            await turn.step(odd)
        paths.append(caught.value.path)
        if turn.attempt == 1:
            raise ValueError("cut off")

    board.plan(session, work, work)
    assert (await board.ask(session)).attempt == 2
    assert (paths, bench.ran) == (["odd.result", "odd.result"], ["odd"])


@pytest.mark.parametrize("arguments", [{"x": object()}, {"x": float("inf")}, {"x": {1}}], ids=["object", "inf", "set"])
async def test_arguments_that_are_not_json_are_refused_before_anything_runs(
    board: Board, autojump_clock: MockClock, bench: Bench, arguments: dict[str, Any]
) -> None:
    session = await board.open()
    pure = bench.tool("pure")

    async def work(turn: Turn) -> None:
        with pytest.raises(InvalidField) as caught:
            await turn.step(pure, **arguments)
        assert caught.value.path == "pure.arguments"

    await board.inside(session, work)
    assert bench.ran == []
    assert await board.events(session, "tool.call") == []


async def test_arguments_that_no_database_takes_do_not_break_the_turn(
    board: Board, autojump_clock: MockClock, bench: Bench
) -> None:
    session = await board.open()
    pure = bench.tool("pure")

    async def work(turn: Turn) -> str:
        with pytest.raises(InvalidField, match="message: must not contain a lone surrogate"):
            await turn.tools.agent_send("/other", "half a pair \ud800")
        return await turn.step(pure, text="half a pair \ud800 and NUL \0")

    await board.open(path="/other")
    assert await board.inside(session, work) == "pure 1"
    calls = await board.events(session, "tool.call")
    assert calls[-1].data["arguments"] == {"text": "half a pair ? and NUL \0"}
    view = await board.ask(session)
    assert view.outcome is Outcome.ANSWERED
