"""A post into a session that works: its sender can see that it waits, that it was taken in and after which round, or its own turn (MSG-2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard import ChatAgent, Turn
from callboard.actors.models.model import ModelUnavailable
from callboard.tests.flows.chat_kit import WrittenModel, asks, text
from callboard.tests.flows.cli_kit import Here
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.prompt_kit import Pause, look

pytestmark = pytest.mark.spec("MSG-2", "INB-10")


async def own_steering(turn: Turn) -> str:
    """An agent that asks no model and takes posts in by itself."""
    while not await turn.steered():
        await turn.sleep(0.01)
    return "done"


@pytest.fixture
async def model() -> WrittenModel:
    return WrittenModel()


@pytest.fixture
async def served(tmp_path: Path, model: WrittenModel) -> AsyncIterator[Served]:
    agents = {"desk": ChatAgent(model, tools=[look]), "own": own_steering}
    async with serving_runtime(tmp_path, agents=agents) as opened:
        yield opened


async def seen(served: Served, receipt: dict[str, Any]) -> dict[str, Any]:
    answer = await served.client.get(f"/v1/messages/{receipt['message_id']}")
    return answer.json()


async def test_the_sender_sees_whether_it_waits_was_taken_in_or_has_a_turn_of_its_own(
    served: Served, model: WrittenModel
) -> None:
    first, second, last = Pause(asks(("look", {}))), Pause(asks(("look", {}))), Pause(text("Both."))
    # An attempt that fails in between changes nothing: what was taken in stays so.
    model.answers += [first, second, ModelUnavailable("gone"), last, text("Yours.")]
    session = await served.open()
    head = await served.post(session, "one")
    await first.begun.wait()
    first.go_on.set()
    await second.begun.wait()
    steered = await served.post(session, "two")
    queued = await seen(served, steered)
    assert (queued["status"], queued.get("steered_round")) == ("pending", None)
    assert "surfaced" not in queued["stages"]
    second.go_on.set()
    await last.begun.wait()
    turn = (await seen(served, head))["turn_id"]
    taken = await seen(served, steered)
    assert (taken["status"], taken["steered_round"], taken["turn_id"]) == ("processing", 2, turn)
    assert "surfaced" in taken["stages"]
    late = await served.post(session, "three")
    last.go_on.set()
    for receipt in (head, steered, late):
        await served.runtime.wait(receipt["message_id"])
    own = await seen(served, late)
    assert (own["status"], own.get("steered_round")) == ("delivered", None)
    assert own["turn_id"] not in {turn, taken["turn_id"]}
    assert (await seen(served, steered))["steered_round"] == 2
    assert "steered_round" not in await seen(served, head)


async def test_an_agent_without_a_model_takes_in_before_any_round(served: Served) -> None:
    session = await served.open("own")
    head = await served.post(session, "one")
    await served.until(session, "attempt.claimed")
    steered = await served.post(session, "two")
    await served.runtime.wait(head["message_id"])
    assert (await seen(served, steered))["steered_round"] == 0


async def test_the_command_shows_it_too(tmp_path: Path, model: WrittenModel, here: Here) -> None:
    async with serving_runtime(tmp_path, agents={"desk": ChatAgent(model, tools=[look])}) as served:
        pause = Pause(asks(("look", {})))
        model.answers += [pause, text("Both.")]
        session = await served.open()
        await served.post(session, "one", message_id="m-1")
        await pause.begun.wait()
        await served.post(session, "two", message_id="m-2")
        pause.go_on.set()
        await served.runtime.wait("m-2")
    shown = await here("inbox", "show", "m-2", folder=tmp_path)
    assert shown.code == 0
    assert ", after its model round 1" in shown.out
    assert (await here("inbox", "show", "m-2", "--json", folder=tmp_path)).json["steered_round"] == 1
    assert "steered" not in (await here("inbox", "show", "m-1", folder=tmp_path)).out
