"""The bounds of the front: whatever a client sends or leaves out, it gets a stated refusal and holds nothing for long."""

from __future__ import annotations

import json

import pytest
import trio
from starlette.types import Receive, Scope, Send

from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import Answer, Client, get, post

pytestmark = pytest.mark.spec("RT-14")

CHUNKED = b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"


def code(answer: Answer) -> tuple[int, str]:
    """Status and error code of a refusal, which must be JSON and close the connection."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    assert "date" in answer.headers
    error = json.loads(answer.body)["error"]
    assert isinstance(error["message"], str)
    return answer.status, error["code"]


async def trickle(client: Client, data: bytes, seconds: float) -> int:
    """Send a byte each `seconds` until the server answers; how many it took."""
    for count, byte in enumerate(data):
        await client.send(bytes([byte]))
        with trio.move_on_after(seconds):
            if await client.more():
                return count + 1
    pytest.fail("the server let it all pass")


async def test_a_head_that_trickles_in_is_cut() -> None:
    async with serving(limits=Limits(head_seconds=0.3)) as front, await front.connect() as client:
        started = trio.current_time()
        sent = await trickle(client, get("/" + "a" * 500), 0.05)
        assert sent < 20
        assert trio.current_time() - started < 2
        assert code(await client.answer()) == (408, "request_timeout")
        assert await client.rest() == b""


async def test_a_body_that_trickles_in_is_cut() -> None:
    async with serving(limits=Limits(body_seconds=0.3)) as front, await front.connect() as client:
        await client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 500\r\n\r\n")
        assert await trickle(client, b"a" * 500, 0.05) < 20
        assert code(await client.answer()) == (408, "request_timeout")


async def test_the_time_of_the_application_is_not_the_clients() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            with trio.move_on_after(0.05):
                await trio.Event().wait()
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    body = bytes(700_000)
    async with serving(app, limits=Limits(body_seconds=0.2)) as front:
        assert (await front.ask(post(body))).body == body


async def test_silence_before_and_between_requests_is_ended_without_a_word() -> None:
    async with serving(limits=Limits(idle_seconds=0.1)) as front:
        async with await front.connect() as client:
            assert await client.rest() == b""
        async with await front.connect() as client:
            await client.send(get())
            assert (await client.answer()).status == 200
            assert await client.rest() == b""


async def test_a_head_may_have_so_many_bytes_and_no_more() -> None:
    async with serving(limits=Limits(head_bytes=1000)) as front:
        head = get("/", "X: ")
        fits = get("/", "X: " + "a" * (1000 - len(head)))
        assert len(fits) == 1000
        assert (await front.ask(fits)).status == 200
        assert code(await front.ask(get("/", "X: " + "a" * 1000))) == (431, "headers_too_large")
        assert code(await front.ask(get("/", *[f"X{number}: 1" for number in range(500)]))) == (
            431,
            "headers_too_large",
        )
        assert code(await front.ask(get("/" + "a" * 2000))) == (414, "uri_too_long")
        async with await front.connect() as client:
            await client.send(get("/") + post(b"b" * 5000) + get("/", "X: " + "a" * 1000))
            assert [(await client.answer()).status for _ in range(2)] == [200, 200]
            assert code(await client.answer()) == (431, "headers_too_large")


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_may_have_so_many_bytes_and_no_more(framing: str) -> None:
    def request(size: int) -> bytes:
        if framing == "length":
            return post(b"a" * size)
        return (
            CHUNKED
            + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [b"a" * 100] * (size // 100))
            + b"0\r\n\r\n"
        )

    async with serving(limits=Limits(body_bytes=10_000, linger_seconds=0.2)) as front:
        assert len(json.loads((await front.ask(request(10_000))).body)["body"]) == 10_000
        assert code(await front.ask(request(10_100))) == (413, "body_too_large")
        assert (await front.ask(get())).status == 200


async def test_the_refusal_of_a_large_body_arrives_although_the_client_goes_on_sending() -> None:
    async with (
        serving(limits=Limits(linger_seconds=1)) as front,
        await front.connect() as client,
        trio.open_nursery() as nursery,
    ):
        await client.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 50000000\r\n\r\n")

        async def send_on() -> None:
            try:
                while True:
                    await client.send(bytes(65536))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        nursery.start_soon(send_on)
        assert code(await client.answer()) == (413, "body_too_large")
        nursery.cancel_scope.cancel()


async def test_a_body_in_chunks_of_one_byte_is_refused_early() -> None:
    async with serving(limits=Limits(framing_bytes=20_000, linger_seconds=0.2)) as front:
        few = CHUNKED + b"1\r\na\r\n" * 3000 + b"0\r\n\r\n"
        assert (await front.ask(few)).status == 200
        many = CHUNKED + b"1\r\na\r\n" * 20_000
        assert code(await front.ask(many)) == (400, "invalid_request")
        extensions = CHUNKED + (b"1;" + b"e" * 4000 + b"\r\na\r\n") * 20
        assert code(await front.ask(extensions)) == (400, "invalid_request")


async def test_what_is_sent_ahead_is_bounded() -> None:
    go_on = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        await go_on.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with (
        serving(app, limits=Limits(head_bytes=1000, grace_seconds=0.2)) as front,
        await front.connect() as client,
    ):
        assert isinstance(client.stream, trio.SocketStream)
        await client.send(get())
        sent = 0
        # The server reads no more than its bound, so what a client sends ahead stays in the kernel until that is full too.
        with trio.move_on_after(0.5) as full:
            while sent < 50_000_000:
                sent += await client.stream.socket.send(get("/ahead") * 1000)
        assert full.cancelled_caught
        go_on.set()
        assert (await client.answer()).status == 204


@pytest.mark.parametrize("over", [1, 5])
async def test_connections_over_the_bound_are_told_so(over: int) -> None:
    async with serving(limits=Limits(connections=3, refusals=2, linger_seconds=1)) as front:
        held = [await front.connect() for _ in range(3)]
        for client in held:
            await client.send(get())
            assert (await client.answer()).status == 200
        refused = [await front.connect() for _ in range(over)]
        told = [answer for client in refused if (answer := await client.rest())]
        assert len(told) == min(over, 2)
        for answer in told:
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer
        assert front.server.statistics().refused == over
        for client in [*refused, held.pop()]:
            await client.stream.aclose()
        with trio.fail_after(2):
            while front.server.statistics().connections >= 3:
                await trio.lowlevel.checkpoint()
        assert (await front.ask(get())).status == 200
        for client in held:
            await client.stream.aclose()


def test_limits_are_positive() -> None:
    with pytest.raises(ValueError, match="idle_seconds"):
        Limits(idle_seconds=0)
