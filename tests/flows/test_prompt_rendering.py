"""Blocks of a program's own: asked before each call, left out when they fail, waited for together. Not here: the blocks that are shipped."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Block, ChatAgent, InvalidField, Tuning, Turn, standard_blocks
from callboard.actors.models.model import Completion, Emit, Prompt
from callboard.actors.session.prompt import rendering
from callboard.storage.model.errors import LeaseLost, StoreDown
from callboard.storage.model.states import Status
from callboard.tests.flows.chat_kit import WrittenModel, asks, chatting, text
from callboard.tests.flows.prompt_kit import look, looked_at
from callboard.tests.flows.turn_kit import running


def own(provide: Any, name: str = "mood", template: str = "Mood: {{ mood }}") -> Block:
    return Block(name, 5, template, provide)


async def test_blocks_that_hang_are_waited_for_at_the_same_time_and_once_in_a_turn(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []
    together = [trio.Event(), trio.Event()]

    def hanging(name: str) -> Block:
        async def hang(turn: Turn) -> Mapping[str, Any]:
            asked.append(name)
            try:
                await trio.sleep_forever()
            finally:
                if name == "hang0":
                    raise ValueError("on its way out")

        return own(hang, name)

    async def meets(turn: Turn, mine: int) -> Mapping[str, Any]:
        together[mine].set()
        await together[1 - mine].wait()
        return {"mood": mine}

    mood = [own(functools.partial(meets, mine=mine), f"mood{mine}") for mine in range(2)]
    async with chatting(look, blocks=[*(hanging(f"hang{n}") for n in range(4)), *mood]) as chat:
        began = trio.current_time()
        await chat.ask(asks(("look", {})), asks(("look", {})), text("Done."))
        assert trio.current_time() - began < 2 * rendering.PROVIDE_SECONDS
        assert sorted(asked) == ["hang0", "hang1", "hang2", "hang3"]
        assert [chat.model.blocks(n) for n in range(3)] == [{"mood0": "Mood: 0", "mood1": "Mood: 1"}] * 3
        assert len(caplog.records) == 4
        await chat.ask(text("Done."))
        assert len(asked) == 8, "the next turn asks again"


async def test_what_ends_the_attempt_does_not_wait_for_blocks_that_hang(autojump_clock: MockClock) -> None:
    lost = LeaseLost("lost")

    async def fails(turn: Turn) -> Mapping[str, Any]:
        raise lost

    async def hangs(turn: Turn) -> Mapping[str, Any]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("on its way out")

    async with running() as board:
        desk = await board.open()

        async def body(turn: Turn) -> str:
            began = trio.current_time()
            with pytest.raises(LeaseLost) as raised:
                await rendering.rendered(turn, [own(hangs, "hangs"), own(fails)])
            assert raised.value is lost
            assert await rendering.rendered(turn, [own(hangs, "late")]) == ()
            return str(trio.current_time() - began)

        board.plan(desk, body)
        await board.ask(desk)
        assert [entry.content for entry in await board.entries(desk)][-1] == str(rendering.PROVIDE_SECONDS)


async def test_looking_at_a_prompt_waits_once_for_a_block_that_hangs_and_leaves_the_turn_as_it_is(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []

    async def hang(turn: Turn) -> Mapping[str, Any]:
        asked.append(trio.current_time())
        await trio.sleep(3_600 if len(asked) == 1 else 0)
        return {"mood": "good"}

    async with chatting(look, blocks=[own(hang)]) as chat:
        agent = chat.board.runtime.agents["desk"]

        async def looking(prompt: Prompt, emit: Emit) -> Completion:
            asked.clear()
            await looked_at(chat.board.runtime.desk, agent.owner, chat.desk)  # type: ignore[attr-defined]
            assert len(asked) == 1
            return asks(("look", {}))

        await chat.ask(looking, text("Done."))
        assert "mood" not in chat.model.blocks(0)


@pytest.mark.spec("CTX-1", "CTX-2", "CTX-3")
async def test_a_block_of_one_s_own_is_asked_before_each_call_and_left_out_if_it_is_empty(
    autojump_clock: MockClock,
) -> None:
    moods: list[Mapping[str, Any] | None] = [{"mood": "good"}, None, {}, {"mood": "{{ bad }}"}]
    sessions: list[str] = []

    async def mood(turn: Turn) -> Mapping[str, Any] | None:
        sessions.append(turn.session.id)
        return moods.pop(0)

    async with chatting(look, blocks=[*standard_blocks(), own(mood)]) as chat:
        await chat.ask(asks(("look", {})), asks(("look", {})), asks(("look", {})), text("Done."))
        assert [chat.model.blocks(n).get("mood") for n in range(4)] == ["Mood: good", None, None, "Mood: (( bad ))"]
        assert list(chat.model.blocks(0)) == ["mood", "date"]
        assert sessions == [chat.desk.id] * 4
        assert chat.model.tail(3)[: len(chat.model.tail(1))] == chat.model.tail(1), "the tail only grows"
        hashes = [event.data["request_hash"] for event in await chat.board.events(chat.desk, "model.request")]
        assert hashes == [prompt.content_hash for prompt in chat.model.prompts]


@pytest.mark.parametrize("how", ["raises", "is late", "has no variable", "raises a group"])
async def test_a_block_that_fails_is_left_out_and_named_without_its_data(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    async def fails(turn: Turn) -> Mapping[str, Any]:
        match how:
            case "raises":
                raise RuntimeError("secret")
            case "is late":
                await trio.sleep(rendering.PROVIDE_SECONDS + 1)
            case "raises a group":
                raise ExceptionGroup("secret", [ValueError("secret")])
            case _:
                pass
        return {"other": "secret"}

    with caplog.at_level(logging.WARNING, "callboard.prompt"):
        async with chatting(blocks=[own(fails)]) as chat:
            assert await chat.ask(text("Hello.")) == "Hello."
            assert chat.model.blocks(0) == {}
    (record,) = caplog.records
    assert "context block mood" in record.getMessage()
    assert "secret" not in record.getMessage()
    assert record.exc_info is None


@pytest.mark.parametrize("error", [LeaseLost("lost"), StoreDown("down")])
@pytest.mark.parametrize("grouped", [False, True])
async def test_what_ends_the_attempt_passes_a_block(autojump_clock: MockClock, error: Exception, grouped: bool) -> None:
    failing = itertools.chain(
        [ExceptionGroup("both", [error, ValueError()]) if grouped else error], itertools.repeat(None)
    )

    async def fails(turn: Turn) -> Mapping[str, Any] | None:
        given_error = next(failing)
        if given_error is not None:
            raise given_error
        return {"mood": "good"}

    async with chatting(blocks=[own(fails)]) as chat:
        chat.model.answers.append(text("Hello."))
        receipt = await chat.board.post(chat.desk)
        assert (await chat.board.final(receipt)).status is Status.DELIVERED
        assert [prompt.messages[1]["content"] for prompt in chat.model.prompts] == ["[context: mood]\nMood: good"]


async def test_a_block_ends_with_its_turn(autojump_clock: MockClock) -> None:
    """A stop's cancel is never taken for a block that is late."""
    begun, ended = trio.Event(), trio.Event()

    async def slow(turn: Turn) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with chatting(blocks=[own(slow)], tuning=Tuning(stop_grace_seconds=1.0)) as chat:
        receipt = await chat.board.post(chat.desk)
        await begun.wait()
        await chat.board.runtime.stop(chat.desk.id)
        assert (await chat.board.final(receipt)).outcome == "stopped"
        assert ended.is_set()
        assert chat.model.prompts == []


def test_two_blocks_of_one_name_are_refused() -> None:
    async def nothing(turn: Turn) -> None:
        return None

    with pytest.raises(InvalidField) as refused:
        ChatAgent(WrittenModel(), blocks=[own(nothing), own(nothing)])
    assert refused.value.path == "blocks.mood"
