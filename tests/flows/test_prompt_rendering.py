"""Blocks of a program's own: asked before each call, left out when they fail, waited for together. Not here: the blocks that are shipped."""

from __future__ import annotations

import functools
import itertools
import logging
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest
import trio
from trio.testing import MockClock

from callboard import Block, ChatAgent, InvalidField, Tuning, Turn, standard_blocks
from callboard.actors.models.model import Completion, Emit, Prompt
from callboard.actors.session.prompt import rendering
from callboard.storage.model.errors import LeaseLost, StoreDown
from callboard.storage.model.states import Status
from callboard.tests.flows.chat_kit import WrittenModel, asks, chatting, text
from callboard.tests.flows.prompt_kit import Pause, look, looked_at
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


@pytest.mark.parametrize(
    "how", ["raises", "is late", "has no variable", "raises a group", "exits", "exits on its way out"]
)
async def test_a_block_that_fails_is_left_out_and_named_without_its_data(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Also one that calls `sys.exit`, as some libraries do: neither its turn ends with it, nor who only looks at the prompt."""

    async def fails(turn: Turn) -> Mapping[str, Any]:
        match how:
            case "raises":
                raise RuntimeError("secret")
            case "is late":
                await trio.sleep(rendering.PROVIDE_SECONDS + 1)
            case "raises a group":
                raise ExceptionGroup("secret", [ValueError("secret")])
            case "exits":
                sys.exit("secret")
            case "exits on its way out":
                try:
                    await trio.sleep_forever()
                finally:
                    sys.exit("secret")
            case _:
                pass
        return {"other": "secret"}

    with caplog.at_level(logging.WARNING, "callboard"):
        async with chatting(blocks=[own(fails)]) as chat:
            assert await chat.ask(text("Hello.")) == "Hello."
            assert [view.attempts for view in chat.views] == [0], "its first attempt"
            assert chat.model.blocks(0) == {}
            (record,) = caplog.records
            agent = chat.board.runtime.agents["desk"]
            shown = await looked_at(chat.board.runtime.desk, agent.owner, chat.desk)  # type: ignore[attr-defined]
            assert shown.blocks == ()
    assert "context block mood" in record.getMessage()
    assert "secret" not in record.getMessage()
    assert record.exc_info is None


async def test_ctrl_c_in_a_block_is_no_failure_of_its_own() -> None:
    async def interrupted(turn: Turn) -> None:
        raise KeyboardInterrupt

    async def other(turn: Turn) -> Mapping[str, Any]:
        return {"mood": "good"}

    with pytest.raises(BaseExceptionGroup) as ended:
        async with chatting(blocks=[own(interrupted), own(other, "other")]) as chat:
            await chat.ask(text("Hello."))
    assert ended.value.subgroup(KeyboardInterrupt) is not None


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


@pytest.mark.spec("CTX-1", "CTX-5")
async def test_blocks_are_rendered_at_the_call_and_not_when_the_message_is_accepted(store_url: str) -> None:
    """ "Evaluated lazily, at the last moment, when the prompt is assembled for each model call, not when the turn is enqueued".

    A session that is opened while the message waits is in the first request of its turn, one that is opened between two rounds in the next.
    """
    async with chatting(look, url=store_url) as chat:
        before = Pause(text("Done."))

        async def opens(prompt: Prompt, emit: Emit) -> Completion:
            await chat.board.open(path="/between")
            return asks(("look", {}))

        chat.model.answers += [before, opens, text("Seen.")]
        await chat.board.post(chat.desk, "first")
        await before.begun.wait()
        receipt = await chat.board.post(chat.desk, "second")
        await chat.board.open(path="/while-it-waits")
        before.go_on.set()
        assert (await chat.board.final(receipt)).outcome == "answered"
    directories = [chat.model.blocks(number).get("directory", "").splitlines()[1:] for number in range(3)]
    assert directories == [
        [],
        ["- /while-it-waits (agent)"],
        ["- /between (agent)", "- /while-it-waits (agent)"],
    ]


@pytest.mark.spec("CTX-1")
async def test_what_a_block_said_is_stored_nowhere(store_url: str) -> None:
    """ "Rendered text is not stored in the transcript", nor in any other row: not in a step, not in an event."""

    async def mood(turn: Turn) -> Mapping[str, Any]:
        return {"mood": "zephyr-quagmire"}

    async with chatting(look, url=store_url, blocks=[*standard_blocks(), own(mood)]) as chat:
        await chat.board.open(path="/elsewhere")
        await chat.ask(asks(("look", {})), text("An answer-to-keep."), post="a post-to-keep")
    stored = everything_in(store_url)
    assert [chat.model.blocks(number)["mood"] for number in range(2)] == ["Mood: zephyr-quagmire"] * 2
    assert ("answer-to-keep" in stored, "post-to-keep" in stored) == (True, True)
    for told in ("zephyr-quagmire", "[context:", "Sessions you can connect the user to"):
        assert told not in stored


def everything_in(url: str) -> str:
    """All rows of all tables as text."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return "\n".join(connection.iterdump())
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        found = [connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall() for (table,) in tables]
        return "\n".join(row for rows in found for (row,) in rows)
