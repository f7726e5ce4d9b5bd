"""Long sessions: what is older is told in short, by a model that is asked once, or by rule; and no message is lost on the way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Tool, tool
from callboard.actors.models.model import Completion, Emit, ModelUnavailable, Prompt
from callboard.actors.session.prompt import compaction, summary
from callboard.actors.session.prompt.compaction import LEFT_OUT, SHORTENED, SUMMED_UP
from callboard.actors.session.prompt.summary import SHORT_CHARS, TASK
from callboard.storage.model.errors import StoreDown
from callboard.storage.model.messages import Kind
from callboard.storage.model.turns import Summary
from callboard.storage.ops import Op, RecordStep
from callboard.tests.flows.chat_kit import Answer, Chat, WrittenModel, asks, chatting, text
from callboard.tests.flows.prompt_kit import looked_at
from callboard.tests.flows.turn_kit import MEMORY

LONG = "." * 980


@asynccontextmanager
async def compacting(
    *answers: Answer, tools: Sequence[Tool] = (), url: str = MEMORY
) -> AsyncIterator[tuple[Chat, WrittenModel]]:
    """A chat of which 2,000 characters are told as they are, and the model that sums up the rest."""
    memory = WrittenModel([*answers], name="memory-1")
    async with chatting(*tools, history_chars=2_000, compact_with=memory, url=url) as chat:
        yield chat, memory


async def talk(chat: Chat, *numbers: int) -> None:
    for number in numbers:
        await chat.ask(text(f"answer {number} {LONG}"[:980]), post=f"question {number} {LONG}"[:20])


def summed_up(told: str) -> tuple[str, str]:
    return ("user", f"[system notice]\n{SUMMED_UP}\n{told}")


def pair(number: int) -> list[tuple[str, str]]:
    return [("user", f"question {number} {LONG}"[:20]), ("assistant", f"answer {number} {LONG}"[:980])]


@pytest.mark.spec("CTX-3", "CTX-6")
async def test_a_model_sums_up_what_is_older_once_for_all_later_turns(store_url: str) -> None:
    async with compacting(text("Ann asked 1 and 2."), text("Ann asked 1 to 4."), url=store_url) as (chat, memory):
        await talk(chat, 1, 2, 3)
        assert memory.prompts == [], "two pairs fit"
        await talk(chat, 4)
        assert chat.model.told(3) == [summed_up("Ann asked 1 and 2."), *pair(3), pair(4)[0]]
        task, material = memory.prompts[0].messages
        assert task == {"role": "system", "content": TASK}
        assert json.loads(material["content"]) == {
            "remembered": "",
            "messages": [
                {"from": "a member" if role == "user" else "you", "text": content}
                for role, content in (*pair(1), *pair(2))
            ],
        }
        assert memory.prompts[0].tools == ()
        await talk(chat, 5)
        assert len(memory.prompts) == 1
        assert chat.model.told(4) == [summed_up("Ann asked 1 and 2."), *pair(3), *pair(4), pair(5)[0]]
        assert chat.model.told(4)[: len(chat.model.told(3))] == chat.model.told(3), "what is known stays known"
        await talk(chat, 6)
        assert json.loads(memory.prompts[1].messages[1]["content"])["remembered"] == "Ann asked 1 and 2."
        assert chat.model.told(5) == [summed_up("Ann asked 1 to 4."), *pair(5), pair(6)[0]]
        requests = await chat.board.events(chat.desk, "model.request")
        asked = [event.data for event in requests if "summary_upto" in event.data]
        assert [(data["summary_upto"], data["model"], data["request_hash"]) for data in asked] == [
            (3, "memory-1", memory.prompts[0].content_hash),
            (7, "memory-1", memory.prompts[1].content_hash),
        ]
        kept = await chat.board.runtime.store.reads.summary(chat.board.scope, chat.desk.id)
        assert kept == Summary(7, "Ann asked 1 to 4.")


@pytest.mark.spec("RT-10")
async def test_a_later_attempt_does_not_have_it_summed_up_again(autojump_clock: MockClock) -> None:
    async with compacting(text("Short.")) as (chat, memory):
        await talk(chat, 1, 2, 3)
        chat.model.answers.append(ModelUnavailable("gone"))
        await talk(chat, 4)
        assert chat.views[-1].attempts == 1
        assert len(memory.prompts) == 1
        assert chat.model.told(4) == chat.model.told(3)
        assert chat.model.told(4)[0] == summed_up("Short.")


@pytest.mark.spec("RT-10")
async def test_an_attempt_that_dies_before_it_is_kept_asks_again(autojump_clock: MockClock) -> None:
    async with compacting(text("Lost."), text("Kept.")) as (chat, memory):
        await talk(chat, 1, 2, 3)
        failed: list[Op[Any]] = []

        async def apply(op: Op[Any]) -> Any:
            if isinstance(op, RecordStep) and op.summary is not None and not failed:
                failed.append(op)
                raise StoreDown("gone")
            return await applied(op)

        applied = chat.board.runtime.store.apply
        chat.board.runtime.store.apply = apply  # type: ignore[method-assign]
        await talk(chat, 4)
        assert len(memory.prompts) == 2
        assert chat.model.told(3)[0] == summed_up("Kept.")


async def late(prompt: Prompt, emit: Emit) -> Completion:
    await trio.sleep(summary.SUMMARY_SECONDS + 1)
    return text("Too late.")


@pytest.mark.parametrize("answer", [ModelUnavailable("gone"), ValueError("odd"), text(" "), late])
async def test_where_the_model_fails_the_rule_is_used_and_it_is_asked_again_after_a_while(
    autojump_clock: MockClock, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    async with compacting(answer, text("Short.")) as (chat, memory):
        await talk(chat, 1, 2, 3, 4)
        role, told = chat.model.told(3)[0]
        assert (role, told.splitlines()[:2]) == ("user", ["[system notice]", SHORTENED])
        assert chat.model.told(3)[1:] == [*pair(3), pair(4)[0]]
        assert "the rule is used" in caplog.text
        await talk(chat, 5)
        assert len(memory.prompts) == 1, "not in each turn"
        assert chat.model.told(4)[0][1].splitlines()[1] == SHORTENED
        await trio.sleep(summary.REST_SECONDS)
        await talk(chat, 6)
        assert chat.model.told(5)[0] == summed_up("Short.")
        assert len(memory.prompts) == 2


def read(memory: WrittenModel, request: int) -> list[str]:
    """The texts that the model was given to sum up."""
    return [message["text"] for message in json.loads(memory.prompts[request].messages[1]["content"])["messages"]]


async def test_a_model_is_given_a_bounded_portion_and_the_rest_is_told_by_rule(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "MATERIAL_CHARS", 2_500)
    async with compacting(ModelUnavailable("gone"), text("1 and 2."), text("1 to 4.")) as (chat, memory):
        await talk(chat, *range(1, 9))
        await trio.sleep(summary.REST_SECONDS)
        await talk(chat, 9)
        assert read(memory, 1) == [content for number in (1, 2) for _, content in pair(number)]
        first, then = chat.model.told(8)[:2]
        assert first == summed_up("1 and 2.")
        assert then[1].splitlines()[1] == SHORTENED
        await talk(chat, 10)
        assert read(memory, 2) == [content for number in (3, 4) for _, content in pair(number)]
        assert max(len(str(prompt.messages[1]["content"])) for prompt in memory.prompts) < 3_000


async def test_a_turn_that_is_too_much_by_itself_is_cut_in_its_texts(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "MATERIAL_CHARS", 1_000)
    async with compacting(text("1.")) as (chat, memory):
        await chat.ask(text("a" * 5_000), post="q" * 5_000)
        await talk(chat, 2)
        assert read(memory, 0) == ["q" * 499 + "…", "a" * 499 + "…"]
        kept = await chat.board.runtime.store.reads.summary(chat.board.scope, chat.desk.id)
        assert kept == Summary(1, "1.")


@pytest.mark.spec("CTX-3")
async def test_a_late_summary_begins_at_the_beginning_and_what_is_left_out_is_said_until_it_has_caught_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "ENTRIES_MOST", 8)
    monkeypatch.setattr(compaction, "STRIDE", 2)
    monkeypatch.setattr(summary, "MATERIAL_CHARS", 500)
    memory = WrittenModel([ModelUnavailable("gone")], name="memory-1")
    async with chatting(history_chars=100_000, compact_with=memory) as chat:

        async def say(number: int) -> list[str]:
            await chat.ask(text(f"a{number}"), post=f"q{number}")
            return [content for _, content in chat.model.told(-1)]

        for number in range(1, 31):
            await say(number)
        assert len(memory.prompts) == 1
        await trio.sleep(summary.REST_SECONDS)
        summed: list[str] = []
        left_out = True
        for number in range(31, 60):
            memory.answers.append(text(f"Up to {number}."))
            asked = len(memory.prompts)
            told = await say(number)
            kept = await chat.board.runtime.store.reads.summary(chat.board.scope, chat.desk.id)
            assert kept is not None
            if len(memory.prompts) > asked:
                summed += read(memory, asked)
            count = len(summed) // 2
            assert summed == [f"{who}{n}" for n in range(1, count + 1) for who in "qa"], "nothing is passed over"
            assert kept.upto == 2 * count - 1
            whole = [content for content in told if content[0] in "qa"]
            at = int(whole[0][1:])
            by_rule = [line for content in told for line in content.splitlines() if line.startswith("- a member: q")]
            since = int(by_rule[0].rpartition("q")[2]) if by_rule else at
            left_out = any(LEFT_OUT in content or "\n- …" in content for content in told)
            assert left_out == (since > count + 1), told
            memory.answers.clear()
        assert not left_out


async def test_what_a_model_makes_of_it_is_bounded(autojump_clock: MockClock) -> None:
    async with compacting(text("x" * 100_000 + "\0")) as (chat, _):
        await talk(chat, 1, 2, 3, 4)
        kept = await chat.board.runtime.store.reads.summary(chat.board.scope, chat.desk.id)
        assert kept is not None
        assert len(kept.text) == SHORT_CHARS


@pytest.mark.spec("MSG-2", "CTX-3")
async def test_a_message_that_still_waits_is_told_later_whatever_was_summed_up_around_it(
    autojump_clock: MockClock,
) -> None:
    """A post is steered past one of an agent's that waits; a summary of that turn must not pass the one that waits."""

    @tool("pure")
    async def look() -> str:
        await chat.board.post(chat.desk, "from an agent", kind=Kind.AGENT_MESSAGE)
        await chat.board.post(chat.desk, "steered in")
        return "looked"

    async with compacting(text("Short."), text("Shorter."), tools=[look]) as (chat, _):
        await talk(chat, 1, 2)
        chat.model.answers += [asks(("look", {})), text(f"answer 3 {LONG}"), text("To the agent.")]
        await chat.board.post(chat.desk, "three")
        await chat.board.until(chat.desk, "turn.completed", 4)
        told = [content for _, content in chat.model.told(-1)]
        assert told[-1] == "from an agent"
        await talk(chat, 4)
        assert any("from an agent" in content for _, content in chat.model.told(-1))


@pytest.mark.spec("CTX-1")
async def test_looking_at_a_prompt_asks_no_model(autojump_clock: MockClock) -> None:
    async with compacting() as (chat, memory):
        await talk(chat, 1, 2, 3)
        agent = chat.board.runtime.agents["desk"]
        prompt = await looked_at(chat.board.runtime.desk, agent.owner, chat.desk)  # type: ignore[attr-defined]
        assert prompt.tail[0]["content"].splitlines()[1] == SHORTENED
        assert memory.prompts == []


async def test_by_rule_the_same_past_gives_the_same_bytes_until_the_cut_moves(autojump_clock: MockClock) -> None:
    async with chatting(history_chars=4_000) as chat:
        await talk(chat, *range(1, 16))
        heads = [chat.model.told(request)[0] for request in range(15)]
        assert heads[4] == pair(1)[0], "all of it fits"
        moves = sum(1 for before, after in pairwise(heads) if before != after)
        assert moves <= 6, "not at each turn"
        for before, after in pairwise(range(15)):
            if heads[before] == heads[after]:
                told = chat.model.told(before)
                assert chat.model.told(after)[: len(told)] == told
