"""In which project a request acts, as whom its messages are signed, and that the rest answers as unknown."""

from __future__ import annotations

import pytest

from callboard.tests.flows.access_kit import add_member, ask_for_ticket, make_key, member_key, without_token
from callboard.tests.flows.edge_kit import Served


@pytest.mark.spec("AUTH-2")
async def test_who_has_several_projects_names_one(served: Served) -> None:
    ann = await member_key(served, "ann", "beta", "alpha")
    error = await served.refused("GET", "/v1/sessions", 400, "invalid_field", headers=ann.headers)
    assert (error["path"], error["message"]) == ("Callboard-Project", "must name one of alpha, beta")
    opened: dict[str, str] = {}
    for project in ("alpha", "beta"):
        headers = {**ann.headers, "Callboard-Project": project}
        answer = await served.client.post("/v1/sessions", json={"agent": "desk", "path": "/here"}, headers=headers)
        opened[project] = answer.json()["id"]
        listed = (await served.client.get("/v1/sessions", headers=headers)).json()["sessions"]
        assert [session["id"] for session in listed] == [opened[project]]
    other = {**ann.headers, "Callboard-Project": "beta"}
    for rest in ("", "/transcript", "/events"):
        await served.refused("GET", f"/v1/sessions/{opened['alpha']}{rest}", 404, "unknown_target", headers=other)
    body = {"content": "echo hi"}
    path = f"/v1/sessions/{opened['alpha']}/messages"
    await served.refused("POST", path, 404, "unknown_target", headers=other, json=body)


@pytest.mark.spec("AUTH-2")
async def test_a_project_that_is_not_theirs_answers_as_unknown(served: Served) -> None:
    await served.open()
    keys = [
        await member_key(served, "ann"),
        await make_key(served, project="default"),
        await make_key(served, member="ann", project="default"),
    ]
    await add_member(served, "bob", "secret")
    for key in keys:
        assert (await served.client.get("/v1/sessions", headers=key.headers)).status_code == 200
        for project in ("secret", "never-used"):
            headers = {**key.headers, "Callboard-Project": project}
            error = await served.refused("GET", "/v1/sessions", 404, "not_found", headers=headers)
            assert (error["path"], error["message"]) == ("Callboard-Project", "there is no such project here")
        headers = {**key.headers, "Callboard-Project": "A/b"}
        await served.refused("GET", "/v1/sessions", 400, "invalid_field", headers=headers)


@pytest.mark.spec("AUTH-2")
async def test_the_operator_and_tokens_of_theirs_may_name_any_project(served: Served) -> None:
    key = await make_key(served, label="backup")
    for headers in (served.headers, key.headers):
        for project in ("default", "never-used"):
            answer = await served.client.get("/v1/sessions", headers={**headers, "Callboard-Project": project})
            assert answer.status_code == 200
    assert (await served.client.get("/v1/tree", headers=key.headers)).status_code == 200


@pytest.mark.spec("AUTH-2")
async def test_a_message_is_signed_by_its_credential(served: Served) -> None:
    session = await served.open()
    ann = await member_key(served, "ann")
    backend = await make_key(served, project="default", label="billing")
    unnamed = await make_key(served, project="default")
    operator = await make_key(served)
    expected = {
        ann.token: {"id": "ann", "kind": "member", "label": "ann"},
        backend.token: {"id": backend.id, "kind": "member", "label": "billing"},
        unnamed.token: {"id": unnamed.id, "kind": "member", "label": "default"},
        operator.token: {"id": "operator", "kind": "member", "label": "operator"},
    }
    for token in expected:
        headers = {"Authorization": f"Bearer {token}"}
        answer = await served.client.post(
            f"/v1/sessions/{session}/messages", json={"content": "echo hi"}, headers=headers
        )
        assert answer.status_code == 202
    entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
    assert [entry["sender"] for entry in entries if entry["role"] == "user"] == list(expected.values())


@pytest.mark.spec("AUTH-2")
async def test_one_sender_s_message_ids_are_not_another_s(served: Served) -> None:
    session = await served.open()
    ann, bob = await member_key(served, "ann"), await member_key(served, "bob")
    for key in (ann, bob):
        body = {"content": f"echo {key.id}", "message_id": "m-1"}
        answer = await served.client.post(f"/v1/sessions/{session}/messages", json=body, headers=key.headers)
        assert (answer.status_code, answer.json()["created"]) == (202, True)
        own = (await served.client.get("/v1/messages/m-1", headers=key.headers)).json()
        assert own["sender"]["id"] == ("ann" if key is ann else "bob")


@pytest.mark.spec("AUTH-2")
async def test_a_sender_in_the_input_is_refused(served: Served) -> None:
    session = await served.open()
    ann = await member_key(served, "ann")
    for name in ("sender", "principal", "project", "kind"):
        for path, body in (
            (f"/v1/sessions/{session}/messages", {"content": "echo hi", name: "operator"}),
            ("/v1/sessions", {"agent": "desk", name: "operator"}),
        ):
            error = await served.refused("POST", path, 400, "invalid_field", json=body, headers=ann.headers)
            assert error["path"] == name
    assert (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"] == []
    async with served.live(**ann.headers) as live:
        frame = await live.ask("send", session=session, content="echo hi", sender="operator")
        assert (frame["type"], frame["code"]) == ("error", "invalid_field")


@pytest.mark.spec("AUTH-1", "EVT-5")
async def test_a_member_works_over_a_websocket_in_its_project_alone(served: Served) -> None:
    mine, foreign = await served.open(), await served.open()
    ann = await member_key(served, "ann", "default", "other")
    inside = {**ann.headers, "Callboard-Project": "default"}
    async with served.live(**inside) as live:
        await live.ask("subscribe", session=mine, after=0)
        await live.say("send", session=mine, content="echo hi", message_id="m-1")
        while (frame := await live.frame())["type"] != "accepted":
            assert frame["type"] == "event"
        assert frame["created"]
    async with served.live(**{**ann.headers, "Callboard-Project": "other"}) as live:
        for command in ("subscribe", "stop"):
            frame = await live.ask(command, session=foreign)
            assert (frame["type"], frame["code"]) == ("error", "unknown_target")
    # A browser can't name a project in a handshake: there the ticket says it.
    ticket = await ask_for_ticket(served, inside)
    async with without_token(served).live(f"?ticket={ticket}") as live:
        assert (await live.ask("subscribe", session=mine))["type"] == "subscribed"


async def test_who_asks_is_told_who_it_is(served: Served) -> None:
    async def told(headers: dict[str, str]) -> dict[str, object]:
        return (await served.client.get("/v1/whoami", headers=headers)).json()

    ann, bob = await member_key(served, "ann", "beta", "alpha"), await member_key(served, "bob")
    backend = await make_key(served, project="default", label="billing")
    assert await told(served.headers) == {
        "kind": "operator",
        "name": "operator",
        "projects": None,
        "project": "default",
    }
    assert await told(ann.headers) == {
        "kind": "member",
        "name": "ann",
        "projects": ["alpha", "beta"],
        "project": None,
    }
    assert (await told({**ann.headers, "Callboard-Project": "beta"}))["project"] == "beta"
    assert (await told(bob.headers))["project"] == "default"
    assert await told(backend.headers) == {
        "kind": "project",
        "name": "billing",
        "projects": ["default"],
        "project": "default",
    }
