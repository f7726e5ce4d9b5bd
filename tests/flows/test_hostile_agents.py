"""Whatever one agent does, its message ends and nobody else notices (RT-3, RT-12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from callboard import LeaseLost, Turn
from callboard.storage.model.errors import StoreDown
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.tests.flows.turn_kit import running

Run = Callable[[Turn], Awaitable[str | None]]


class Unspeakable(Exception):
    """An exception that can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def streams_bytes(turn: Turn) -> str:
    await turn.emit(b"abc")  # type: ignore[arg-type]
    return "never"


async def keeps_a_cancel(turn: Turn) -> str:
    kept: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancel:
            kept.append(cancel)
    raise kept[0]


async def closes_itself(turn: Turn) -> str:
    raise GeneratorExit


async def fails_without_words(turn: Turn) -> str:
    raise Unspeakable


async def spoils_its_messages(turn: Turn) -> str:
    turn.messages.append("not a message")  # type: ignore[arg-type]
    return "done"


async def fails_deeply(turn: Turn) -> str:
    nested: list[Exception] = [ValueError("the innermost")]
    for _ in range(3_000):
        nested = [ExceptionGroup("around it", nested)]
    raise nested[0]


async def leaves_a_nursery_open(turn: Turn) -> str:
    nursery = await trio.open_nursery().__aenter__()
    nursery.start_soon(trio.sleep_forever)
    return "done"


async def leaves_a_nursery_open_and_fails(turn: Turn) -> str:
    await leaves_a_nursery_open(turn)
    raise ValueError("and fails")


async def leaves_a_scope_open(turn: Turn) -> str:
    trio.CancelScope().__enter__()
    return "done"


async def says_the_store_is_down(turn: Turn) -> str:
    raise StoreDown("some other store")


@pytest.mark.spec("RT-3", "RT-12", "INB-7")
@pytest.mark.parametrize(
    "hostile",
    [
        streams_bytes,
        keeps_a_cancel,
        closes_itself,
        fails_without_words,
        spoils_its_messages,
        fails_deeply,
        leaves_a_nursery_open,
        leaves_a_nursery_open_and_fails,
        leaves_a_scope_open,
        says_the_store_is_down,
    ],
    ids=lambda run: run.__name__,
)
async def test_its_message_uses_its_attempts_and_the_tree_stands(hostile: Run, autojump_clock: MockClock) -> None:
    async def echo(turn: Turn) -> str:
        return turn.text

    async with running({"hostile": hostile, "echo": echo}) as board:
        bad, good = await board.open("hostile"), await board.open("echo")
        receipt = await board.post(bad)
        innocent = await board.post(good)
        assert (await board.final(innocent)).outcome is Outcome.ANSWERED
        view = await board.final(receipt)
        assert (view.status, view.reason, view.attempts) == (Status.FAILED, Reason.RETRIES_USED, 5)
        assert view.takeovers == 0
        assert set(board.restarts().values()) == {0}


@pytest.mark.spec("RT-3")
async def test_a_turn_beside_one_that_leaves_a_nursery_open_goes_on(autojump_clock: MockClock) -> None:
    ran: list[str] = []

    async def slow(turn: Turn) -> str:
        ran.append(turn.message.id)
        await trio.sleep(3)
        return "undisturbed"

    async with running({"hostile": leaves_a_nursery_open, "slow": slow}) as board:
        good = await board.post(await board.open("slow"))
        bad = await board.post(await board.open("hostile"))
        assert (await board.final(good)).outcome is Outcome.ANSWERED
        assert ran == [good.id]
        assert (await board.final(bad)).reason is Reason.RETRIES_USED


@pytest.mark.spec("RT-8", "INB-7")
async def test_a_kept_turn_can_do_nothing_and_costs_an_attempt(autojump_clock: MockClock) -> None:
    kept: list[Turn] = []
    refused: list[LeaseLost] = []

    async def keeper(turn: Turn) -> str:
        kept.append(turn)
        try:
            await kept[0].emit("late")
        except LeaseLost as error:
            refused.append(error)
            raise
        return "first"

    async with running({"keeper": keeper}) as board:
        session = await board.open("keeper")
        first = await board.final(await board.post(session))
        second = await board.final(await board.post(session, kind=Kind.AGENT_MESSAGE))
        assert first.outcome is Outcome.ANSWERED
        assert (second.reason, second.attempts, second.takeovers) == (Reason.RETRIES_USED, 5, 0)
        assert len(refused) == 5


@pytest.mark.spec("EVT-4")
async def test_half_a_character_in_a_stream_becomes_a_question_mark(autojump_clock: MockClock) -> None:
    async def half(turn: Turn) -> None:
        await turn.emit("a \ud800 b")

    async with running({"half": half}) as board:
        session = await board.open("half")
        view = await board.final(await board.post(session))
        assert (view.outcome, view.attempt) == (Outcome.ANSWERED, 1)
        assert await board.texts(session) == ["a ? b"]
