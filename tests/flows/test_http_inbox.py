"""The inbox that operators look after: list, requeue, cancel."""

from __future__ import annotations

from callboard.tests.flows.edge_kit import Served
from callboard.tests.flows.test_http_sessions import TIME


async def test_the_inbox_is_listed_newest_first_and_filtered(served: Served) -> None:
    busy, other = await served.open("patient"), await served.open("desk")
    for number in range(5):
        await served.post(busy, f"message {number}", message_id=f"m-{number}")
    await served.until(busy, "turn.token")
    await served.say(other, "echo hi", message_id="other")

    async def listed(**params: str) -> list[str]:
        answer = await served.client.get("/v1/inbox", params=params)
        assert answer.status_code == 200, answer.text
        return [message["message_id"] for message in answer.json()["messages"]]

    assert await listed() == ["other", "m-4", "m-3", "m-2", "m-1", "m-0"]
    assert await listed(target=busy) == ["m-4", "m-3", "m-2", "m-1", "m-0"]
    assert await listed(target=busy, status="pending") == ["m-4", "m-3", "m-2", "m-1"]
    assert await listed(status="processing") == ["m-0"]
    assert await listed(status="delivered") == ["other"]
    assert await listed(status="failed") == []
    assert await listed(peer="peer:000000000000") == []
    assert await listed(before="2020-01-01T00:00:00Z") == []
    assert len(await listed(before="2999-01-01T00:00:00.000+02:00")) == 6
    assert await listed(target="ses_no") == []
    page = (await served.client.get("/v1/inbox", params={"limit": 4})).json()
    assert set(page) == {"messages", "has_more", "next"}
    assert page["has_more"] is True
    assert await listed(limit="4", cursor=page["next"]) == ["m-1", "m-0"]
    message = page["messages"][1]
    assert message["content"] == "message 4"
    assert TIME.fullmatch(message["available_at"])
    shown = (await served.client.get("/v1/messages/m-4")).json()
    assert {**message, "history": []} == {
        **shown,
        "content": message["content"],
        "available_at": message["available_at"],
    }


async def test_requeue_makes_a_new_message_and_is_repeatable_by_key(served: Served) -> None:
    session = await served.open()
    first = await served.say(session, "echo hi", message_id="m-1")
    key = {"Idempotency-Key": "again-1"}
    answers = [await served.client.post("/v1/inbox/m-1/requeue", headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["created"] for answer in answers] == [True, False]
    assert set(answers[0].json()) == {"message_id", "created", "status", "seq"}
    new = answers[0].json()["message_id"]
    assert answers[1].json()["message_id"] == new
    await served.runtime.wait(new)
    shown = (await served.client.get(f"/v1/messages/{new}")).json()
    assert shown["requeued_from"] == first["id"]
    without_key = [(await served.client.post("/v1/inbox/m-1/requeue")).json()["message_id"] for _ in range(2)]
    assert len({new, *without_key}) == 3
    for content in ("echo hi", "echo other"):
        other = await served.say(session, content)
        answer = await served.client.post(f"/v1/inbox/{other['id']}/requeue", headers=key)
        assert answer.status_code == 409


async def test_what_is_under_way_can_be_neither_requeued_nor_cancelled(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "work", message_id="m-1")
    await served.until(session, "turn.token")
    await served.refused("POST", "/v1/inbox/m-1/requeue", 409, "illegal_move")
    error = await served.refused("POST", "/v1/inbox/m-1/cancel", 409, "illegal_move")
    assert "stop that turn" in error["message"]
    await served.client.post(f"/v1/sessions/{session}/stop")
    await served.runtime.wait("m-1")
    await served.refused("POST", "/v1/inbox/m-1/cancel", 409, "illegal_move")
