"""What counts as an agent, how each kind of it is run, and the scripted one."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from trio.testing import MockClock

from callboard import Agent, CallboardError, InvalidField, PathTaken, Rule, Scripted, Turn, open_runtime
from callboard.actors.session.agents import as_agent
from callboard.actors.session.agents.blocking import BlockingTurn
from callboard.actors.session.agents.scripted import calls
from callboard.storage.model.errors import UnknownAgent
from callboard.storage.model.states import Outcome, Reason
from callboard.tests.flows.turn_kit import MEMORY, running

THREAD = threading.get_ident()


async def function(turn: Turn) -> str:
    return f"function: {turn.text}"


def plain(turn: BlockingTurn) -> str:
    return f"plain: {turn.text}, {threading.get_ident() != THREAD}"


class Derived(Agent):
    purpose = "Greets people."

    async def run(self, turn: Turn) -> str | None:
        return f"derived: {turn.text}"


class Duck:
    async def run(self, turn: Turn) -> str:
        return f"duck: {turn.text}"


class PlainDuck:
    def run(self, turn: BlockingTurn) -> str:
        return f"plain duck: {turn.text}, {threading.get_ident() != THREAD}"


class Answering:
    async def __call__(self, turn: Turn) -> str:
        return f"callable: {turn.text}"


class Methods:
    async def reply(self, turn: Turn) -> str:
        return f"method: {turn.text}"


async def with_more(greeting: str, turn: Turn, *, mark: str = "!") -> str:
    return f"{greeting}: {turn.text}{mark}"


GOOD: dict[str, tuple[object, str]] = {
    "function": (function, "function: hello"),
    "plain": (plain, "plain: hello, True"),
    "derived": (Derived(), "derived: hello"),
    "duck": (Duck(), "duck: hello"),
    "plain duck": (PlainDuck(), "plain duck: hello, True"),
    "callable": (Answering(), "callable: hello"),
    "method": (Methods().reply, "method: hello"),
    "partial": (functools.partial(with_more, "partial", mark="?"), "partial: hello?"),
}


async def test_every_kind_of_agent_runs() -> None:
    async with running({name: agent for name, (agent, _) in GOOD.items()}, executor="thread") as board:
        for name, (_, answer) in GOOD.items():
            session = await board.open(name)
            view = await board.ask(session, max_attempts=1)
            assert (view.last_error, await board.texts(session)) == (None, [answer])


async def generator(turn: Turn) -> AsyncIterator[str]:
    yield turn.text


def plain_generator(turn: Turn) -> Iterator[str]:
    yield turn.text


async def two(turn: Turn, other: int) -> str:
    return "never"


async def none() -> str:
    return "never"


BAD: dict[str, tuple[object, str]] = {
    "class": (Derived, "is a class: give an instance of it"),
    "number": (5, "must be an object with run"),
    "text": ("agent", "must be an object with run"),
    "nothing": (None, "must be an object with run"),
    "object": (object(), "must be an object with run"),
    "generator": (generator, "is a generator: stream with turn.emit instead"),
    "plain generator": (plain_generator, "is a generator: stream with turn.emit instead"),
    "two arguments": (two, "must take exactly one argument"),
    "no argument": (none, "must take exactly one argument"),
}


@pytest.mark.parametrize("name", BAD)
async def test_anything_else_is_refused_at_open_and_named(name: str) -> None:
    wrong, reason = BAD[name]
    with pytest.raises(InvalidField) as caught:
        async with open_runtime(MEMORY, agents={"good": function, name: wrong}):
            pytest.fail("it opened")
    assert caught.value.path == f"agents.{name}"
    assert caught.value.message.startswith(reason)


@pytest.mark.parametrize("name", ["", "x" * 65, "new\nline", "nul\0"])
def test_a_name_must_be_short_and_printable(name: str) -> None:
    with pytest.raises(InvalidField, match="1 to 64 printable") as caught:
        as_agent(name, function)
    assert caught.value.path == f"agents.{name}"


async def test_a_runtime_needs_an_agent() -> None:
    with pytest.raises(InvalidField, match="names no agent"):
        async with open_runtime(MEMORY, agents={}):
            pytest.fail("it opened")


async def test_an_unknown_agent_cannot_be_opened_and_a_path_keeps_its_agent(autojump_clock: MockClock) -> None:
    async with running({"duck": Duck()}) as board:
        with pytest.raises(UnknownAgent, match="no agent is called 'Duck'; known: agent, duck") as caught:
            await board.open("Duck")
        assert caught.value.path == "agent"
        first = await board.open("duck", "/pond")
        assert await board.open("duck", "/pond") == first
        with pytest.raises(PathTaken, match="/pond names a session of the agent duck"):
            await board.open("agent", "/pond")


async def test_an_agent_that_only_inherits_is_told_so(autojump_clock: MockClock) -> None:
    async with running({"empty": Agent()}) as board:
        view = await board.ask(await board.open("empty"), max_attempts=1)
        assert (view.reason, view.last_error) == (Reason.RETRIES_USED, "NotImplementedError: ")


def test_an_agent_says_what_it_is_for() -> None:
    assert getattr(as_agent("derived", Derived()), "purpose", None) == "Greets people."
    assert getattr(as_agent("function", function), "purpose", None) == ""


async def asks(turn: Turn, match: Any) -> str:
    return f"asked for {match['what']}"


async def test_the_scripted_agent_answers_by_the_first_rule_that_matches(autojump_clock: MockClock) -> None:
    script = Scripted(
        [
            Rule(r"echo (?P<text>.+)", r"\g<text>"),
            Rule(r"want (?P<what>\w+)", asks),
            Rule(r"echo.*", "echo what?"),
            Rule(r"send (?P<to>\S+) (?P<text>.+)", calls("agent_send", agent_id=r"\g<to>", message=r"\g<text>")),
            Rule(r"broken", calls("agent_send", agent_id="/other")),
        ],
        otherwise="I do not know that.",
    )
    async with running({"script": script}) as board:
        session, other = await board.open("script", "/script"), await board.open(path="/other")
        for asked, answer in {
            "echo one\ntwo": "one\ntwo",
            "  echo padded  ": "padded",
            "echo": "echo what?",
            "want bread": "asked for bread",
            "please echo": "I do not know that.",
            "send /nowhere hello": "agent_send was refused: no session has this path",
            "send /script hello": "agent_send was refused: this is your own session",
        }.items():
            await board.ask(session, asked)
            assert (await board.texts(session))[-1] == answer
        await board.ask(session, "send /other good morning")
        assert (await board.texts(session))[-1].startswith("agent_send: {'message_id': ")
        assert await board.texts(other, "user") == ["good morning"]
        view = await board.ask(session, "broken", max_attempts=1)
        assert view.last_error == "InvalidField: agent_send.message: is required"


async def test_a_script_without_a_last_word_gives_no_visible_reply(autojump_clock: MockClock) -> None:
    async with running({"script": Scripted([])}) as board:
        assert (await board.ask(await board.open("script"))).outcome is Outcome.NO_VISIBLE_REPLY


def test_a_rule_with_a_bad_pattern_is_refused_when_it_is_written() -> None:
    with pytest.raises(Exception, match="unterminated"):
        Rule("(", "x")
    assert issubclass(UnknownAgent, CallboardError)
