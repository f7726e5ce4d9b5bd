"""Agents that do things outside their turn, and the side file that tells what they have really done.

Runs in the worker process only. Invariant: a line of the side file is on the disk before the tool that wrote it returns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker_hooks import say

import callboard
from callboard import Call, ChatAgent, ChatModel, Turn
from callboard.storage.model.errors import UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.tests.flows.prompt_day import stand_still

PARTIAL = "partial " + "." * 200
"""More than a block of tokens holds: when `emit` returns it is committed."""
LONG = "long " + "." * 19_000
"""Needs pages of its own in the file."""


class Side:
    """A file outside the store: what the tools have really done, whatever became of their turns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **line: Any) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()] if self.path.exists() else []


def tinker(side: Side) -> Callable[[Turn], Awaitable[str | None]]:
    book, look, ring = _tools(side)

    async def run(turn: Turn) -> str:
        """Nine commits of steps; `ring` makes two each."""
        done = [
            await turn.step(book, x=1),
            await turn.step(look, x=1),
            await turn.step(ring, x=1),
            (await turn.tools.agent_send("/helper", "from the tinker"))["status"],
            await turn.step(book, x=2),
            await turn.step(ring, x=2),
            (await turn.tools.agent_send("/helper", "from the tinker"))["status"],
        ]
        return "; ".join("interrupted" if isinstance(one, callboard.Interrupted) else str(one) for one in done)

    return run


def guide(side: Side) -> Callable[[Turn], Awaitable[str | None]]:
    book, _, ring = _tools(side)

    async def run(turn: Turn) -> str:
        """One of everything that a turn can do; hears its child and its notices."""
        if turn.message.kind == Kind.SUBAGENT_RESULT:
            return f"heard {turn.text}"
        if turn.text == "notices?":
            return f"notices: {sum(message.kind == Kind.NOTICE for message in turn.messages)}"
        await turn.step(book, x=1)
        await turn.step(ring, x=1)
        await turn.emit(PARTIAL)
        await turn.tools.agent_send("/helper", "from the guide")
        await turn.tools.agent_send("/slow", "wait for this")
        with suppress(UnknownTarget):
            await turn.tools.agent_send("/nowhere", "nobody hears this")
        started = await turn.tools.agent("a task", agent="nothing")
        return f"child {started['agent_id']}"

    return run


def talker(side: Side, url: str) -> ChatAgent:
    """A chat agent with the same tools; its turn is what the service at `url` says. Its day stands still: prompts are compared."""
    stand_still()
    return ChatAgent(ChatModel(url, "small-1"), "You are the desk.", tools=_tools(side))


class OwnStore:
    """An agent that commits in a store of its own, and can tell afterwards."""

    def __init__(self, side: Side) -> None:
        self._side = side

    async def run(self, turn: Turn) -> str:
        say("running", agent="keeper", message=turn.message.message_id, attempt=turn.attempt)
        self._side.write(tool="kept", message=turn.message.message_id)
        return "kept"

    async def has_committed(self, message_id: str) -> bool:
        return any(line["tool"] == "kept" and line["message"] == message_id for line in self._side.lines())


def _tools(side: Side) -> tuple[callboard.Tool, callboard.Tool, callboard.Tool]:
    @callboard.tool("durable")
    async def book(x: int, call: Call) -> str:
        side.write(tool="book", x=x, action=call.action_id)
        if not any(line["tool"] == "booked" and line["action"] == call.action_id for line in side.lines()):
            side.write(tool="booked", x=x, action=call.action_id)
        return f"booked {x}"

    @callboard.tool("pure")
    async def look(x: int) -> str:
        side.write(tool="look", x=x)
        return f"looked {x}"

    @callboard.tool("external")
    async def ring(x: int, call: Call) -> str:
        side.write(tool="ring", x=x, action=call.action_id)
        return f"rang {x}"

    return book, look, ring
