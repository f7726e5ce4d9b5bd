"""The agents of a worker: small, and each says on stdout that it runs, so that a test can tell a repeated turn from a recorded one.

Runs in the worker process only. Nothing here keeps state that a crash would not take along, but the side file of `Tools`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio
from worker_hooks import say

import callboard
from callboard import Call, Turn
from callboard.storage.model.errors import LimitReached, UnknownTarget
from callboard.storage.model.messages import Kind

PARTIAL = "partial " + "." * 200
"""More than a block of tokens holds: when `emit` returns it is committed."""

LONG = "long " + "." * 19_000

Behaviour = Callable[[Turn], Awaitable[str | None]]


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


class Gates:
    """What agents wait for until the test opens it."""

    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}

    def __getitem__(self, name: str) -> trio.Event:
        return self._events.setdefault(name, trio.Event())


def make_agents(side: Side, gates: Gates) -> dict[str, Any]:
    """All agents by name. `gates` are opened by the command `release`."""
    return {
        "nothing": nothing,
        "stream": stream,
        "flaky": flaky,
        "relay": relay,
        "parent": parent,
        "failing": failing,
        "slow": slow,
        "steered": _steered(gates),
        "hang": hang,
        "polite": _polite(gates),
        "stubborn": _stubborn(gates),
        "late": _late(gates),
        "big": _big(gates),
        "herald": _herald(gates),
        "tinker": _tinker(side),
        "guide": _guide(side),
        "keeper": OwnStore(side),
    }


async def nothing(turn: Turn) -> str:
    return f"ok {turn.text}"


async def stream(turn: Turn) -> None:
    for part in (turn.text, " | ", "x" * 210, " | end"):
        await turn.emit(part)


async def flaky(turn: Turn) -> str:
    """Fails at its first attempt if it is told to."""
    if "fail" in turn.text and turn.attempt == 1:
        raise RuntimeError("as asked")
    return f"ok {turn.text}"


async def relay(turn: Turn) -> str:
    """The text is `PATH WORDS`: sends the words there."""
    path, _, words = turn.text.partition(" ")
    await turn.tools.agent_send(path, words)
    return f"sent {words}"


async def parent(turn: Turn) -> str:
    """Starts a child for each message but for the results of children."""
    if turn.message.kind == Kind.SUBAGENT_RESULT:
        return f"heard {turn.message.sender.id}"
    try:
        started = await turn.tools.agent(turn.text, agent="nothing")
    except LimitReached as refusal:
        return f"refused {refusal.code}"
    return f"child {started['agent_id']}"


async def failing(turn: Turn) -> str:
    raise RuntimeError("always")


async def slow(turn: Turn) -> str | None:
    """Streams and waits until it is asked to stop."""
    await turn.emit(PARTIAL)
    say("running", agent="slow", message=turn.message.message_id, attempt=turn.attempt)
    await turn.sleep(float("inf"))
    return None


async def hang(turn: Turn) -> None:
    """Streams, then ignores every request to stop until it is cancelled."""
    await turn.emit(PARTIAL)
    say("running", agent="hang", message=turn.message.message_id, attempt=turn.attempt)
    await trio.sleep_forever()


def _steered(gates: Gates) -> Behaviour:
    async def steered(turn: Turn) -> None:
        """Takes in what waits when the test says so, then goes on until it is cancelled."""
        await turn.emit(PARTIAL)
        say("running", agent="steered", message=turn.message.message_id, attempt=turn.attempt)
        await gates["steer"].wait()
        await turn.steered()
        say("steered", messages=[message.message_id for message in turn.messages])
        await trio.sleep_forever()

    return steered


def _polite(gates: Gates) -> Behaviour:
    async def polite(turn: Turn) -> str:
        """Answers when the test says so."""
        say("running", agent="polite", message=turn.message.message_id, attempt=turn.attempt)
        await gates["polite"].wait()
        return f"done at attempt {turn.attempt}"

    return polite


def _late(gates: Gates) -> Behaviour:
    async def late(turn: Turn) -> str:
        """Cleans up after its cancel, shielded, for as long as the test likes; what it streamed is an unfinished thought."""
        await turn.emit(PARTIAL)
        say("running", agent="late", message=turn.message.message_id, attempt=turn.attempt)
        if turn.attempt > 1:
            return f"done at attempt {turn.attempt}"
        try:
            await trio.sleep_forever()
        finally:
            say("cancelled", agent="late", attempt=turn.attempt)
            with trio.move_on_after(30, shield=True):
                await gates["late"].wait()

    return late


def _stubborn(gates: Gates) -> Behaviour:
    async def stubborn(turn: Turn) -> str:
        """Survives its cancel, and at its end tries to write."""
        await turn.emit(PARTIAL)
        say("running", agent="stubborn", message=turn.message.message_id, attempt=turn.attempt)
        with trio.CancelScope(shield=True):
            await gates["stubborn"].wait()
            try:
                await turn.tools.agent_send("/helper", f"late {turn.message.message_id}")
            except callboard.LeaseLost:
                say("fenced")
        return "too late"

    return stubborn


def _big(gates: Gates) -> Behaviour:
    async def big(turn: Turn) -> str:
        """Its answer needs room of its own in the file."""
        say("running", agent="big", message=turn.message.message_id, attempt=turn.attempt)
        await gates["big"].wait()
        return LONG

    return big


def _herald(gates: Gates) -> Behaviour:
    async def herald(turn: Turn) -> str:
        """Sends what needs room of its own in the file."""
        say("running", agent="herald", message=turn.message.message_id, attempt=turn.attempt)
        await gates["herald"].wait()
        await turn.tools.agent_send("/helper", LONG)
        return "sent"

    return herald


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


def _tinker(side: Side) -> Behaviour:
    book, look, ring = _tools(side)

    async def tinker(turn: Turn) -> str:
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

    return tinker


def _guide(side: Side) -> Behaviour:
    book, _, ring = _tools(side)

    async def guide(turn: Turn) -> str:
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
        try:
            await turn.tools.agent_send("/nowhere", "nobody hears this")
        except UnknownTarget:
            pass
        started = await turn.tools.agent("a task", agent="nothing")
        return f"child {started['agent_id']}"

    return guide


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
