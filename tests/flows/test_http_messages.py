"""Messages over HTTP: accepted and recorded, and looked at by either id."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio

from callboard.actors.ports import Tuning
from callboard.storage.model.addresses import Sender
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.test_http_sessions import TIME


@pytest.mark.spec("INB-1")
async def test_accepted_means_that_the_row_is_in_the_file(served: Served, tmp_path: Path) -> None:
    session = await served.open("patient")
    receipt = await served.post(session, "hello", message_id="m-1")
    assert receipt == {"message_id": "m-1", "created": True, "status": "pending", "seq": 1}
    with sqlite3.connect(f"file:{tmp_path}/callboard.db?mode=ro", uri=True) as other:
        assert other.execute("SELECT count(*) FROM message WHERE message_id = 'm-1'").fetchone() == (1,)
        assert other.execute("SELECT content FROM entry").fetchall() == [("hello",)]
    other.close()


@pytest.mark.spec("INB-4")
async def test_the_same_send_again_is_one_message(served: Served) -> None:
    session, other = await served.open("patient"), await served.open("patient")
    first = await served.post(session, "hello", message_id="m-1")
    again = await served.post(session, "hello", message_id="m-1")
    assert again == {**first, "created": False, "status": again["status"]}
    for target, content in ((session, "other words"), (other, "hello")):
        error = await served.refused(
            "POST",
            f"/v1/sessions/{target}/messages",
            409,
            "message_conflict",
            json={"content": content, "message_id": "m-1"},
        )
        assert error["path"] == "message_id"
    entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
    assert len(entries) == 1


@pytest.mark.spec("INB-4")
async def test_the_idempotency_key_is_the_message_id(served: Served) -> None:
    session = await served.open("patient")
    path = f"/v1/sessions/{session}/messages"
    key = {"Idempotency-Key": "k.1:a_b-C"}
    answers = [await served.client.post(path, json={"content": "hello"}, headers=key) for _ in range(2)]
    assert [answer.json()["created"] for answer in answers] == [True, False]
    assert {answer.json()["message_id"] for answer in answers} == {"k.1:a_b-C"}
    same = await served.client.post(path, json={"content": "hello", "message_id": "k.1:a_b-C"}, headers=key)
    assert same.json()["created"] is False
    for other in ({"content": "hello", "message_id": "else"}, {"content": "hello", "message_id": ""}):
        error = await served.refused("POST", path, 400, "invalid_field", json=other, headers=key)
        assert error["path"] == "Idempotency-Key"
    await served.refused("POST", path, 409, "message_conflict", json={"content": "bye"}, headers=key)
    for bad in ("", "a b", "x" * 129, "ü"):
        headers = {"Idempotency-Key": bad.encode()}
        error = await served.refused("POST", path, 400, "invalid_field", json={"content": "x"}, headers=headers)
        assert error["path"] == "Idempotency-Key"
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    await served.refused("POST", path, 400, "invalid_field", json={"content": "x"}, headers=twice)


@pytest.mark.spec("MSG-1")
async def test_concurrent_posts_take_one_number_each(served: Served) -> None:
    session = await served.open("patient")
    receipts: list[int] = []

    async def post(number: int) -> None:
        receipts.append((await served.post(session, f"message {number}"))["seq"])

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(post, number)
    assert sorted(receipts) == list(range(1, 61))
    entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
    assert [entry["seq"] for entry in entries] == list(range(1, 61))
    assert {entry["content"] for entry in entries} == {f"message {number}" for number in range(60)}


@pytest.mark.spec("MSG-2")
async def test_a_post_to_a_busy_session_starts_the_next_turn(served: Served) -> None:
    session = await served.open("patient")
    first, second = await served.post(session, "one"), await served.post(session, "two")
    await served.until(session, "turn.token")
    assert (await served.client.get(f"/v1/messages/{second['message_id']}")).json()["status"] == "pending"
    await served.client.post(f"/v1/sessions/{session}/stop")
    await served.runtime.wait(first["message_id"])
    async with served.stream(f"/v1/sessions/{session}/events") as events:
        seen = await events.until("turn.stopped")
        seen += await events.until("turn.token")
        await served.client.post(f"/v1/sessions/{session}/stop")
        seen += await events.until("turn.stopped")
    turns = [data["message_id"] for _, kind, data in seen if kind in ("turn.started", "turn.stopped")]
    assert turns == [first["message_id"]] * 2 + [second["message_id"]] * 2


@pytest.mark.spec("SES-10")
async def test_a_sender_reads_every_stage(served: Served) -> None:
    session = await served.open("patient")
    receipt = await served.post(session, "work", message_id="m-1")
    await served.until(session, "turn.token")
    running = (await served.client.get("/v1/messages/m-1")).json()
    assert running["status"] == "processing"
    assert set(running["stages"]) == {"accepted", "leased", "surfaced"}
    assert running["lease"]["holder"] == served.runtime.process
    assert "outcome" not in running
    waiting = await served.post(session, "later")
    pending = (await served.client.get(f"/v1/messages/{waiting['message_id']}")).json()
    assert (pending["status"], set(pending["stages"])) == ("pending", {"accepted"})
    await served.client.post(f"/v1/sessions/{session}/stop", json={"drop_queued": True})
    await served.runtime.wait("m-1")
    done = (await served.client.get("/v1/messages/m-1")).json()
    assert {
        name: done[name]
        for name in ("id", "message_id", "session", "status", "outcome", "attempt", "attempts", "takeovers")
    } == {
        "id": done["id"],
        "message_id": receipt["message_id"],
        "session": session,
        "status": "delivered",
        "outcome": "stopped",
        "attempt": 1,
        "attempts": 0,
        "takeovers": 0,
    }
    assert done["turn_id"] == done["id"].replace("msg_", "turn_")
    assert list(done["stages"]) == ["accepted", "leased", "surfaced", "committed"]
    assert all(TIME.fullmatch(at) for at in done["stages"].values())
    assert sorted(done["stages"].values()) == list(done["stages"].values())
    assert (await served.client.get(f"/v1/messages/{done['id']}")).json() == done


@pytest.mark.spec("SES-10")
async def test_the_four_outcomes(served: Served) -> None:
    desk = await served.open("desk")
    assert (await served.say(desk, "echo hi"))["outcome"] == "answered"
    silent = await served.open("silent")
    assert (await served.say(silent, "anything"))["outcome"] == "no_visible_reply"
    patient = await served.open("patient")
    await served.post(patient, "one", message_id="one")
    await served.post(patient, "two", message_id="two")
    await served.until(patient, "turn.token")
    assert (await served.client.post("/v1/inbox/two/cancel")).status_code == 200
    await served.client.post(f"/v1/sessions/{patient}/stop")
    await served.runtime.wait("one")
    assert (await served.client.get("/v1/messages/one")).json()["outcome"] == "stopped"
    failed = (await served.client.get("/v1/messages/two")).json()
    assert (failed["outcome"], failed["reason"]) == ("failed", "cancelled")


@pytest.mark.spec("SES-10")
async def test_the_session_that_sent_a_failed_message_gets_a_notice(served: Served) -> None:
    target, sender = await served.open("patient", path="/busy"), await served.open("desk", path="/asks")
    await served.post(target, "keep busy")
    await served.until(target, "turn.token")
    await served.say(sender, "ask /busy please")
    (message,) = [
        item
        for item in (await served.client.get("/v1/inbox", params={"target": target})).json()["messages"]
        if item["sender"]["id"] == sender
    ]
    assert (await served.client.post(f"/v1/inbox/{message['id']}/cancel")).status_code == 200
    entries = (await served.client.get(f"/v1/sessions/{sender}/transcript")).json()["entries"]
    assert (entries[-1]["role"], entries[-1]["sender"]["kind"]) == ("notice", "system")
    assert message["id"] in entries[-1]["content"]
    assert "cancelled" in entries[-1]["content"]


async def test_a_message_shows_the_history_of_its_attempts(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path) as served:
        session = await served.open("broken")
        await served.post(session, "try", message_id="m-1")
        await served.until(session, "attempt.relinquished")
        message = (await served.client.get("/v1/messages/m-1")).json()
        (attempt,) = message["history"]
        assert (attempt["attempt"], attempt["ending"], attempt["status"]) == (1, "retried", "pending")
        assert "no luck with 'try'" in attempt["detail"]
        assert TIME.fullmatch(attempt["due"])
        assert TIME.fullmatch(attempt["at"])
        assert message["attempts"] == 1
        assert "no luck" in message["last_error"]


async def test_what_is_not_there_is_404(served: Served) -> None:
    for path in ("/v1/messages/msg_no", "/v1/messages/m-1", "/v1/messages/%F0%9F%98%80", "/v1/turns/turn_no/events"):
        await served.refused("GET", path, 404, "not_found")
    for action in ("requeue", "cancel"):
        await served.refused("POST", f"/v1/inbox/msg_no/{action}", 404, "not_found")
    await served.refused("POST", "/v1/sessions/ses_no/messages", 404, "unknown_target", json={"content": "x"})


@pytest.mark.spec("INB-4")
async def test_one_message_id_of_several_senders(served: Served) -> None:
    session = await served.open("patient")
    runtime = served.runtime
    for name in ("ann", "bob"):
        await runtime.desk.send(
            runtime.scope, session, f"from {name}", Sender(name, "member", name), message_id="shared"
        )
    await served.refused("GET", "/v1/messages/shared", 409, "ambiguous_id")
    await served.refused("POST", "/v1/inbox/shared/cancel", 409, "ambiguous_id")
    own = await served.post(session, "my own", message_id="shared")
    shown = (await served.client.get("/v1/messages/shared")).json()
    assert (shown["seq"], shown["sender"]["id"]) == (own["seq"], "operator")
    cancelled = (await served.client.post("/v1/inbox/shared/cancel")).json()
    assert cancelled["id"] == shown["id"]


@pytest.mark.spec("RT-14")
async def test_a_full_mailbox_is_429_with_retry_after(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, tuning=Tuning(mailbox_depth=3)) as served:
        session = await served.open("patient")
        for number in range(3):
            await served.post(session, f"message {number}", message_id=f"m-{number}")
        path = f"/v1/sessions/{session}/messages"
        answer = await served.client.post(path, json={"content": "one more"})
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "mailbox_full"
        assert int(answer.headers["retry-after"]) >= 1
        assert (await served.post(session, "message 1", message_id="m-1"))["created"] is False
