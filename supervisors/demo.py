"""The demonstration team: three agents that take commands instead of thinking, so that everything can be tried without a model.

Lives here: the commands, how an agent treats what reaches it, and what it is told about itself where a model is set. Invariant: an
answer is reported and never answered, so two agents that take commands can't keep each other busy; and a command from another session
is answered with one message, by agent_send (SES-11).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from ..actors.models.model import Model
from ..actors.namespace.directory import paths_named
from ..actors.namespace.paths import name_of
from ..actors.session.agents.chat import ChatAgent
from ..actors.session.turn import Turn
from ..storage.model.addresses import clean_label
from ..storage.model.errors import LimitReached, MailboxFull, UsageError
from ..storage.model.limits import CONTENT_CHARS
from ..storage.model.messages import Kind
from .settings import Settings
from .team import Team, load_team

COUNT_MOST: Final = 10_000
COUNT_SECONDS: Final = 0.1
SECONDS_MOST: Final = 86_400.0
NAMED_MOST: Final = 5
"""How many paths an answer lists."""
HELP: Final = (
    "I know: echo TEXT, count N, sleep SECONDS, hang SECONDS, fail, ask PATH TEXT, child TEXT, take me to NAME-OR-PATH. "
    "Try: count 5, or: ask /ops/deploy echo hello"
)

REFUSALS: Final = (UsageError, LimitReached, MailboxFull)
"""Answers of a tool that doing the whole turn again would not change; anything else (a lost lease, a store that is down) ends the attempt."""

Command = Callable[[Turn, re.Match[str]], Awaitable[str | None]]


@attrs.frozen
class Demonstrator:
    """An agent that takes the commands; `purpose` says what it pretends to be."""

    purpose: str

    async def run(self, turn: Turn) -> str | None:
        """Do what the head message asks, or report the answer that it brings. Messages that merely came along need nothing."""
        message = turn.message
        if message.kind == Kind.SIGNAL:
            return None
        if message.kind == Kind.SUBAGENT_RESULT:
            return f"The subagent answered: {message.content}"
        if message.reply_to is not None:
            return f"{clean_label(message.sender.label) or message.sender.id} answered: {message.content}"
        answer = await _obey(turn)
        if answer is not None and _expects_mail(turn) and not turn.stop_requested:
            await _send(turn, message.sender.id, answer)
        return answer


def _expects_mail(turn: Turn) -> bool:
    """Whether who asked gets the answer only if it is sent. A parent gets the result of its child's task by itself."""
    message, task_of = turn.message, turn.session.parent
    return message.sender.kind == "session" and not (message.sender.id == task_of and message.seq == 1)


async def _obey(turn: Turn) -> str | None:
    for pattern, command in _COMMANDS:
        match = pattern.fullmatch(turn.text)
        if match is not None:
            return await command(turn, match)
    return HELP


async def _echo(turn: Turn, match: re.Match[str]) -> str | None:
    return match[1]


async def _count(turn: Turn, match: re.Match[str]) -> str | None:
    """Stream the numbers, one each 100 ms; what was streamed is the answer, also of a turn that was stopped."""
    most = int(match[1][:6])
    if not 1 <= most <= COUNT_MOST:
        return f"I count to a number from 1 to {COUNT_MOST}."
    streamed = ""
    for number in range(1, most + 1):
        if number > 1 and not await turn.sleep(COUNT_SECONDS):
            break
        token = f" {number}" if streamed else str(number)
        await turn.emit(token)
        streamed += token
    return streamed


async def _sleep(turn: Turn, match: re.Match[str]) -> str | None:
    seconds = _seconds(match)
    if seconds is None:
        return f"I sleep up to {SECONDS_MOST:g} seconds."
    return f"I slept {seconds:g} s." if await turn.sleep(seconds) else None


async def _hang(turn: Turn, match: re.Match[str]) -> str | None:
    seconds = _seconds(match)
    if seconds is None:
        return f"I hang up to {SECONDS_MOST:g} seconds."
    await trio.sleep(seconds)
    return f"I hung {seconds:g} s."


def _seconds(match: re.Match[str]) -> float | None:
    seconds = float(match[1][:20])
    return seconds if seconds <= SECONDS_MOST else None


async def _fail(turn: Turn, match: re.Match[str]) -> str | None:
    raise RuntimeError("this agent was told to fail")


async def _ask(turn: Turn, match: re.Match[str]) -> str | None:
    refusal = await _send(turn, match[1], match[2])
    return f"I could not ask {match[1]}: {refusal}" if refusal else f"I asked {match[1]}; the answer will come here."


async def _child(turn: Turn, match: re.Match[str]) -> str | None:
    try:
        await turn.tools.agent(f"echo {match[1]}", title="echo")
    except REFUSALS as refusal:
        return f"I could not start a subagent: {refusal.message}"
    return "I started a subagent; its result will come here."


async def _take(turn: Turn, match: re.Match[str]) -> str | None:
    """Hand the person over to a path, or to the one that a name is short for."""
    wanted = match[1]
    paths = [wanted] if wanted.startswith("/") else await paths_named(turn.desk, turn.scope, wanted)
    if len(paths) != 1:
        found = f"it may be {', '.join(paths[:NAMED_MOST])}" if paths else "no session is called that"
        return f"I can't take you to {clean_label(wanted)}: {found}."
    try:
        handed = await turn.tools.connect_user(paths[0])
    except REFUSALS as refusal:
        return f"I can't take you to {clean_label(wanted)}: {refusal.message}."
    return f"Taking you to {name_of(handed['path'])}."


async def _send(turn: Turn, target: str, text: str) -> str | None:
    """Send, and return why it was refused, if it was."""
    try:
        await turn.tools.agent_send(target, text if len(text) <= CONTENT_CHARS else text[: CONTENT_CHARS - 1] + "…")
    except REFUSALS as refusal:
        return refusal.message
    return None


def _command(pattern: str, command: Command) -> tuple[re.Pattern[str], Command]:
    return re.compile(pattern, re.DOTALL), command


_COMMANDS: Final[tuple[tuple[re.Pattern[str], Command], ...]] = (
    _command(r"\s*echo\s(.*\S.*)", _echo),
    _command(r"\s*count\s+([0-9]+)\s*", _count),
    _command(r"\s*sleep\s+([0-9]+(?:\.[0-9]+)?)\s*", _sleep),
    _command(r"\s*hang\s+([0-9]+(?:\.[0-9]+)?)\s*", _hang),
    _command(r"\s*fail\s*", _fail),
    _command(r"\s*ask\s+(\S+)\s+(\S.*)", _ask),
    _command(r"\s*child\s+(\S.*)", _child),
    _command(r"\s*take\s+me\s+to\s+(\S+)\s*", _take),
)


_PURPOSES: Final = {
    "front-desk": "Greets people and takes them to the right desk.",
    "deploy": "Pretends to deploy things.",
    "pricing": "Pretends to know what things cost.",
}
_PLACES: Final = {"/": "front-desk", "/ops/deploy": "deploy", "/research/pricing": "pricing"}


def team_of(settings: Settings) -> Team:
    """The team that is set, else the demonstration. Raises `SettingsError`."""
    return demonstration(settings.chat_model()) if settings.team is None else load_team(settings.team)


def demonstration(model: Model | None = None) -> Team:
    """The team of a server that was given none; with a model it talks, and takes no commands."""
    agents = {
        name: Demonstrator(purpose) if model is None else ChatAgent(model, _system(name, purpose), purpose=purpose)
        for name, purpose in _PURPOSES.items()
    }
    return Team(agents=agents, sessions=_PLACES)


def _system(name: str, purpose: str) -> str:
    places = ", ".join(f"{agent} at {path}" for path, agent in _PLACES.items())
    return (
        f"You are {name}, one of three agents of a demonstration: {places}. What you are for: {purpose} Answer briefly."
    )
