"""handoff_only: every way from one agent to another is refused with a word about connect_user, on both databases and in every process.

Here: the rule of a project against each route. Not here: what rules are and who sets them (`test_namespace`); that no route is left out
(`tests/unit/test_architecture`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import pytest

from callboard import Turn
from callboard.actors.session.agents.chat import DESK_RULES, RULES, WRITING_RULES
from callboard.storage.model.addresses import Sender
from callboard.storage.model.errors import NotPermitted
from callboard.storage.model.policies import Edge
from callboard.storage.model.sessions import Session
from callboard.storage.ops.namespace import set_policy
from callboard.tests.flows.chat_kit import asks, chatting, results, text
from callboard.tests.flows.turn_kit import Board, Body, calling, running

pytestmark = pytest.mark.spec("NS-4")
WORDS = "are you there?"


async def send_to(target: str, turn: Turn) -> str:
    return (await turn.tools.agent_send(target, WORDS))["status"]


async def answer(turn: Turn) -> str:
    """To whoever wrote the message of this turn."""
    return (await turn.tools.agent_send(turn.message.sender, WORDS))["status"]


async def say_to(target: Session, turn: Turn) -> str:
    """The way around the tools: the desk, signed as the session."""
    return (await turn.desk.send(turn.scope, target.id, WORDS, turn.sender)).status


@attrs.frozen
class Place:
    """The sessions of these tests: an agent at `/`, what it has started, one without a path, and whom they write to."""

    desk: Session
    child: Session
    nowhere: Session
    deploy: Session

    @classmethod
    async def opened(cls, board: Board) -> Place:
        desk, deploy = await board.open(path="/"), await board.open(path="/ops/deploy")
        made = await board.inside(desk, calling("agent", task="look around"))
        child = await board.runtime.store.reads.session(board.scope, made["agent_id"])
        await board.until(desk, "turn.completed", 2)  # the second one for the child's result
        return cls(desk, child, await board.open(), deploy)

    @property
    def routes(self) -> Mapping[str, tuple[Session, Body[Any]]]:
        """Every way for an agent to write to another one, by name: whose turn it is, and what is done in it."""
        return {
            "agent_send by path": (self.desk, partial(send_to, "/ops/deploy")),
            "agent_send by id": (self.desk, partial(send_to, self.deploy.id)),
            "a model's call": (self.desk, calling("agent_send", agent_id="/ops/deploy", message=WORDS)),
            "the desk": (self.desk, partial(say_to, self.deploy)),
            "a session without a path": (self.nowhere, partial(send_to, "/ops/deploy")),
            "a child of another": (self.child, partial(send_to, "/ops/deploy")),
        }


async def rule(board: Board, edge: Edge) -> None:
    await board.runtime.store.apply(set_policy(board.scope, "/", edge=edge))


async def test_handoff_only_refuses_every_route_that_collaborate_lets_through(store_url: str) -> None:
    """ "A handoff_only project refuses every agent-to-agent route with a reason that names connect_user; the same data under collaborate works".

    One process sets the rule, a second one is refused, a third one lifts the rule and writes: three runtimes over one store.
    """
    async with running(url=store_url) as board:
        place = await Place.opened(board)
        await rule(board, Edge.HANDOFF_ONLY)
    async with running(url=store_url) as board:
        for name, (session, route) in place.routes.items():
            with pytest.raises(NotPermitted, match="connect_user"):
                await board.inside(session, route)
            assert await board.entries(place.deploy) == [], name
        _, *told = await board.events(place.desk, "tool.result")
        refused = [event.data["result"]["refused"] for event in told]
        assert {refusal["code"] for refusal in refused} == {"not_permitted"}
        assert all("connect_user" in refusal["message"] for refusal in refused)
        handed = await board.inside(place.desk, calling("connect_user", path="/ops/deploy"))
        assert handed["status"] == "recorded"
    async with running(url=store_url) as board:
        await rule(board, Edge.COLLABORATE)
        for session, route in place.routes.values():
            await board.inside(session, route)
        assert await board.texts(place.deploy, "user") == [WORDS] * len(place.routes)


async def test_an_answer_to_who_wrote_before_the_rule_is_refused_like_any_other(store_url: str) -> None:
    async with running(url=store_url) as board:
        place = await Place.opened(board)
        go_on = await board.keep_busy(place.desk)
        await board.inside(place.deploy, partial(send_to, "/"))
        await rule(board, Edge.HANDOFF_ONLY)
        reached: list[str] = []

        async def answers(turn: Turn) -> None:
            with pytest.raises(NotPermitted, match="connect_user"):
                await answer(turn)
            reached.append(turn.message.sender.id)

        board.plan(place.desk, answers)
        go_on.set()
        await board.until(place.desk, "turn.completed", 4)
        assert reached == [place.deploy.id]
        assert WORDS not in await board.texts(place.deploy, "user")


async def test_a_model_reads_what_to_do_instead_and_is_not_told_to_write(store_url: str) -> None:
    """The refusal is what the next request tells; the standing rules are the same bytes under both policies, and true under both."""
    write = asks(("agent_send", {"agent_id": "/ops/deploy", "message": WORDS}))
    connect = asks(("connect_user", {"path": "/ops/deploy"}))
    async with chatting(url=store_url) as chat:
        deploy = await chat.board.open(path="/ops/deploy")
        await rule(chat.board, Edge.HANDOFF_ONLY)
        await chat.ask(write, connect, text("Taking you there."))
        assert await chat.board.entries(deploy) == []
        await rule(chat.board, Edge.COLLABORATE)
        await chat.ask(write, text("Asked."))
        assert await chat.board.texts(deploy, "user") == [WORDS]
    refusal = str(results(chat.model.prompts[1])[0][1])
    assert ("not_permitted" in refusal, "connect_user" in refusal) == (True, True)
    assert results(chat.model.prompts[2])[1][1]["status"] == "recorded"
    assert results(chat.model.prompts[4])[0][1]["status"] == "pending"
    assert len({prompt.messages[0]["content"] for prompt in chat.model.prompts}) == 1
    assert "agent_send" not in RULES
    assert "Where they may, agent_send" in WRITING_RULES
    assert "Where they may not, it is refused." in WRITING_RULES
    assert "whether agents may write to it or not, use connect_user" in DESK_RULES


async def test_what_is_requeued_from_outside_goes_through_as_no_agent_has_decided_it(store_url: str) -> None:
    """An agent's message that failed before the rule: put in again after it from outside, it is delivered as that agent's.

    By an operator, or a backend with a project's token (`test_access_table`: no member may). An agent that puts it in again itself is
    refused: inside a turn nobody is either.
    """
    async with running(url=store_url) as board:
        place = await Place.opened(board)
        go_on = await board.keep_busy(place.deploy)
        sent = await board.inside(place.desk, calling("agent_send", agent_id="/ops/deploy", message=WORDS))
        desk = board.runtime.desk
        await desk.cancel(board.scope, sent["message_id"], principal=place.desk.id)
        await rule(board, Edge.HANDOFF_ONLY)
        go_on.set()

        async def again(turn: Turn) -> None:
            await turn.desk.requeue(turn.scope, sent["message_id"], principal=turn.session.id)

        with pytest.raises(NotPermitted, match="connect_user"):
            await board.inside(place.desk, again)
        receipt = await desk.requeue(board.scope, sent["message_id"], principal=place.desk.id)
        assert (await board.final(receipt)).outcome == "answered"
        (entry,) = [entry for entry in await board.entries(place.deploy) if entry.message_id == receipt.message_id]
        assert (entry.content, entry.sender) == (WORDS, Sender(place.desk.id, "session", "/"))
