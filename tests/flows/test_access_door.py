"""The way in for browsers: links that are used once, cookies, and what a request with a cookie must prove."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from callboard.actors.edges.listeners import tls_context
from callboard.storage.ops import RevokeCredential
from callboard.tests.flows.access_kit import (
    ask_for_ticket,
    browser,
    cookie_of,
    enter,
    make_key,
    member_key,
    without_token,
)
from callboard.tests.flows.edge_kit import DEADLINE, Served, serving_runtime
from callboard.tests.flows.raw_client import Answer, handshake


async def upgrade(served: Served, path: str = "/v1/live", **fields: str) -> Answer:
    """Ask for a websocket with these fields and no token."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    async with await served.raw() as client:
        head = handshake(path, headers=lines.encode())
        await client.send(head.replace(b"Host: test", b"Host: 127.0.0.1:%d" % served.port))
        return await client.answer()


@pytest.mark.spec("AUTH-1")
async def test_a_link_becomes_a_cookie_and_leaves_no_ticket_behind(served: Served) -> None:
    ticket = await ask_for_ticket(served, kind="console")
    async with browser(served) as page:
        answer = await page.get(f"/?ticket={ticket}")
        assert (answer.status_code, answer.headers["location"], answer.content) == (303, "/", b"")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        name, *attributes = (part.strip() for part in answer.headers["set-cookie"].split(";"))
        assert name.startswith(f"callboard-{served.port}=")
        assert set(attributes) == {"Max-Age=2592000", "Path=/", "HttpOnly", "SameSite=Strict"}
        assert ticket not in str(answer.headers)
        assert (await page.get("/v1/whoami")).json()["kind"] == "operator"
        assert (await page.get("/")).status_code == 200
        # Opened again where it was used, it leads to where the browser may be anyway, and gives nothing new.
        answer = await page.get(f"/?ticket={ticket}")
        assert (answer.status_code, answer.headers["location"], "set-cookie" in answer.headers) == (303, "/", False)
    # Used once, by anybody.
    async with browser(served) as other:
        answer = await other.get(f"/?ticket={ticket}")
        assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None)
        assert (await other.get("/v1/whoami")).status_code == 401


@pytest.mark.spec("AUTH-1")
async def test_without_a_key_the_page_says_how_to_get_one(served: Served) -> None:
    async with browser(served) as page:
        for path in ("/", "/?ticket=", "/?ticket=wrong", "/?ticket=a&ticket=b"):
            answer = await page.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "callboard console" in answer.text
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert "refresh" not in answer.text
        # Opened from another site: the browser shows its cookie only to a page of ours, which is asked for once more.
        answer = await page.get("/", headers={"Sec-Fetch-Site": "cross-site"})
        assert '<meta http-equiv="refresh" content="0; url=/">' in answer.text
    wrong = {"Cookie": f"callboard-{served.port}=" + "a" * 43}
    async with browser(served) as page:
        assert (await page.get("/", headers=wrong)).status_code == 401
        assert (await page.get("/v1/sessions", headers=wrong)).status_code == 401


async def test_only_opening_a_link_uses_it_up(served: Served) -> None:
    ticket = await ask_for_ticket(served, kind="console")
    async with browser(served) as page:
        assert (await page.head(f"/?ticket={ticket}")).status_code == 401
        assert (await page.post(f"/?ticket={ticket}")).status_code == 405
        assert (await upgrade(served, f"/v1/live?ticket={ticket}")).status == 401
        assert (await page.get(f"/?ticket={ticket}")).status_code == 303


@pytest.mark.spec("AUTH-1")
async def test_a_cookie_is_taken_by_http_streams_and_websockets(served: Served) -> None:
    session = await served.open()
    async with enter(served) as page:
        posted = await page.post(f"/v1/sessions/{session}/messages", json={"content": "echo hi"})
        assert posted.status_code == 202
        cookie = cookie_of(page)
    nobody = without_token(served)
    async with nobody.stream(f"/v1/sessions/{session}/events", Cookie=cookie) as events:
        assert events.status == 200
        await events.until("turn.completed")
    async with nobody.live(Cookie=cookie, Origin=served.url) as live:
        assert (await live.ask("subscribe", session=session))["type"] == "subscribed"


@pytest.mark.spec("AUTH-1", "AUTH-3")
async def test_writes_and_websockets_by_cookie_need_our_origin(served: Served) -> None:
    session = await served.open()
    async with enter(served) as page:
        path = f"/v1/sessions/{session}/messages"
        for origin in (None, "null", "http://evil.example", "http://127.0.0.1:1"):
            page.headers.pop("Origin", None)
            if origin is not None:
                page.headers["Origin"] = origin
            answer = await page.post(path, json={"content": "echo hi"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), origin
            assert answer.json()["error"]["path"] == "Origin"
            for method, address in (("PATCH", f"/v1/sessions/{session}"), ("DELETE", f"/v1/sessions/{session}")):
                assert (await page.request(method, address, json={"title": "x"})).status_code == 403
            assert (await page.post("/v1/tokens", json={})).status_code == 403
            fields = {} if origin is None else {"Origin": origin}
            assert (await upgrade(served, Cookie=cookie_of(page), **fields)).status == 403, origin
            # Reading changes nothing, and no page of another origin gets to see the answer.
            assert (await page.get("/v1/sessions")).status_code == 200
            assert "access-control-allow-origin" not in (await page.get("/v1/sessions")).headers
        page.headers["Origin"] = served.url
        assert (await page.post(path, json={"content": "echo hi"})).status_code == 202
        assert (await upgrade(served, Cookie=cookie_of(page), Origin=served.url)).status == 101


async def test_a_token_beside_a_cookie_counts(served: Served) -> None:
    ann = await member_key(served, "ann")
    async with enter(served) as page:
        page.headers.pop("Origin")
        answer = await page.get("/v1/whoami", headers=ann.headers)
        assert answer.json()["name"] == "ann"
        # A program with a token is no browser that could be tricked, whatever cookie it also sends.
        assert (await page.post("/v1/sessions", json={"agent": "desk"}, headers=ann.headers)).status_code == 201
        assert (await page.get("/v1/whoami", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await page.get("/v1/whoami", headers={"Authorization": "Basic x"})).status_code == 401


@pytest.mark.spec("AUTH-1")
async def test_leaving_makes_the_cookie_worthless(served: Served) -> None:
    async with enter(served) as page, enter(served) as other:
        cookie = cookie_of(page)
        answer = await page.post("/v1/logout")
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert cookie_of(page) == ""
        assert (await page.get("/v1/whoami", headers={"Cookie": cookie})).status_code == 401
        assert (await page.get("/", headers={"Cookie": cookie})).status_code == 401
        assert (await other.get("/v1/whoami")).status_code == 200


@pytest.mark.spec("AUTH-1")
async def test_a_cookie_is_listed_and_can_be_revoked_by_the_operator(served: Served) -> None:
    async with enter(served) as page:
        (listed,) = (await served.client.get("/v1/tokens")).json()["tokens"]
        assert (listed["carrier"], listed["kind"]) == ("cookie", "operator")
        answer = await served.client.post(f"/v1/tokens/{listed['id']}/revoke")
        assert (answer.status_code, "revoked" in answer.json()) == (200, True)
        assert (await page.get("/v1/whoami")).status_code == 401


@pytest.mark.spec("AUTH-1")
async def test_a_link_acts_as_who_asked_for_it_and_ends_with_their_token(served: Served) -> None:
    session = await served.open()
    await served.runtime.open_session(agent="desk", path="/x")
    ann = await member_key(served, "ann")
    backend = await make_key(served, project="default", label="billing")
    for key, kind, name in ((ann, "member", "ann"), (backend, "project", "billing")):
        async with enter(served, key.headers) as page:
            who = (await page.get("/v1/whoami")).json()
            assert (who["kind"], who["name"]) == (kind, name)
            assert (await page.get("/v1/tree")).status_code == 404
            answer = await page.post(f"/v1/sessions/{session}/messages", json={"content": "echo hi"})
            message = (await page.get(f"/v1/messages/{answer.json()['message_id']}")).json()
            assert message["sender"]["id"] == ("ann" if key is ann else backend.id)
            await served.runtime.store.apply(RevokeCredential("default", key.id))
            assert (await page.get("/v1/whoami")).status_code == 401
            assert (await page.get("/")).status_code == 401


async def test_an_operator_may_ask_for_a_member_s_link(served: Served) -> None:
    ann = await member_key(served, "ann", "alpha", "beta")
    async with enter(served, member="ann") as page:
        assert (await page.get("/v1/whoami")).json()["name"] == "ann"
        # The page itself must open before a project was chosen.
        assert (await page.get("/")).status_code == 200
        assert (await page.get("/v1/sessions")).status_code == 400
        assert (await page.get("/v1/sessions", headers={"Callboard-Project": "beta"})).status_code == 200
        assert (await page.post("/v1/logout")).status_code == 204
    for headers, body, status in (
        ({**ann.headers, "Callboard-Project": "beta"}, {"kind": "console", "member": "bob"}, 403),
        (served.headers, {"kind": "console", "member": "nobody"}, 404),
        (served.headers, {"kind": "ws", "member": "ann"}, 400),
        (served.headers, {"kind": "door"}, 400),
    ):
        assert (await served.client.post("/v1/tickets", json=body, headers=headers)).status_code == status, body


@pytest.mark.spec("AUTH-1", "EVT-5")
async def test_a_ticket_opens_one_websocket(served: Served) -> None:
    ticket = await ask_for_ticket(served)
    # What is wrong with the handshake itself does not use the ticket up.
    for path, fields, status in (
        (f"/v1/live?ticket={ticket}&x=1", {}, 400),
        (f"/v1/live?ticket={ticket}&ticket={ticket}", {}, 400),
        (f"/v1/live?ticket={ticket}", {"Origin": "http://evil.example"}, 403),
        (f"/v1/live?ticket={ticket}", {"Sec-WebSocket-Protocol": "other"}, 400),
        (f"/v1/lives?ticket={ticket}", {}, 401),
        ("/v1/live?ticket=" + "a" * 43, {}, 401),
        ("/v1/live?ticket=", {}, 401),
    ):
        assert (await upgrade(served, path, **fields)).status == status, path
    assert (await upgrade(served, f"/v1/live?client=tab-1&ticket={ticket}", Origin=served.url)).status == 101
    assert (await upgrade(served, f"/v1/live?ticket={ticket}")).status == 401
    async with browser(served) as page:
        second = await ask_for_ticket(served)
        assert (await page.get(f"/?ticket={second}")).status_code == 401
        assert (await page.get(f"/v1/sessions?ticket={second}")).status_code == 401


@pytest.mark.spec("AUTH-1")
async def test_no_secret_is_in_any_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tickets = [await ask_for_ticket(served), await ask_for_ticket(served, kind="console")]
    key = await make_key(served)
    assert (await upgrade(served, f"/v1/live?ticket={tickets[0]}")).status == 101
    assert (await upgrade(served, f"/v1/live?ticket={tickets[0]}")).status == 401
    async with browser(served) as page:
        for _ in range(2):
            await page.get(f"/?ticket={tickets[1]}")
        secrets = [*tickets, key.token, cookie_of(page).partition("=")[2]]
    assert (await served.client.get("/v1/tree", headers=key.headers)).status_code == 200
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    texts = [*ours, (await served.client.get("/v1/tokens")).text, (await served.client.get("/metrics")).text]
    assert all(len(secret) == 43 for secret in secrets)
    assert not [text for text in texts for secret in secrets if secret in text]


@pytest.mark.spec("AUTH-1")
async def test_a_cookie_and_a_token_survive_a_restart(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path) as served:
        port = served.port
        key = await member_key(served, "ann")
        async with enter(served) as page:
            cookie = cookie_of(page)
    async with serving_runtime(tmp_path, port=port) as served, browser(served) as page:
        assert (await page.get("/v1/whoami", headers={"Cookie": cookie})).json()["kind"] == "operator"
        assert (await page.get("/v1/whoami", headers=key.headers)).json()["name"] == "ann"


@pytest.mark.spec("AUTH-1")
async def test_behind_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    trusting = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    server = tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with serving_runtime(tmp_path / "data", tls=server) as served:
        link = await served.front.console_link()
        assert link.startswith(f"https://127.0.0.1:{served.port}/?ticket=")
        async with httpx.AsyncClient(verify=trusting, timeout=DEADLINE, trust_env=False) as page:
            answer = await page.get(link)
            assert answer.status_code == 303
            assert "; Secure" in answer.headers["set-cookie"]
            assert (await page.get(f"{served.url}/v1/whoami")).status_code == 200
            origin = {"Origin": served.url}
            assert (await page.post(f"{served.url}/v1/logout", headers=origin)).status_code == 204
