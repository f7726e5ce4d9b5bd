"""A call that a person must allow: asked once, waits over restarts, denied after its time (EVT-6)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import callboard
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import Conflict, Denied, NotFound
from callboard.storage.model.states import Outcome
from callboard.tests.flows.edge_kit import serving_runtime
from callboard.tests.flows.turn_kit import running

RAN: list[int] = []


@callboard.tool("external", needs_approval=True)
async def charge(amount: int) -> str:
    RAN.append(amount)
    return f"charged {amount}"


@callboard.tool("pure", needs_approval=True)
async def look(amount: int) -> str:
    RAN.append(amount)
    return f"looked at {amount}"


async def cashier(turn: callboard.Turn) -> str:
    used = look if turn.text.startswith("look") else charge
    try:
        return str(await turn.step(used, amount=int(turn.text.split()[-1])))
    except Denied as refusal:
        return f"not allowed: {refusal.message}"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


async def question(runtime: callboard.Runtime, session: str) -> str:
    """The id of the approval that the session's turn waits for."""
    async with runtime.follow(session, after=0) as events:
        async for event in events:
            if event.kind == "turn.waiting":
                return str(event.data["approval_id"])
    raise AssertionError


@pytest.mark.spec("EVT-6")
@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_a_person_and_goes_by_the_answer(autojump_clock: MockClock, approve: bool) -> None:
    async with running({"cashier": cashier}) as board:
        session = await board.open("cashier")
        receipt = await board.post(session, "charge 5")
        asked = await question(board.runtime, session.id)
        await trio.sleep(600)
        assert RAN == []
        answered = await board.runtime.desk.answer(board.scope, asked, approve=approve, by="member:ann")
        assert answered.state == ("approved" if approve else "denied")
        view = await board.final(receipt)
        assert view.outcome is Outcome.ANSWERED
        assert view.attempt == 1
        assert ([5] if approve else []) == RAN
        texts = [entry.content for entry in await board.runtime.read(session.id) if entry.role == "assistant"]
        assert texts == ["charged 5" if approve else "not allowed: the call of charge was denied"]
        kinds = [event.kind for event in (await board.runtime.store.reads.events(board.scope, session.id)).events]
        first = kinds.index("approval.required")
        assert kinds[first + 1] == "turn.waiting"
        assert kinds[first + 2 :] == ["tool.call", "tool.result", "turn.completed"]


@pytest.mark.spec("EVT-6")
async def test_the_question_says_what_will_run(autojump_clock: MockClock) -> None:
    async with running({"cashier": cashier}) as board:
        session = await board.open("cashier")
        await board.post(session, "charge 7")
        asked = await question(board.runtime, session.id)
        events = (await board.runtime.store.reads.events(board.scope, session.id)).events
        (required,) = [event for event in events if event.kind == "approval.required"]
        assert required.data["approval_id"] == asked
        assert (required.data["tool"], required.data["arguments"]) == ("charge", {"amount": 7})
        assert {"turn_id", "message_id", "attempt", "action_id", "expires"} <= set(required.data)


@pytest.mark.spec("EVT-6")
async def test_nobody_answers_for_fifteen_minutes(autojump_clock: MockClock) -> None:
    async with running({"cashier": cashier}) as board:
        session = await board.open("cashier")
        receipt = await board.post(session, "charge 5")
        asked = await question(board.runtime, session.id)
        start = trio.current_time()
        await board.final(receipt)
        assert 899 <= trio.current_time() - start <= 906
        assert RAN == []
        with pytest.raises(Conflict):
            await board.runtime.desk.answer(board.scope, asked, approve=True, by="member:ann")


@pytest.mark.spec("EVT-6")
async def test_an_answer_counts_once_and_only_in_its_project(autojump_clock: MockClock) -> None:
    async with running({"cashier": cashier}) as board:
        session = await board.open("cashier")
        receipt = await board.post(session, "charge 5")
        asked = await question(board.runtime, session.id)
        desk = board.runtime.desk
        other = Scope(project="other")
        with pytest.raises(NotFound):
            await desk.answer(board.scope, "apr_none", approve=True, by="member:ann")
        with pytest.raises(NotFound):
            await desk.answer(other, asked, approve=True, by="member:ann")
        first = await desk.answer(board.scope, asked, approve=True, by="member:ann")
        assert await desk.answer(board.scope, asked, approve=True, by="member:bob") == first
        with pytest.raises(Conflict):
            await desk.answer(board.scope, asked, approve=False, by="member:ann")
        await board.final(receipt)
        assert RAN == [5]


@pytest.mark.spec("EVT-6", "RT-5")
@pytest.mark.parametrize("text", ["charge 5", "look 5"])
async def test_waiting_survives_a_restart_and_is_asked_once(
    tmp_path: Path, autojump_clock: MockClock, text: str
) -> None:
    url = f"sqlite:///{tmp_path}/waiting.db"
    tuning = callboard.Tuning(stop_grace_seconds=0.1)
    async with running({"cashier": cashier}, url=url, tuning=tuning) as board:
        session = await board.open("cashier")
        receipt = await board.post(session, text)
        asked = await question(board.runtime, session.id)
    async with running({"cashier": cashier}, url=url, tuning=tuning) as board:
        await board.until(session, "attempt.claimed", 2)
        await board.runtime.desk.answer(board.scope, asked, approve=True, by="member:ann")
        view = await board.final(receipt)
        assert (view.outcome, view.attempts) == (Outcome.ANSWERED, 0)
        assert RAN == [5]
        events = (await board.runtime.store.reads.events(board.scope, session.id)).events
        assert [event.kind for event in events].count("approval.required") == 1


@pytest.mark.spec("EVT-6", "RT-4")
async def test_a_turn_that_waits_can_be_stopped(autojump_clock: MockClock) -> None:
    async with running({"cashier": cashier}) as board:
        session = await board.open("cashier")
        receipt = await board.post(session, "charge 5")
        await question(board.runtime, session.id)
        await board.runtime.stop(session.id)
        view = await board.final(receipt)
        assert view.outcome is Outcome.STOPPED
        assert RAN == []


@pytest.mark.spec("EVT-6")
async def test_a_person_answers_over_http(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, agents={"cashier": cashier}) as served:
        session = await served.runtime.open_session(agent="cashier")
        receipt = await served.runtime.send(session.id, "charge 5")
        asked = await question(served.runtime, session.id)
        path = f"/v1/approvals/{asked}"
        for body, status, code in (
            ({}, 400, "invalid_field"),
            ({"approve": "yes"}, 400, "invalid_field"),
            ({"approve": True, "by": "me"}, 400, "invalid_field"),
        ):
            answer = await served.client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert (await served.client.post("/v1/approvals/apr_none", json={"approve": True})).status_code == 404
        for _ in range(2):
            answer = await served.client.post(path, json={"approve": True})
            assert answer.status_code == 200
            assert answer.json() == {"id": asked, "session": session.id, "state": "approved"}
        assert (await served.client.post(path, json={"approve": False})).status_code == 409
        await served.runtime.wait(receipt.id)
        assert RAN == [5]
