"""Chat agents with a model behind a real service: over sockets, through its failures, and as the demonstration team."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard import ChatAgent, ChatModel, ModelLimits, tool
from callboard.storage.model.errors import SettingsError
from callboard.storage.model.states import Outcome
from callboard.supervisors.demo import demonstration
from callboard.supervisors.settings import load_settings
from callboard.supervisors.team import open_places
from callboard.tests.flows.model_fake import chunked, delta, faking, sse
from callboard.tests.flows.model_kit import ModelServer, breaks, calls, fails, says
from callboard.tests.flows.turn_kit import running

pytestmark = pytest.mark.spec("CTX-7")

BOOKED: list[int] = []


@tool("durable")
async def book(guests: int) -> str:
    """Book a table."""
    BOOKED.append(guests)
    return f"a table for {guests}"


def agent(url: str, **limits: Any) -> ChatAgent:
    model = ChatModel(url, "small-1", limits=ModelLimits(**{"pause_seconds": 0.05, **limits}))
    return ChatAgent(model, "You are the desk.", tools=[book])


@pytest.mark.spec("RT-10")
async def test_a_service_killed_in_mid_stream_costs_one_round_and_one_answer_is_committed() -> None:
    BOOKED.clear()
    with ModelServer() as server:
        await server.plan(
            calls(("book", {"guests": 4}), text="One moment."),
            says("Your table " + "is booked. " * 40),
            breaks("stall", 0, stall_seconds=0),  # for the first request
            breaks("stall", 20, stall_seconds=600),
        )
        async with running({"desk": agent(server.url, tries=2)}) as board:
            desk = await board.open("desk")
            with trio.fail_after(60):
                receipt = await board.post(desk, "a table for four, please")
                await board.until(desk, "turn.token", 2)
                server.kill()
                server.start()
                await server.plan(says("Your table is booked."))
                view = await board.final(receipt)
            assert (view.outcome, view.attempts, view.attempt) == (Outcome.ANSWERED, 1, 2)
            assert await board.texts(desk) == ["One moment.\n\nYour table is booked."]
            assert BOOKED == [4]
            assert len(await server.requests()) == 1
            kinds = await board.kinds(desk)
            assert [kinds.count(kind) for kind in ("model.request", "attempt.relinquished", "turn.completed")] == [
                3,
                1,
                1,
            ]


async def test_usage_is_on_record(model_server: ModelServer) -> None:
    async with running({"desk": agent(model_server.url)}) as board:
        desk = await board.open("desk")
        await model_server.plan(calls(("book", {"guests": 2})), says("Done."))
        with trio.fail_after(30):
            view = await board.ask(desk)
        rounds = [s for s in await board.runtime.store.reads.steps(board.scope, view.id) if s.key.startswith("round:")]
        usages = [step.result["answer"]["usage"] for step in rounds]
        assert all(0 < usage["prompt"] < usage["total"] for usage in usages)
        assert usages[0]["prompt"] < usages[1]["prompt"]
        assert await model_server.findings() == []


async def test_a_service_that_refuses_fails_the_message_and_its_words_are_told(model_server: ModelServer) -> None:
    async with running({"desk": agent(model_server.url)}) as board:
        desk = await board.open("desk")
        await model_server.plan(fails(401, message="that key is not known", times=None))
        with trio.fail_after(30):
            receipt = await board.post(desk, max_attempts=1)
            view = await board.final(receipt)
        assert view.reason == "retries_used"
        assert "401: that key is not known" in (view.last_error or "")


@pytest.mark.spec("RT-4")
async def test_a_stop_ends_the_request_to_the_service() -> None:
    async with faking() as fake:
        fake.plan((chunked(sse(delta("Once upon " + "a time " * 40)), end=False), fake.until_hung_up))
        async with running({"desk": agent(fake.url)}) as board:
            desk = await board.open("desk")
            with trio.fail_after(30):
                receipt = await board.post(desk)
                await board.until(desk, "turn.token")
                await board.runtime.desk.stop(board.scope, desk.id, grace=0.0)
                assert (await board.final(receipt)).outcome is Outcome.STOPPED
                await fake.hung_up.wait()
            assert await board.texts(desk) == ["Once upon " + "a time " * 40]


async def test_with_a_model_set_the_demonstration_team_talks(model_server: ModelServer, tmp_path: Path) -> None:
    environment = {
        "CALLBOARD_MODEL_URL": model_server.url,
        "CALLBOARD_MODEL": "small-1",
        "CALLBOARD_MODEL_KEY": "sk-x1",
    }
    settings = load_settings({}, environment, cwd=tmp_path)
    assert "sk-x1" not in repr(settings)
    team = demonstration(settings.chat_model())
    await model_server.plan(
        calls(("agent_send", {"agent_id": "/research/pricing", "message": "What does it cost?"})),
        # Whoever asks first: the desk after its call, or pricing, which has the message by then. Both say the same.
        says("I asked pricing."),
        says("I asked pricing."),
    )
    with trio.fail_after(30):
        async with callboard.open_runtime("sqlite:///:memory:", agents=team.agents, executor="inline") as runtime:
            await open_places(runtime, team)
            view = await runtime.wait((await runtime.send("/", "echo what does it cost?")).message_id)
            assert view.outcome is Outcome.ANSWERED
            (answer,) = [entry.content for entry in await runtime.read("/") if entry.role == "assistant"]
            asked = next(entry for entry in await runtime.read("/research/pricing"))
            await runtime.wait(asked.message_id or "")
    assert answer == "I asked pricing.", "commands are not taken any more"
    assert (asked.content, asked.role) == ("What does it cost?", "user")
    first, *_ = await model_server.requests()
    system = first["body"]["messages"][0]["content"]
    assert system.startswith("You are front-desk, one of three agents")
    assert "pricing at /research/pricing" in system


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"CALLBOARD_MODEL_URL": "http://127.0.0.1:1/v1"}, "CALLBOARD_MODEL_URL"),
        ({"CALLBOARD_MODEL": "small-1"}, "CALLBOARD_MODEL"),
        ({"CALLBOARD_MODEL_URL": "nowhere", "CALLBOARD_MODEL": "small-1"}, "model_url"),
        (
            {"CALLBOARD_MODEL_URL": "http://x/v1", "CALLBOARD_MODEL": "m", "CALLBOARD_MODEL_KEY": "geheim\n"},
            "model_key",
        ),
    ],
)
def test_a_model_that_is_half_set_is_refused(environment: dict[str, str], path: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({}, environment, cwd=tmp_path).chat_model()
    assert caught.value.path == path
    assert "geheim" not in str(caught.value)


def test_without_a_model_there_is_none(tmp_path: Path) -> None:
    assert load_settings({}, {"CALLBOARD_MODEL_KEY": "unused"}, cwd=tmp_path).chat_model() is None
