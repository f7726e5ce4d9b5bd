"""Event streams of one turn: a filter of the session's events with the same ids, which ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from callboard.actors.session.turn import Turn
from callboard.storage.ops import PruneEvents
from callboard.tests.flows.edge_kit import AGENTS, Served, serving_runtime
from callboard.tests.flows.edge_readers import SeenEvent


def of_turn(log: list[SeenEvent], turn: str) -> list[SeenEvent]:
    return [event for event in log if event[2].get("turn_id") == turn]


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_a_turn_stream_is_a_filter_and_ends_with_the_turn(served: Served) -> None:
    session = await served.open("counter")
    for _ in range(3):
        await served.say(session, "count 2")
    log = await served.log(session)
    turns = list(dict.fromkeys(data["turn_id"] for _, kind, data in log if kind == "turn.started"))
    assert len(turns) == 3
    for turn in turns:
        expected = of_turn(log, turn)
        async with served.stream(f"/v1/turns/{turn}/events") as stream:
            assert stream.status == 200
            assert await stream.rest() == expected
        for position, (cursor, _, _) in enumerate(expected[:-1]):
            async with served.stream(f"/v1/turns/{turn}/events", last=cursor) as stream:
                assert await stream.rest() == expected[position + 1 :]


@pytest.mark.spec("EVT-3")
async def test_after_its_end_there_is_nothing_to_come(served: Served) -> None:
    session = await served.open("counter")
    message = await served.say(session, "count 2")
    path = f"/v1/turns/{message['turn_id']}/events"
    newest = len(await served.log(session))
    await served.say(session, "count 2")
    for cursor in (newest, newest + 1, newest + 3, 10**6, 2**63 - 1):
        answer = await served.client.get(path, headers={"Last-Event-ID": str(cursor)})
        assert (answer.status_code, answer.content) == (204, b"")
        assert "content-type" not in answer.headers


@pytest.mark.spec("EVT-2")
async def test_a_turn_is_followed_from_before_its_start_to_its_end(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "first")
    second = (await served.post(session, "second"))["message_id"]
    turn = second.replace("msg_", "turn_")
    async with served.stream(f"/v1/turns/{turn}/events") as stream:
        for number in range(2):
            await served.until(session, "turn.token")
            await served.client.post(f"/v1/sessions/{session}/stop")
            if number == 0:
                assert (await stream.until("turn.token"))[0][1] == "turn.started"
        seen = await stream.rest()
    assert seen[-1][1] == "turn.stopped"
    assert of_turn(await served.log(session), turn)[-len(seen) :] == seen


@pytest.mark.spec("EVT-3")
async def test_a_turn_that_was_never_run_ends_with_its_failure(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "first")
    waiting = (await served.post(session, "second"))["message_id"]
    turn = waiting.replace("msg_", "turn_")
    async with served.stream(f"/v1/turns/{turn}/events") as stream:
        assert (await served.client.post(f"/v1/inbox/{waiting}/cancel")).status_code == 200
        ((last, kind, data),) = await stream.rest()
    assert (kind, data["reason"], data["turn_id"]) == ("turn.failed", "cancelled", turn)
    answer = await served.client.get(f"/v1/turns/{turn}/events", headers={"Last-Event-ID": str(last)})
    assert answer.status_code == 204


@pytest.mark.spec("EVT-1")
async def test_a_message_that_another_turn_takes_in_names_that_turn(tmp_path: Path) -> None:
    gate = trio.Event()

    async def steered(turn: Turn) -> str:
        await turn.emit("ready")
        await gate.wait()
        return f"with {len(await turn.steered())} more"

    async with serving_runtime(tmp_path, agents={**AGENTS, "steered": steered}) as served:
        session = await served.open("steered")
        first = (await served.post(session, "one"))["message_id"]
        await served.until(session, "turn.token")
        second = (await served.post(session, "two"))["message_id"]
        async with served.stream(f"/v1/turns/{second.replace('msg_', 'turn_')}/events") as stream:
            gate.set()
            assert await stream.rest() == []
        shown = [(await served.client.get(f"/v1/messages/{name}")).json() for name in (first, second)]
        assert [message["status"] for message in shown] == ["delivered", "delivered"]
        assert [message["turn_id"] for message in shown] == [first.replace("msg_", "turn_")] * 2
        answer = await served.client.get(f"/v1/turns/{second.replace('msg_', 'turn_')}/events")
        assert answer.status_code == 204


@pytest.mark.spec("EVT-3")
async def test_a_turn_whose_events_were_pruned_still_ends(served: Served) -> None:
    session = await served.open("counter")
    message = await served.say(session, "count 2")
    await served.say(session, "count 2")
    await served.runtime.store.apply(PruneEvents(keep_seconds=0.0))
    floor = (await served.runtime.store.reads.events(served.runtime.scope, session)).floor
    path = f"/v1/turns/{message['turn_id']}/events"
    async with served.stream(path) as stream:
        assert await stream.rest() == [(floor, "resync", {"after": floor, "oldest": floor + 1})]
    assert (await served.client.get(path, headers={"Last-Event-ID": str(floor)})).status_code == 204


@pytest.mark.spec("EVT-3")
async def test_another_attempt_belongs_to_the_same_stream(tmp_path: Path) -> None:
    runs = 0

    async def second_time(turn: Turn) -> str:
        nonlocal runs
        runs += 1
        await turn.emit(f"attempt {turn.attempt}".ljust(200))
        if runs == 1:
            raise RuntimeError("the first time")
        return "done"

    async with serving_runtime(tmp_path, agents={"flaky": second_time}) as served:
        session = await served.open("flaky")
        message = (await served.post(session, "go"))["message_id"]
        async with served.stream(f"/v1/turns/{message.replace('msg_', 'turn_')}/events") as stream:
            seen = await stream.rest()
        kinds = [kind for _, kind, _ in seen]
        assert kinds.count("attempt.claimed") == 2
        assert kinds.index("attempt.relinquished") > kinds.index("turn.token")
        assert kinds[-1] == "turn.completed"
        assert seen == of_turn(await served.log(session), message.replace("msg_", "turn_"))
