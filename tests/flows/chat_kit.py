"""A model that says what a test wrote, in this process: for turns whose every round a test decides. Not here: a real service (`model_kit`)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from callboard import Budget, ChatAgent, Tool, Tuning
from callboard.actors.models.model import Completion, Emit, ModelCall, Prompt, Usage
from callboard.storage.model.messages import MessageView
from callboard.storage.model.sessions import Session
from callboard.tests.flows.turn_kit import MEMORY, Board, running

Answer = Completion | BaseException | Callable[[Prompt, Emit], Awaitable[Completion]]


@attrs.define
class WrittenModel:
    """Answers the n-th request with the n-th answer: given out in one piece, raised, or made by a function. `prompts` are what it was asked."""

    answers: list[Answer] = attrs.field(factory=list[Answer])
    prompts: list[Prompt] = attrs.field(factory=list[Prompt])
    name: str = "written-1"

    async def complete(self, prompt: Prompt, emit: Emit) -> Completion:
        self.prompts.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return await answer(prompt, emit)
        await emit(answer.text)
        return answer

    def tail(self, request: int) -> list[dict[str, Any]]:
        """The messages of the n-th request (from 0), without the system's and the context blocks."""
        return [m for m in self.prompts[request].messages[1:] if not str(m["content"]).startswith("[context: ")]

    def told(self, request: int) -> list[tuple[str, str]]:
        """The same, role and content."""
        return [(message["role"], message["content"]) for message in self.tail(request)]

    def blocks(self, request: int) -> dict[str, str]:
        """The context blocks of the n-th request by name, in their order."""
        found = [str(m["content"]).partition("\n") for m in self.prompts[request].messages[1:]]
        return {head[10:-1]: text for head, _, text in found if head.startswith("[context: ")}


def text(words: str, tokens: int | None = None) -> Completion:
    """An answer that ends the turn."""
    return Completion(words, finish="stop", usage=None if tokens is None else Usage(tokens - 1, 1, tokens))


def asks(*called: tuple[str, dict[str, Any] | str], words: str = "", tokens: int | None = None) -> Completion:
    """An answer that calls tools, each with arguments as an object or as the text that the model wrote."""
    calls = tuple(
        ModelCall(f"c{number}", name, given if isinstance(given, str) else json.dumps(given))
        for number, (name, given) in enumerate(called)
    )
    return attrs.evolve(text(words, tokens), calls=calls, finish="tool_calls")


@attrs.frozen
class Chat:
    """A board whose session `desk` (at /desk) talks with a written model."""

    board: Board
    model: WrittenModel
    desk: Session
    views: list[MessageView] = attrs.field(factory=list[MessageView])
    """The posts of `ask`, in their final state."""

    async def ask(self, *answers: Answer, post: str = "hello") -> str:
        """Post, let the model say `answers`, and give what the session answered ("" for nothing)."""
        self.model.answers += answers
        view = await self.board.ask(self.desk, post)
        self.views.append(view)
        found = [e.content for e in await self.board.entries(self.desk) if e.in_reply_to == view.message_id]
        assert len(found) <= 1
        return "".join(found)


@asynccontextmanager
async def chatting(
    *tools: Tool, budget: Budget | None = None, tuning: Tuning | None = None, url: str = MEMORY, **fields: Any
) -> AsyncIterator[Chat]:
    """A chat, by default on an in-memory store. `fields` are the agent's. The agent of other sessions is the board's puppet."""
    model = WrittenModel()
    agent = ChatAgent(model, "You are the desk.", tools=tools, budget=budget or Budget(), **fields)
    async with running({"desk": agent}, tuning=tuning, url=url) as board:
        yield Chat(board, model, await board.open("desk", path="/desk"))


def results(prompt: Prompt) -> Sequence[tuple[str, Any]]:
    """The tool results that a prompt ends with: call id and content, decoded if it is JSON."""
    return [(m["tool_call_id"], _decoded(m["content"])) for m in prompt.messages if m["role"] == "tool"]


def _decoded(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content
