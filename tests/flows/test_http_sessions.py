"""Sessions over HTTP: open, find, look at, rename, delete, stop, read. Exact shapes as the contract states them."""

from __future__ import annotations

import re

import pytest

from callboard.tests.flows.edge_kit import Served

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SESSION = {"id", "path", "agent", "title", "kind", "status", "parent", "updated"}


async def test_a_session_is_opened_and_found_again(served: Served) -> None:
    answer = await served.client.post("/v1/sessions", json={"agent": "desk", "path": "/ops/deploy", "title": "Deploys"})
    assert answer.status_code == 201
    session = answer.json()
    assert set(session) == SESSION
    assert {name: session[name] for name in SESSION - {"id", "updated"}} == {
        "path": "/ops/deploy",
        "agent": "desk",
        "title": "Deploys",
        "kind": "interactive",
        "status": "idle",
        "parent": None,
    }
    assert TIME.fullmatch(session["updated"])
    assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert (await served.client.get(answer.headers["location"])).json() == session
    found = (await served.client.get("/v1/sessions", params={"path": "/ops/deploy"})).json()
    assert found == {"sessions": [session], "has_more": False, "next": None}
    assert (await served.client.get("/v1/sessions", params={"path": "/ops"})).json()["sessions"] == []


async def test_a_session_needs_neither_path_nor_title(served: Served) -> None:
    first, second = await served.open(), await served.open(path=None)
    assert first != second
    session = (await served.client.get(f"/v1/sessions/{first}")).json()
    assert (session["path"], session["title"]) == (None, "")


async def test_a_taken_path_is_409_and_names_it(served: Served) -> None:
    await served.open(path="/desk")
    for agent in ("desk", "counter"):
        error = await served.refused("POST", "/v1/sessions", 409, "path_taken", json={"agent": agent, "path": "/desk"})
        assert error["path"] == "path"


async def test_an_unknown_agent_is_refused_by_name(served: Served) -> None:
    error = await served.refused("POST", "/v1/sessions", 400, "unknown_agent", json={"agent": "nobody"})
    assert error["path"] == "agent"
    assert "'nobody'" in error["message"]


@pytest.mark.spec("INB-4")
async def test_an_idempotency_key_makes_opening_repeatable(served: Served) -> None:
    body = {"agent": "desk", "path": "/once", "title": "Once"}
    key = {"Idempotency-Key": "open-1"}
    first = await served.client.post("/v1/sessions", json=body, headers=key)
    again = await served.client.post("/v1/sessions", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    for other in (
        {**body, "agent": "counter"},
        {**body, "path": "/twice"},
        {**body, "title": "Twice"},
        {"agent": "desk"},
    ):
        error = await served.refused("POST", "/v1/sessions", 409, "conflict", json=other, headers=key)
        assert error["path"] == "Idempotency-Key"
    assert len((await served.client.get("/v1/sessions")).json()["sessions"]) == 2  # this one and the root
    without_path = [
        (await served.client.post("/v1/sessions", json={"agent": "desk"}, headers={"Idempotency-Key": "p"})).json()[
            "id"
        ]
        for _ in range(2)
    ]
    assert len(set(without_path)) == 1
    assert (await served.client.delete(f"/v1/sessions/{first.json()['id']}")).status_code == 204
    await served.refused("POST", "/v1/sessions", 409, "conflict", json=body, headers=key)


async def test_sessions_are_listed_in_pages_newest_change_first(served: Served) -> None:
    opened = [await served.open() for _ in range(5)]
    await served.say(opened[1], "echo hello")
    seen: list[str] = []
    params: dict[str, str] = {"limit": "2"}
    while True:
        page = (await served.client.get("/v1/sessions", params=params)).json()
        assert set(page) == {"sessions", "has_more", "next"}
        assert len(page["sessions"]) <= 2
        seen += [session["id"] for session in page["sessions"]]
        if not page["has_more"]:
            break
        params["cursor"] = page["next"]
    assert page["next"] is None
    assert seen[0] == opened[1]
    assert seen[1:5] == [opened[4], opened[3], opened[2], opened[0]]
    assert len(seen) == 6


async def test_sessions_are_listed_by_status(served: Served) -> None:
    busy, idle = await served.open("patient"), await served.open()
    await served.post(busy, "work")
    await served.until(busy, "turn.token")

    async def listed(status: str) -> set[str]:
        page = (await served.client.get("/v1/sessions", params={"status": status})).json()
        return {session["id"] for session in page["sessions"]}

    assert await listed("active") == {busy}
    assert idle in await listed("idle")
    assert busy not in await listed("idle")
    assert {busy, idle} < await listed("recent")
    assert (await served.client.get(f"/v1/sessions/{busy}")).json()["status"] == "active"


async def test_a_title_can_be_changed_and_nothing_else(served: Served) -> None:
    session = await served.open(path="/a", title="Old")
    answer = await served.client.patch(f"/v1/sessions/{session}", json={"title": "New"})
    assert (answer.status_code, answer.json()["title"]) == (200, "New")
    assert (await served.client.patch(f"/v1/sessions/{session}", json={"title": ""})).json()["title"] == ""
    for field in ("path", "agent", "status"):
        error = await served.refused(
            "PATCH", f"/v1/sessions/{session}", 400, "invalid_field", json={"title": "x", field: "y"}
        )
        assert error["path"] == field
    await served.refused("PATCH", "/v1/sessions/ses_no", 404, "unknown_target", json={"title": "x"})


async def test_a_deleted_session_is_unknown_everywhere_and_its_path_is_free(served: Served) -> None:
    session = await served.open(path="/gone")
    assert (await served.client.delete(f"/v1/sessions/{session}")).status_code == 204
    assert (await served.client.delete(f"/v1/sessions/{session}")).status_code == 204
    for method, tail in (("GET", ""), ("GET", "/transcript"), ("GET", "/events"), ("POST", "/stop")):
        await served.refused(method, f"/v1/sessions/{session}{tail}", 404, "unknown_target")
    await served.refused("PATCH", f"/v1/sessions/{session}", 404, "unknown_target", json={"title": "x"})
    await served.refused("POST", f"/v1/sessions/{session}/messages", 404, "unknown_target", json={"content": "x"})
    assert await served.open(path="/gone") != session


async def test_the_root_stays(served: Served) -> None:
    (root,) = (await served.client.get("/v1/sessions", params={"path": "/"})).json()["sessions"]
    await served.refused("DELETE", f"/v1/sessions/{root['id']}", 409, "conflict")
    await served.refused("DELETE", "/v1/sessions/ses_no", 404, "unknown_target")


async def test_a_stop_ends_the_running_turn_and_says_so(served: Served) -> None:
    session = await served.open("patient")
    error = await served.refused("POST", f"/v1/sessions/{session}/stop", 409, "inactive")
    assert error["path"] == "session"
    first, waiting = await served.post(session, "work"), await served.post(session, "more work")
    await served.until(session, "turn.token")
    answer = await served.client.post(f"/v1/sessions/{session}/stop", json={"drop_queued": True})
    assert (answer.status_code, answer.json()) == (202, {"status": "stopping"})
    await served.runtime.wait(first["message_id"])
    stopped = (await served.client.get(f"/v1/messages/{first['message_id']}")).json()
    assert (stopped["status"], stopped["outcome"]) == ("delivered", "stopped")
    dropped = (await served.client.get(f"/v1/messages/{waiting['message_id']}")).json()
    assert (dropped["status"], dropped["outcome"], dropped["reason"]) == ("failed", "failed", "dropped")


async def test_a_stop_takes_an_empty_body_and_a_key(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "work")
    await served.until(session, "turn.token")
    headers = {"Idempotency-Key": "stop-1", "Content-Type": "application/json"}
    assert (await served.client.post(f"/v1/sessions/{session}/stop", headers=headers)).status_code == 202


@pytest.mark.spec("MSG-1")
async def test_the_transcript_shows_entries_in_order(served: Served) -> None:
    session = await served.open(path="/t")
    asked = await served.say(session, "echo one", message_id="m-1")
    await served.say(session, "echo two")
    entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4]
    assert TIME.fullmatch(entries[0].pop("at"))
    assert TIME.fullmatch(entries[1].pop("at"))
    assert entries[0] == {
        "seq": 1,
        "role": "user",
        "content": "echo one",
        "sender": {"id": "operator", "label": "operator", "kind": "member"},
        "message_id": "m-1",
        "state": "delivered",
    }
    assert entries[1] == {
        "seq": 2,
        "role": "assistant",
        "content": "one",
        "sender": {"id": session, "label": "desk", "kind": "session"},
        "in_reply_to": "m-1",
        "state": "delivered",
    }
    assert asked["session"] == session
    later = (await served.client.get(f"/v1/sessions/{session}/transcript", params={"after": 2})).json()["entries"]
    assert [entry["seq"] for entry in later] == [3, 4]
    page = (await served.client.get(f"/v1/sessions/{session}/transcript", params={"after": 1, "limit": 2})).json()
    assert [entry["seq"] for entry in page["entries"]] == [2, 3]
    assert (await served.client.get(f"/v1/sessions/{session}/transcript", params={"after": 99})).json() == {
        "entries": []
    }


@pytest.mark.spec("MSG-1")
@pytest.mark.parametrize("count", [200, 401])
async def test_a_long_transcript_comes_whole(served: Served, count: int) -> None:
    session = await served.open("patient")
    await served.post(session, "keep busy")
    for number in range(1, count):
        await served.runtime.send(session, f"message {number} \u2028 ü \U0001f600")
    answer = await served.client.get(f"/v1/sessions/{session}/transcript")
    assert answer.headers["content-type"] == "application/json"
    entries = answer.json()["entries"]
    assert [entry["seq"] for entry in entries] == list(range(1, count + 1))
    assert entries[-1]["content"] == f"message {count - 1} \u2028 ü \U0001f600"


async def test_a_path_is_no_id(served: Served) -> None:
    session = await served.open(path="/ops")
    for path in ("/v1/sessions/%2Fops", "/v1/sessions//ops"):
        await served.refused("GET", path, 404, "not_found")
    for path in (
        "/v1/sessions/ops",
        f"/v1/sessions/session:{session}",
        "/v1/sessions/%20",
        "/v1/sessions/ses_" + "0" * 5000,
    ):
        await served.refused("GET", path, 404, "unknown_target")


@pytest.mark.spec("INB-4")
async def test_a_repeated_open_after_a_rename_is_the_same_open(served: Served) -> None:
    opening = {"json": {"agent": "desk", "title": "Old"}, "headers": {"Idempotency-Key": "open-1"}}
    first = await served.client.post("/v1/sessions", **opening)
    await served.client.patch(f"/v1/sessions/{first.json()['id']}", json={"title": "New"})
    again = await served.client.post("/v1/sessions", **opening)
    assert (again.status_code, again.json()["id"], again.json()["title"]) == (201, first.json()["id"], "New")
