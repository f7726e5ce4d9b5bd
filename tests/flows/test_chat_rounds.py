"""A turn of a chat agent: its rounds and calls are on record as they happen, and an attempt that follows asks for none of it again (RT-10)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Call, ChatAgent, InvalidField, Tool, tool
from callboard.actors.models.model import BrokenAnswer, Completion, Emit, ModelUnavailable, Prompt
from callboard.storage.model.errors import StoreDown
from callboard.storage.model.states import Outcome
from callboard.storage.model.turns import Step, StepKind
from callboard.storage.ops import Op, RecordStep
from callboard.tests.flows.chat_kit import Answer, Chat, WrittenModel, asks, chatting, results, text
from callboard.tests.flows.turn_kit import Board

pytestmark = [pytest.mark.spec("RT-10"), pytest.mark.usefixtures("monday")]


class Bench:
    """Tools that write down each time they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.actions: list[str] = []
        self.fails: Counter[str] = Counter()
        """How often each is still to fail."""

    def tool(self, kind: str) -> Tool:
        async def run(call: Call, x: int = 0) -> dict[str, Any]:
            """Does something."""
            self.ran.append(f"{kind} {x}")
            self.actions.append(call.action_id)
            if self.fails[kind]:
                self.fails[kind] -= 1
                raise OSError("the connection broke")
            return {"done": f"{kind} {x}"}

        return tool(kind, name=kind)(run)

    @property
    def tools(self) -> list[Tool]:
        return [self.tool(kind) for kind in ("pure", "durable", "external")]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def steps(chat: Chat) -> tuple[Step, ...]:
    """The step log of the only turn so far."""
    (created,) = await chat.board.events(chat.desk, "message.created")
    return await chat.board.runtime.store.reads.steps(chat.board.scope, created.data["id"])


async def test_a_turn_of_several_rounds(autojump_clock: MockClock, bench: Bench) -> None:
    async with chatting(*bench.tools) as chat:
        said = await chat.ask(
            asks(("durable", {"x": 1}), ("pure", {"x": 2}), words="Let me see."),
            asks(("durable", {"x": 1})),
            text("It is done."),
        )
        assert said == "Let me see.\n\nIt is done."
        assert bench.ran == ["durable 1", "pure 2", "durable 1"], "in order"
        assert chat.model.told(0) == [("user", "hello")]
        assert chat.model.prompts[0].messages[0]["content"].startswith("You are the desk.\n\n")
        assert [spec.name for spec in chat.model.prompts[0].tools] == [
            *("agent", "agent_list", "agent_read", "agent_send", "agent_stop", "connect_user"),
            *("pure", "durable", "external"),
        ]
        told = chat.model.tail(1)[1:]
        assert told == [
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"id": "c0", "type": "function", "function": {"name": "durable", "arguments": '{"x": 1}'}},
                    {"id": "c1", "type": "function", "function": {"name": "pure", "arguments": '{"x": 2}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c0", "content": '{"done": "durable 1"}'},
            {"role": "tool", "tool_call_id": "c1", "content": '{"done": "pure 2"}'},
        ]
        before = chat.model.prompts[1].messages
        assert chat.model.prompts[2].messages[: len(before)] == before
        assert await chat.board.kinds(chat.desk) == [
            *("message.created", "turn.started", "attempt.claimed", "model.request", "turn.token"),
            *("tool.call", "tool.result") * 2,
            *("model.request", "tool.call", "tool.result", "model.request", "turn.token", "turn.completed"),
        ]


@pytest.mark.spec("CTX-6")
async def test_the_hash_of_each_prompt_is_stored_with_its_request_and_its_round(
    autojump_clock: MockClock, bench: Bench
) -> None:
    async with chatting(*bench.tools) as chat:
        await chat.ask(asks(("pure", {})), text("Done."))
        hashes = [prompt.content_hash for prompt in chat.model.prompts]
        events = await chat.board.events(chat.desk, "model.request")
        assert [(e.data["round"], e.data["model"], e.data["request_hash"], e.data["attempt"]) for e in events] == [
            (1, "written-1", hashes[0], 1),
            (2, "written-1", hashes[1], 1),
        ]
        rounds = [step for step in await steps(chat) if step.kind is StepKind.ROUND]
        assert [step.data["request_hash"] for step in rounds] == hashes
        assert hashes[0] != hashes[1]


async def test_a_round_is_on_record_before_its_tools_run(autojump_clock: MockClock) -> None:
    seen: list[list[tuple[str, bool]]] = []

    @tool("pure")
    async def look() -> None:
        seen.append([(step.key, step.done) for step in await steps(chat)])

    async def slowly(prompt: Prompt, emit: Emit) -> Completion:
        seen.append([(step.key, step.done) for step in await steps(chat)])
        return asks(("look", {}), tokens=7)

    async with chatting(look) as chat:
        await chat.ask(slowly, text("Done."))
        assert seen == [[("round:1", False)], [("round:1", True)]]
        first, *_ = await steps(chat)
        assert first.result["answer"] == {
            "text": "",
            "calls": [{"id": "c0", "name": "look", "arguments": "{}"}],
            "finish": "tool_calls",
            "usage": {"prompt": 6, "completion": 1, "total": 7},
            "model": None,
        }


TURN = [
    asks(("durable", {"x": 1}), ("pure", {"x": 2}), words="One."),
    asks(("external", {"x": 3}), ("agent_send", {"agent_id": "/other", "message": "once"}), words="Two."),
    text("Three."),
]


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_an_attempt_that_fails_in_any_round_is_continued_there(
    autojump_clock: MockClock, bench: Bench, failing: int
) -> None:
    answers: list[Answer] = list(TURN)
    answers.insert(failing, ModelUnavailable("not now"))
    async with chatting(*bench.tools) as chat:
        other = await chat.board.open(path="/other")
        assert await chat.ask(*answers) == "One.\n\nTwo.\n\nThree."
        assert bench.ran == ["durable 1", "pure 2", "external 3"]
        assert await chat.board.texts(other, "user") == ["once"]
        assert len(chat.model.prompts) == 4, "only the round that failed is asked for again"
        assert chat.model.prompts[failing] == chat.model.prompts[failing + 1], "with the same prompt"
        requests = [(e.data["attempt"], e.data["round"]) for e in await chat.board.events(chat.desk, "model.request")]
        first = [(1, number) for number in range(1, failing + 2)]
        assert requests == first + [(2, number) for number in range(failing + 1, 4)]
        assert [(view.attempt, view.attempts) for view in chat.views] == [(2, 1)]
        tokens = [e.data for e in await chat.board.events(chat.desk, "turn.token")]
        assert "".join(t["text"] for t in tokens if t["attempt"] == 2) == "One.\n\nTwo.\n\nThree."


@pytest.mark.parametrize("kind", ["pure", "durable", "external"])
async def test_a_call_that_was_cut_off_goes_by_its_class_and_no_model_call_is_repeated(
    autojump_clock: MockClock, bench: Bench, kind: str
) -> None:
    bench.fails[kind] = 1
    async with chatting(*bench.tools) as chat:
        assert await chat.ask(asks((kind, {"x": 1}), ("pure", {"x": 9})), text("Done.")) == "Done."
        assert bench.ran == [f"{kind} 1"] * (1 if kind == "external" else 2) + ["pure 9"]
        assert len(set(bench.actions)) == 2
        assert len(chat.model.prompts) == 2
        expected = f"interrupted: {kind} may have run; it was not repeated"
        (_, first), (_, second) = results(chat.model.prompts[1])
        assert first == (expected if kind == "external" else {"done": f"{kind} 1"})
        assert second == {"done": "pure 9"}


async def test_an_answer_that_broke_off_is_dropped_with_its_attempt(autojump_clock: MockClock) -> None:
    async def broken(prompt: Prompt, emit: Emit) -> Completion:
        await emit("I think that " + "." * 300)
        raise BrokenAnswer("it broke off")

    async with chatting() as chat:
        assert await chat.ask(broken, text("All is well.")) == "All is well."
        kinds = await chat.board.kinds(chat.desk)
        assert kinds.index("turn.token") < kinds.index("attempt.relinquished") < kinds.index("turn.completed")
        rounds = await steps(chat)
        assert [(step.key, step.data["attempt"]) for step in rounds] == [("round:1", 2)]


async def test_a_model_that_never_answers_fails_the_message_and_says_why(autojump_clock: MockClock) -> None:
    async with chatting() as chat:
        chat.model.answers += [ModelUnavailable("no route to the model")] * 5
        view = await chat.board.ask(chat.desk)
        assert (view.status, view.reason, view.attempts) == ("failed", "retries_used", 5)
        assert "no route to the model" in (view.last_error or "")


async def test_the_same_call_twice_is_two_calls_and_each_has_its_place(autojump_clock: MockClock, bench: Bench) -> None:
    async with chatting(*bench.tools) as chat:
        await chat.ask(
            asks(*[("durable", {"x": 1})] * 2), asks(("durable", {"x": 1}), ("pure", {"x": 1})), text("Done.")
        )
        assert bench.ran == [*["durable 1"] * 3, "pure 1"]
        turn = (await chat.board.events(chat.desk, "turn.started"))[0].data["turn_id"]
        places = [action.removeprefix(f"{turn}:").split(":") for action in bench.actions]
        assert [place[0] for place in places] == ["1.0", "1.1", "2.0", "2.1"]
        first, second, third, other = (place[1] for place in places)
        assert first == second == third != other, "the digest is of name and arguments"


@pytest.mark.parametrize(
    ("name", "arguments", "path", "word"),
    [
        ("durable", '{"x": 1', "durable.arguments", "JSON"),
        ("durable", "[1]", "durable.arguments", "object"),
        ("durable", '{"x": NaN}', "durable.arguments", "NaN"),
        ("durable", "[" * 100_000, "durable.arguments", "nested"),
        ("durable", '{"x": "1"}', "durable.x", "whole number"),
        ("durable", '{"y": 1}', "durable.y", "not a known field"),
        ("agent_send", '{"agent_id": "/other"}', "agent_send.message", "required"),
        ("agent_send", '{"agent_id": "/other", "message": "hi", "sender": "x"}', "agent_send.sender", "known field"),
        ("agent_send", '{"agent_id": "/nowhere", "message": "hi"}', "path", "no session has this path"),
        ("agent_send", '{"agent_id": "/desk", "message": "hi"}', "agent_id", "your own session"),
        ("agent_read", '{"agent_id": 5}', "agent_read.agent_id", "string"),
        ("launch", "{}", "tool", "there is no tool 'launch'; there are: agent, "),
        ("unnamed", "", "tool", "no tool"),
    ],
)
async def test_a_call_that_is_wrong_is_refused_to_the_model_naming_the_field(
    autojump_clock: MockClock, bench: Bench, name: str, arguments: str, path: str, word: str
) -> None:
    async with chatting(*bench.tools) as chat:
        assert await chat.ask(asks((name, arguments), ("durable", {"x": 5})), text("I see.")) == "I see."
        (_, refused), (_, done) = results(chat.model.prompts[1])
        assert refused["error"]["path"] == path
        assert word in refused["error"]["message"]
        assert done == {"done": "durable 5"}
        assert bench.ran == ["durable 5"]
        for call in chat.model.tail(1)[1]["tool_calls"]:
            assert isinstance(json.loads(call["function"]["arguments"]), dict), "what is no object is not sent back"
        recorded = [step for step in await steps(chat) if step.kind is StepKind.CALL]
        assert [step.done for step in recorded] == [True, True], "a refusal is on record like any result"


async def test_a_refusal_is_fed_back_to_the_next_attempt(autojump_clock: MockClock, bench: Bench) -> None:
    async with chatting(*bench.tools) as chat:
        await chat.ask(asks(("launch", "{"), ("durable", '{"y": 1}')), ModelUnavailable("not now"), text("I see."))
        assert results(chat.model.prompts[1]) == results(chat.model.prompts[2])
        assert len(await chat.board.events(chat.desk, "tool.result")) == 2


async def test_a_store_that_is_down_is_no_refusal_that_the_model_is_told(autojump_clock: MockClock) -> None:
    boards: list[Board] = []
    refused: list[tuple[type[Op[Any]], ...]] = [(RecordStep,), ()]

    @tool("durable")
    async def unlucky() -> str:
        """The store does not take its result the first time."""
        boards[0].gate.broken = refused.pop(0)
        return "done"

    async with chatting(unlucky) as chat:
        boards.append(chat.board)
        chat.board.gate.refusal = StoreDown("it is closed")
        assert await chat.ask(asks(("unlucky", {})), text("Good.")) == "Good."
        assert len(chat.model.prompts) == 2
        assert results(chat.model.prompts[1]) == [("c0", "done")]
        assert [(view.attempt, view.attempts) for view in chat.views] == [(2, 0)]


async def test_the_five_tools_act_as_the_session(autojump_clock: MockClock) -> None:
    async with chatting() as chat:
        other = await chat.board.open(path="/other")
        await chat.ask(
            asks(("agent_send", {"agent_id": "/other", "message": " Good day. "}), ("agent_list", "")),
            asks(("agent", {"task": "count", "agent": "agent"}), ("agent_read", {"agent_id": other.id})),
            text("Done."),
        )
        ((_, sent), (_, listed)) = results(chat.model.prompts[1])
        assert (sent["agent_id"], sent["status"]) == (other.id, "pending")
        assert listed["has_more"] is False
        (entry,) = [e for e in await chat.board.entries(other) if e.role == "user"]
        assert (entry.content, entry.sender.id, entry.message_id) == ("Good day.", chat.desk.id, sent["message_id"])
        ((_, child), _) = results(chat.model.prompts[2])[2:]
        (found,) = [s for s in await chat.board.runtime.list_sessions() if s.parent == chat.desk.id]
        assert child["agent_id"] == found.id


async def test_results_are_text_and_have_a_limit(autojump_clock: MockClock) -> None:
    @tool("pure")
    async def big(n: int) -> str:
        return "x" * n

    @tool("pure")
    async def odd() -> Any:
        return {"ünï": [None, 1.5]}

    async with chatting(big, odd) as chat:
        await chat.ask(asks(("big", {"n": 40_000}), ("big", {"n": 40_001}), ("odd", {})), text("Done."))
        contents = [m["content"] for m in chat.model.prompts[1].messages if m["role"] == "tool"]
        assert contents[0] == "x" * 40_000
        assert contents[1] == "x" * 40_000 + "\n[1 characters cut]"
        assert contents[2] == '{"ünï": [null, 1.5]}'


async def test_an_answer_of_nothing_is_no_visible_reply(autojump_clock: MockClock) -> None:
    async with chatting() as chat:
        chat.model.answers.append(text(""))
        assert (await chat.board.ask(chat.desk)).outcome is Outcome.NO_VISIBLE_REPLY


async def test_tools_that_can_not_be_offered_are_refused_when_the_agent_is_made(bench: Bench) -> None:
    (pure, durable, _), model = bench.tools, WrittenModel()
    same = attrs.evolve(durable, name="pure")
    with pytest.raises(InvalidField, match="a name twice"):
        ChatAgent(model, tools=[pure, same])
    taken = attrs.evolve(pure, name="agent_send")
    with pytest.raises(InvalidField, match=r"tools\.agent_send: is the name of an agent tool"):
        ChatAgent(model, tools=[taken])
    ChatAgent(model, tools=[taken], agent_tools=False)
    await trio.lowlevel.checkpoint()
