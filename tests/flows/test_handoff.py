"""connect_user inside a turn: what it records, what refuses it, and that nobody is moved and nothing said twice."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from callboard import ChatAgent, Turn, UnknownTarget
from callboard.actors.session.tools import SCHEMAS
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import NotPermitted, SelfTarget
from callboard.storage.model.sessions import Handoff
from callboard.storage.model.states import Status
from callboard.storage.ops import RecordStep
from callboard.storage.ops.namespace import set_policy
from callboard.tests.flows.chat_kit import WrittenModel, asks, chatting, text
from callboard.tests.flows.prompt_kit import Pause
from callboard.tests.flows.turn_kit import Board, calling, running


@pytest.mark.spec("HND-1", "HND-2")
async def test_a_call_is_recorded_as_a_pair_under_its_action_id_and_moves_nobody(
    board: Board, autojump_clock: MockClock
) -> None:
    desk, deploy = await board.open(path="/"), await board.open(path="/ops/deploy")
    result = await board.inside(desk, calling("connect_user", path="/ops/deploy"))
    assert result == {"status": "recorded", "path": "/ops/deploy", "channel_id": deploy.id}
    (call,), (answer,) = await board.events(desk, "tool.call"), await board.events(desk, "tool.result")
    (handed,) = await board.events(desk, "turn.handoff")
    assert call.data["action_id"] == answer.data["action_id"]
    assert answer.data["result"] == {"ok": result}
    assert (call.id + 1, call.id + 2) == (answer.id, handed.id)
    about = ("turn_id", "message_id", "attempt")
    assert handed.data == {
        "path": "/ops/deploy", "channel_id": deploy.id, "from_path": "/", **{name: call.data[name] for name in about},
    }  # fmt: skip
    assert await board.entries(deploy) == []
    assert await board.events(deploy) == []


@pytest.mark.spec("HND-1")
async def test_a_subagent_has_no_user_to_bring_anywhere(board: Board, autojump_clock: MockClock) -> None:
    desk = await board.open(path="/")
    await board.open(path="/ops/deploy")
    started = await board.inside(desk, calling("agent", task="look around"))
    child = await board.runtime.store.reads.session(board.scope, started["agent_id"])
    with pytest.raises(NotPermitted, match="say in your answer where the user should go"):
        await board.inside(child, calling("connect_user", path="/ops/deploy"))
    assert await board.events(child, "turn.handoff") == []


@pytest.mark.spec("HND-1")
async def test_what_can_not_be_is_raised_and_its_refusal_stands_in_the_log(
    board: Board, autojump_clock: MockClock
) -> None:
    desk = await board.open(path="/")
    await board.open(path="/secret")
    await board.runtime.desk.open(Scope(project="other"), "agent", path="/theirs")
    await board.runtime.store.apply(set_policy(board.scope, "/secret", handoff=False))
    refusals: dict[str, tuple[type[Exception], str]] = {
        "/nowhere": (UnknownTarget, "unknown_target"),
        "/theirs": (UnknownTarget, "unknown_target"),
        "/secret": (NotPermitted, "not_permitted"),
        "/": (SelfTarget, "self_target"),
    }
    for path, (kind, code) in refusals.items():
        with pytest.raises(kind):
            await board.inside(desk, calling("connect_user", path=path))
        answer = (await board.events(desk, "tool.result"))[-1]
        assert answer.data["result"]["refused"]["code"] == code
    assert await board.events(desk, "turn.handoff") == []
    assert [entry.handoff for entry in await board.entries(desk)] == [None] * len(refusals)


@pytest.mark.spec("HND-1")
@pytest.mark.parametrize("agent_tools", [True, False])
async def test_it_is_in_every_agents_first_model_request(autojump_clock: MockClock, agent_tools: bool) -> None:
    model = WrittenModel([text("Hello.")])
    async with running({"desk": ChatAgent(model, agent_tools=agent_tools)}) as board:
        await board.ask(await board.open("desk"))
    (offered,) = [spec for spec in model.prompts[0].tools if spec.name == "connect_user"]
    assert offered.parameters == SCHEMAS["connect_user"]["parameters"]
    assert ("agent_send" in model.prompts[0].messages[0]["content"]) is agent_tools, (
        "no rule about a tool that is not there"
    )


@pytest.mark.spec("HND-2", "HND-3")
async def test_an_attempt_that_follows_writes_no_second_event(board: Board, autojump_clock: MockClock) -> None:
    desk, deploy = await board.open(path="/"), await board.open(path="/ops/deploy")
    results: list[dict[str, Any]] = []

    async def cut_off(turn: Turn) -> str:
        results.append(await turn.tools.connect_user("/ops/deploy"))
        if turn.attempt == 1:
            raise ValueError("cut off")
        return "Taking you to deploy."

    board.plan(desk, cut_off, cut_off)
    await board.ask(desk)
    assert results[0] == results[1]
    (event,) = await board.events(desk, "turn.handoff")
    assert len([op for op in board.gate.seen if isinstance(op, RecordStep) and op.handoff is not None]) == 1
    answer = (await board.entries(desk))[-1]
    assert answer.content == "Taking you to deploy."
    assert answer.handoff == Handoff("/ops/deploy", deploy.id, event_id=event.id)


@pytest.mark.spec("HND-2")
async def test_a_path_that_leads_elsewhere_by_now_hands_over_to_the_new_one(
    board: Board, autojump_clock: MockClock
) -> None:
    desk, deploy = await board.open(path="/"), await board.open(path="/ops/deploy")
    await board.runtime.desk.rename(board.scope, deploy.id, path="/ops/release")
    result = await board.inside(desk, calling("connect_user", path="/ops/deploy"))
    assert result == {"status": "recorded", "path": "/ops/release", "channel_id": deploy.id}
    assert (await board.events(desk, "turn.handoff"))[0].data["path"] == "/ops/release"


@pytest.mark.spec("HND-3", "MSG-2")
async def test_a_post_behind_a_handoff_is_steered_in_or_starts_the_next_turn_and_takes_no_handoff_along(
    store_url: str,
) -> None:
    """A post to a busy session "is steered in at the next tool round or starts the next turn; never lost" (MSG-2)."""
    deploy, pricing, end = [
        Pause(answer)
        for answer in (
            asks(("connect_user", {"path": "/ops/deploy"})),
            asks(("connect_user", {"path": "/research/pricing"})),
            text("Taking you there."),
        )
    ]
    async with chatting(url=store_url) as chat:
        board, desk = chat.board, chat.desk
        await board.open(path="/ops/deploy")
        target = await board.open(path="/research/pricing")
        chat.model.answers += [deploy, pricing, end, text("Yours alone.")]
        head = await board.post(desk, "where to?")
        deploy.go_on.set()
        await pricing.begun.wait()
        steered = await board.post(desk, "and what does it cost?")
        pricing.go_on.set()
        await end.begun.wait()
        late = await board.post(desk, "still there?")
        end.go_on.set()
        views = {
            name: await board.final(receipt) for name, receipt in (("head", head), ("in", steered), ("late", late))
        }
        assert [view.status for view in views.values()] == [Status.DELIVERED] * 3, "never lost"
        assert views["in"].turn_id == views["head"].turn_id != views["late"].turn_id
        handed = await board.events(desk, "turn.handoff")
        assert [(event.turn, event.data["path"]) for event in handed] == [
            (views["head"].turn_id, path) for path in ("/ops/deploy", "/research/pricing")
        ]
        answers = [entry for entry in await board.entries(desk) if entry.role == "assistant"]
        last = Handoff("/research/pricing", target.id, event_id=handed[-1].id)
        assert [(e.in_reply_to, e.content, e.handoff) for e in answers] == [
            (head.message_id, "Taking you there.", last),
            (late.message_id, "Yours alone.", None),
        ]
        ends = [event.data.get("handoff") for event in await board.events(desk, "turn.completed")]
        assert ends == [{"path": "/research/pricing", "channel_id": target.id, "event_id": last.event_id}, None]
    roles = [role for role, _ in chat.model.told(2)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "user"], "behind the tool round"
    assert "and what does it cost?" in chat.model.told(2)[-1][1]
