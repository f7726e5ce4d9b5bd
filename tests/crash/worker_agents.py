"""The agents of a worker: small, and each says on stdout that it runs, so that a test can tell a repeated turn from a recorded one.

Runs in the worker process only. Not here: agents with tools (`worker_tools`). Nothing here keeps state that a crash does not take along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from worker_hooks import say
from worker_tools import LONG, PARTIAL, OwnStore, Side, guide, talker, tinker

import callboard
from callboard import Turn
from callboard.storage.model.errors import LimitReached
from callboard.storage.model.messages import Kind

Behaviour = Callable[[Turn], Awaitable[str | None]]


class Gates:
    """What agents wait for until the test opens it."""

    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}

    def __getitem__(self, name: str) -> trio.Event:
        return self._events.setdefault(name, trio.Event())


def make_agents(side: Side, gates: Gates, model: str | None) -> dict[str, Any]:
    """All agents by name. `gates` are opened by the command `release`; `model` is the URL of a model's service, if there is one."""
    return {
        **({"chat": talker(side, model)} if model is not None else {}),
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
        "tinker": tinker(side),
        "guide": guide(side),
        "keeper": OwnStore(side),
    }


async def nothing(turn: Turn) -> str:
    return f"ok {turn.text}"


async def stream(turn: Turn) -> None:
    for part in (turn.text, " | ", "x" * 210, " | end"):
        await turn.emit(part)


async def flaky(turn: Turn) -> str:
    """Fails, if it is told to, until one failure of it is recorded: a kill that comes before the record changes nothing."""
    if "fail" in turn.text and (await turn.desk.receipt(turn.scope, turn.message.id)).attempts == 0:
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
