"""HTTP/1.1 as a client sees it: methods, framing, keep-alive, targets, and what the application is told."""

from __future__ import annotations

import contextvars
import json
from typing import Any

import pytest
import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from callboard.tests.flows.front_kit import echo_app, serving
from callboard.tests.flows.raw_client import get, post


async def test_request_and_response() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(post(b"hello"))
        answer = await client.answer()
        assert answer.status == 200
        assert json.loads(answer.body) == {"method": "POST", "path": "/echo", "body": "hello"}
        assert answer.headers["date"].endswith(" GMT")
        assert "server" not in answer.headers
        assert "connection" not in answer.headers


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with serving() as front, await front.connect() as client:
        for number in range(20):
            await client.send(post(b"%d" % number))
            assert json.loads((await client.answer()).body)["body"] == str(number)
        assert front.server.statistics().accepted == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(post(b"a") + get("/b") + post(b"c"))
        await client.send_eof()
        assert [json.loads((await client.answer()).body)["body"] for _ in range(3)] == ["a", "", "c"]
        assert await client.rest() == b""


async def test_head_has_the_fields_of_get_and_no_body() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(get("/x"))
        expected = await client.answer()
        await client.send(b"HEAD /x HTTP/1.1\r\nHost: test\r\n\r\n")
        answer = await client.answer(to_head=True)
        assert answer.status == 200
        assert int(answer.headers["content-length"]) == len(expected.body) + 1  # HEAD for GET in the echoed method
        await client.send(get("/y"))
        assert json.loads((await client.answer()).body)["path"] == "/y"


async def test_an_endless_stream_under_head_ends() -> None:
    ended = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        ended.set()

    async with serving(app) as front, await front.connect() as client:
        await client.send(b"HEAD / HTTP/1.1\r\nHost: test\r\n\r\n")
        assert (await client.answer(to_head=True)).status == 200
        await ended.wait()


async def test_http_1_0() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")
        answer = await client.answer()
        assert json.loads(answer.body)["body"] == "hi"
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_chunked_request() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"3;ext=1\r\nabc\r\n", b"2\r\nde", b"\r\n0\r\nTrailer: x\r\n\r\n"):
            await client.send(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert json.loads((await client.answer()).body)["body"] == "abcde"
        await client.send(get("/next"))
        assert (await client.answer()).status == 200


async def test_expect_continue_is_answered_when_the_body_is_wanted() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.answer()).status == 100
        await client.send(b"ok")
        assert json.loads((await client.answer()).body)["body"] == "ok"


async def test_expect_continue_is_not_answered_when_the_body_is_refused() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(
            b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await client.answer()).status == 413
        assert await client.rest() == b""


async def test_a_body_that_nobody_read_does_not_reach_the_next_request() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with serving(app) as front, await front.connect() as client:
        for _ in range(3):
            await client.send(post(b"GET /smuggled HTTP/1.1\r\n\r\n"))
            assert (await client.answer()).status == 401
        assert front.server.statistics().requests == 3


async def test_an_empty_line_after_a_body_is_forgiven() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(post(b"a") + b"\r\n" + post(b"b") + b"\r\n")
        assert [json.loads((await client.answer()).body)["body"] for _ in range(2)] == ["a", "b"]
        await client.send(b"\r\n\r\n")
        await client.send(get("/c"))
        assert json.loads((await client.answer()).body)["path"] == "/c"


async def test_a_client_that_closed_its_sending_side_is_still_answered() -> None:
    async with serving() as front, await front.connect() as client:
        await client.send(post(b"last"))
        await client.send_eof()
        assert json.loads((await client.answer()).body)["body"] == "last"
        assert await client.rest() == b""


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a%20b%2Fc", "/a b/c", ""),
        ("/gr%C3%BC%C3%9Fe?q=%FF", "/grüße", "q=%FF"),
        ("/%zz%", "/%zz%", ""),
        ("//double//", "//double//", ""),
        ("http://test/abs?x=1", "/abs", "x=1"),
        ("http://other:81?x", "/", "x"),
        ("HTTPS://other", "/", ""),
        ("/?", "/", ""),
        ("/a?b?c", "/a", "b?c"),
    ],
)
async def test_targets(target: str, path: str, query: str) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await echo_app()(scope, receive, send)

    async with serving(app) as front:
        assert (await front.ask(get(target))).status == 200
    assert scopes[0]["path"] == path
    assert scopes[0]["query_string"] == query.encode()


async def test_options_for_the_server_itself() -> None:
    async with serving() as front:
        answer = await front.ask(b"OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n")
        assert answer.status == 204
        assert "GET" in answer.headers["allow"]


async def test_scope() -> None:
    scopes: list[Scope] = []
    state: dict[str, Any] = {"store": object()}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        scope["state"]["mine"] = 1
        await echo_app()(scope, receive, send)

    async with serving(app, state=state) as front, await front.connect() as client:
        await client.send(get("http://Abs.example:81/p%41?q", "X-One: 1", "x-one: 2"))
        await client.answer()
        (scope,) = scopes
        assert isinstance(client.stream, trio.SocketStream)
        assert scope["client"] == client.stream.socket.getsockname()[:2]
        assert scope["server"] == (front.endpoint.host, front.endpoint.port)
        assert (scope["type"], scope["scheme"], scope["http_version"], scope["method"]) == (
            "http",
            "http",
            "1.1",
            "GET",
        )
        assert scope["raw_path"] == b"/p%41"
        assert scope["root_path"] == ""
        assert [pair for pair in scope["headers"] if pair[0] == b"x-one"] == [(b"x-one", b"1"), (b"x-one", b"2")]
        assert [pair for pair in scope["headers"] if pair[0] == b"host"] == [(b"host", b"Abs.example:81")]
        assert scope["state"]["store"] is state["store"]
        assert "mine" not in state


async def test_context_variables_of_a_request_do_not_reach_the_next() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(user.get())
        user.set("alice")
        await echo_app()(scope, receive, send)

    async with serving(app) as front, await front.connect() as client:
        for _ in range(2):
            await client.send(get())
            await client.answer()
    assert seen == ["nobody", "nobody"]


async def test_allowed_hosts() -> None:
    async with serving(allowed_hosts={"LocalHost", "::1"}) as front:
        for host, status in [
            ("localhost:1", 200),
            ("LOCALHOST", 200),
            ("[::1]:80", 200),
            ("127.0.0.1:5", 200),  # the address that the client has reached
            ("127.0.0.2", 421),
            ("evil.example", 421),
            ("", 421),
        ]:
            assert (await front.ask(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())).status == status, host
        assert (await front.ask(b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 421
        assert (await front.ask(b"GET / HTTP/1.0\r\n\r\n")).status == 421
