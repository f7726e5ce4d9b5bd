"""What counts as an agent, how each kind of it is run, and the scripted one."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Agent, CallboardError, InvalidField, PathTaken, Rule, Scripted, Turn, open_runtime, tool
from callboard.actors.session.agents import as_agent
from callboard.actors.session.agents.blocking import BlockingTurn
from callboard.actors.session.agents.scripted import calls
from callboard.storage.model.addresses import Sender
from callboard.storage.model.errors import UnknownAgent
from callboard.storage.model.messages import Kind
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


class PlainAnswering:
    def __call__(self, turn: BlockingTurn) -> str:
        return f"plain callable: {turn.text}, {threading.get_ident() != THREAD}"


class Generating:
    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield turn.text


class Greeting:
    async def __call__(self, greeting: str, turn: Turn) -> str:
        return f"{greeting}: {turn.text}, {threading.get_ident() == THREAD}"


class Methods:
    async def reply(self, turn: Turn) -> str:
        return f"method: {turn.text}"


async def with_more(greeting: str, turn: Turn, *, mark: str = "!") -> str:
    return f"{greeting}: {turn.text}{mark}"


def handing_on(turn: Any) -> Any:
    return function(turn)


on_to_function: Callable[[Any], Any] = lambda turn: function(turn)  # noqa: E731
on_to_everything: Callable[[Any], Any] = lambda turn: everything(turn)  # noqa: E731


@functools.wraps(function)
def wrapped(turn: Any) -> Any:
    return function(turn)


GOOD: dict[str, tuple[object, str]] = {
    "function": (function, "function: hello"),
    "plain": (plain, "plain: hello, True"),
    "derived": (Derived(), "derived: hello"),
    "duck": (Duck(), "duck: hello"),
    "plain duck": (PlainDuck(), "plain duck: hello, True"),
    "callable": (Answering(), "callable: hello"),
    "method": (Methods().reply, "method: hello"),
    "partial": (functools.partial(with_more, "partial", mark="?"), "partial: hello?"),
    "partial of a partial": (functools.partial(functools.partial(with_more, "nested"), mark="?"), "nested: hello?"),
    "partial of an object": (functools.partial(Greeting(), "greeted"), "greeted: hello, True"),
    "partial of a plain function": (functools.partial(plain), "plain: hello, True"),
    "plain callable": (PlainAnswering(), "plain callable: hello, True"),
    "partial of a plain object": (functools.partial(PlainAnswering()), "plain callable: hello, True"),
    "lambda that hands on": (on_to_function, "function: hello"),
    "function that hands on": (handing_on, "function: hello"),
    "partial that hands on": (functools.partial(handing_on), "function: hello"),
    "wrapper": (wrapped, "function: hello"),
}


async def test_every_kind_of_agent_runs() -> None:
    async with running({name: agent for name, (agent, _) in GOOD.items()}, executor="thread") as board:
        for name, (_, answer) in GOOD.items():
            session = await board.open(name)
            view = await board.ask(session, max_attempts=1)
            assert (view.last_error, await board.texts(session)) == (None, [answer])


@tool("pure")
async def doubled(number: int) -> int:
    return 2 * number


async def everything(turn: Turn) -> str:
    """Uses whatever a turn offers that takes time."""
    await turn.emit("streamed ")
    await turn.flush()
    listed = await turn.tools.agent_list(status="recent")
    read = await turn.tools.call("agent_read", {"agent_id": "/other"})
    sent = await turn.tools.agent_send("/other", "hello")
    slept, steered, number = await turn.sleep(0), await turn.steered(), await turn.step(doubled, number=21)
    desk = (await turn.desk.find(turn.scope, "/other")).path
    return f"{len(listed['agents'])} {read['count']} {sent['status']} {slept} {steered} {number} {desk}"


async def test_what_a_plain_function_hands_on_finds_the_turn_it_expects() -> None:
    answers: list[list[str]] = []
    agents: list[object] = [everything, on_to_everything]
    for agent in agents:
        async with running({"agent under test": agent}, executor="thread") as board:
            await board.open(path="/other")
            session = await board.open("agent under test", "/tested")
            assert (await board.ask(session, max_attempts=1)).last_error is None
            answers.append(await board.texts(session))
            tokens = [event.data["text"] for event in await board.events(session, "turn.token")]
            assert "".join(tokens).startswith("streamed")
    assert answers[0] == answers[1] == [answers[0][0]]
    assert answers[0][0].startswith("2 0 pending True () 42 /other")


async def test_what_a_plain_function_hands_on_is_stopped_as_any_turn_is() -> None:
    begun = trio.Event()

    async def endless(turn: Turn) -> None:
        begun.set()
        await trio.sleep_forever()

    def handing(turn: Any) -> Any:
        return endless(turn)

    async with running({"endless": handing}, executor="thread") as board:
        session = await board.open("endless")
        receipt = await board.post(session)
        await begun.wait()
        await board.runtime.desk.stop(board.scope, session.id, grace=0)
        assert (await board.final(receipt)).outcome is Outcome.STOPPED


FOR_THE_DELIVERY = {"ask_to_stop", "end", "stream"}
"""What `Turn` has for whoever runs it; an agent that called them would end its own turn."""


def offered(value: object) -> dict[str, list[str] | None]:
    """The public names of an object, each with its parameters if it is a method."""
    names = [name for name in dir(value) if not name.startswith("_")]
    return {
        name: list(inspect.signature(found).parameters) if inspect.ismethod(found := getattr(value, name)) else None
        for name in names
    }


@pytest.mark.spec("SES-9", "SES-3")
async def test_a_plain_agent_is_offered_whatever_an_async_one_is() -> None:
    seen: dict[str, tuple[Any, ...]] = {}

    def look(turn: Any) -> None:
        seen[turn.session.agent] = (
            offered(turn),
            offered(turn.tools),
            turn.attributed(),
            turn.sender.label,
            turn.scope,
        )

    async def looking(turn: Turn) -> None:
        look(turn)

    async with running({"waiting": looking, "blocking": look}, executor="thread") as board:
        for name in ("waiting", "blocking"):
            assert (await board.ask(await board.open(name), max_attempts=1)).last_error is None
    turn, tools, said, *rest = seen["waiting"]
    assert seen["blocking"][0] == {name: taken for name, taken in turn.items() if name not in FOR_THE_DELIVERY}
    assert seen["blocking"][1] == tools
    assert seen["blocking"][2] == said
    assert (rest, list(seen["blocking"][3:])) == (["waiting", board.scope], ["blocking", board.scope])
    assert {"attributed", "sender", "scope", "flush"} <= turn.keys()
    assert {"call", "agent_send"} <= tools.keys()


async def test_a_plain_agent_calls_all_of_it_from_its_thread() -> None:
    def run(turn: BlockingTurn) -> str:
        turn.emit("streamed ")
        turn.flush()
        listed = turn.tools.call("agent_list", {"status": "recent"})
        sent = turn.tools.agent_send(turn.message.sender, "an answer")
        answer = turn.step(doubled, number=21)
        return f"{len(listed['agents'])} {sent['status']} {answer} {turn.steered()} {turn.sleep(0)} {turn.sender.id}"

    async with running({"plain": run}, executor="thread") as board:
        session, asker = await board.open("plain"), await board.open(path="/asker")
        by = Sender(asker.id, "session", "asker")
        view = await board.ask(session, sender=by, kind=Kind.AGENT_MESSAGE, max_attempts=1)
        assert (view.last_error, await board.texts(session)) == (None, [f"2 pending 42 () True {session.id}"])
        assert await board.texts(asker, "user") == ["an answer"]


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
    "generating object": (Generating(), "is a generator: stream with turn.emit instead"),
    "partial of a generator": (functools.partial(generator), "is a generator: stream with turn.emit instead"),
    "partial of a generating object": (
        functools.partial(Generating()),
        "is a generator: stream with turn.emit instead",
    ),
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
