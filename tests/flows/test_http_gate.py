"""What stands before every route: credentials, Origin, Host, methods, addresses; and the front in its tree."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from callboard.actors.edges.app import PUBLIC, ROUTES
from callboard.storage.model.errors import Busy
from callboard.supervisors.front import Front, FrontSettings
from callboard.supervisors.runtime import open_runtime
from callboard.tests.flows.edge_kit import AGENTS, DEADLINE, Served, serving_runtime

ALL = [(method, path) for path, methods in ROUTES.items() for method in methods]


async def test_every_route_needs_the_token(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=DEADLINE) as nobody:
        for method, path in ALL:
            for headers in ({}, {"Authorization": "Bearer " + "a" * 43}, {"Authorization": f"Basic {served.token}"}):
                answer = await nobody.request(method, path.format(id="ses_x"), headers=headers)
                assert answer.status_code == 401, (method, path)
                assert answer.json()["error"]["code"] == "unauthorized"
                assert answer.headers["www-authenticate"] == 'Bearer realm="callboard"'
            answer = await nobody.request(method, path.format(id="x"), params={"token": served.token})
            assert answer.status_code == 401


async def test_addresses_that_do_not_exist_tell_strangers_nothing(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=DEADLINE) as nobody:
        for path in ("/", "/v1", "/v1/nothing", "/metrics"):
            assert (await nobody.get(path)).status_code == 401
    for path in ("/v1", "/v1/nothing", "/v1/sessions/", "/V1/sessions", "/v1/sessions/x/y/z", "/healthz/"):
        await served.refused("GET", path, 404, "not_found")


async def test_other_methods_are_405_and_name_those_there_are(served: Served) -> None:
    for path, methods in {**PUBLIC, **ROUTES}.items():
        allowed = {*methods, *({"HEAD"} if "GET" in methods else set())}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - allowed:
            answer = await served.client.request(method, path.format(id="x"))
            assert answer.status_code == 405, (method, path)
            assert answer.json()["error"]["code"] == "method_not_allowed"
            assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed


async def test_head_is_get_without_a_body(served: Served) -> None:
    session = await served.open()
    for path in ("/healthz", "/v1/sessions", f"/v1/sessions/{session}", f"/v1/sessions/{session}/events"):
        answer = await served.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert (await served.client.head("/v1/sessions/ses_no")).status_code == 404


async def test_a_page_of_another_origin_may_not_write(served: Served) -> None:
    foreign = {"Origin": "http://evil.example"}
    for method, path in ALL:
        if method != "GET":
            error = await served.refused(method, path.format(id="x"), 403, "forbidden", headers=foreign)
            assert error["path"] == "Origin"
    answer = await served.client.post("/v1/sessions", json={"agent": "desk"}, headers={"Origin": served.url})
    assert answer.status_code == 201


async def test_a_host_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, allowed_hosts=("board.example",)) as served:
        for host, status in (
            ("localhost", 200),
            (f"127.0.0.1:{served.port}", 200),
            ("[::1]", 200),
            ("Board.Example:1", 200),
            ("evil.example", 421),
            ("board.example.evil.example", 421),
        ):
            assert (await served.client.get("/healthz", headers={"Host": host})).status_code == status, host
            assert (await served.client.get("/v1/tree", headers={"Host": host})).status_code == status, host


async def test_the_token_is_in_no_log_and_no_error(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = served.token
    texts = [repr(served.front), repr(FrontSettings(token=token))]
    for path in (f"/v1/messages/{token}", "/v1/tree", f"/v1/sessions?{token}=1", f"/v1/sessions?cursor={token}x"):
        texts.append((await served.client.get(path)).text.replace(f'"path":"{token}"', ""))
    texts.append((await served.client.post("/v1/sessions", content=token)).text)
    session = await served.open()
    await served.say(session, "echo hi")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    texts += [str(await served.log(session)), *ours]
    assert not [text for text in texts if token in text]


async def test_the_projects_of_one_operator_do_not_see_each_other(served: Served) -> None:
    session = await served.open(path="/here")
    message = await served.say(session, "echo hi", message_id="m-1")
    other = {"Callboard-Project": "other"}
    for path in (f"/v1/sessions/{session}", f"/v1/sessions/{session}/transcript", f"/v1/sessions/{session}/events"):
        await served.refused("GET", path, 404, "unknown_target", headers=other)
    for path in (f"/v1/messages/{message['id']}", "/v1/messages/m-1", f"/v1/turns/{message['turn_id']}/events"):
        await served.refused("GET", path, 404, "not_found", headers=other)
    assert (await served.client.get("/v1/sessions", headers=other)).json()["sessions"] == []
    assert (await served.client.get("/v1/inbox", headers=other)).json()["messages"] == []
    key = {"Idempotency-Key": "same", **other}
    body = {"agent": "desk", "path": "/here"}
    there = (await served.client.post("/v1/sessions", json=body, headers=key)).json()["id"]
    here = (
        await served.client.post("/v1/sessions", json={"agent": "desk"}, headers={"Idempotency-Key": "same"})
    ).json()["id"]
    assert len({session, there, here}) == 3
    posted = await served.client.post(f"/v1/sessions/{there}/messages", json={"content": "echo there"}, headers=other)
    assert posted.status_code == 202


@pytest.mark.spec("RT-14")
async def test_a_store_that_can_take_no_more_is_503_with_retry_after(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await served.open()

    async def full(op: object) -> None:
        raise Busy("the commit queue is full")

    async with served.live() as live:
        with monkeypatch.context() as patch:
            patch.setattr(served.runtime.store, "apply", full)
            answer = await served.client.post(f"/v1/sessions/{session}/messages", json={"content": "x"})
            frame = await live.ask("send", session=session, content="x", message_id="m")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert (frame["type"], frame["code"], frame["message_id"]) == ("error", "busy", "m")
        assert (await live.ask("send", session=session, content="x", message_id="m"))["created"] is True


async def test_a_fault_of_ours_is_500_and_tells_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(served.runtime.store.reads, "inbox", broken)
    error = await served.refused("GET", "/v1/inbox", 500, "internal")
    assert "secret" not in str(error)
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    assert (await served.client.get("/v1/sessions")).status_code == 200


# -- the front in its tree ------------------------------------------------------------------------------------------------


async def test_after_a_restart_the_front_listens_on_its_port_again(tmp_path: Path) -> None:
    told: list[int] = []
    again = trio.Event()

    class Watched(Front):
        def listens(self, endpoints: Any) -> None:
            super().listens(endpoints)
            told.append(endpoints[0].port)
            if len(told) == 2:
                again.set()

    with trio.fail_after(DEADLINE):
        front = Watched(FrontSettings(token="a" * 43, port=0))
        headers = {"Authorization": "Bearer " + "a" * 43}
        async with (
            open_runtime(f"sqlite:///{tmp_path}/x.db", agents=AGENTS, extra=front) as runtime,
            httpx.AsyncClient(base_url=front.url, headers=headers) as client,
        ):
            assert (await client.get("/v1/tree")).status_code == 200
            runtime.dispatcher.scope.cancel()
            await again.wait()
            tree = (await client.get("/v1/tree")).json()
    assert told == [front.endpoints[0].port] * 2
    assert [child["restarts"] for child in tree["children"] if child["name"] in ("store", "front")] == [0, 1]


async def test_a_stop_ends_streams_in_good_order_and_says_1001_to_websockets(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            ends: dict[str, object] = {}
            ready = [trio.Event(), trio.Event()]

            async def follow_stream(served: Served, session: str) -> None:
                async with served.stream(f"/v1/sessions/{session}/events") as events:
                    await events.until("turn.completed")
                    ready[0].set()
                    ends["stream"] = await events.rest()

            async def follow_live(served: Served, session: str) -> None:
                async with served.live() as live:
                    await live.ask("subscribe", session=session)
                    await live.until("turn.completed")
                    ready[1].set()
                    ends["live"] = (await live.closing())[0]

            async with serving_runtime(tmp_path) as served:
                session = await served.open()
                await served.say(session, "echo hi")
                nursery.start_soon(follow_stream, served, session)
                nursery.start_soon(follow_live, served, session)
                for event in ready:
                    await event.wait()
    assert ends == {"stream": [], "live": 1001}
