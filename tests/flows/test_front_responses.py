"""What becomes of an application's response: streams, faults, clients that go, clients that read slowly."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import get, post

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def test_the_head_of_a_quiet_stream_arrives_before_its_first_event() -> None:
    go_on = trio.Event()

    async def events() -> AsyncIterator[str]:
        await go_on.wait()
        yield "data: 1\n\n"

    async def stream(request: Request) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")

    async with serving(Starlette(routes=[Route("/", stream)])) as front, await front.connect() as client:
        await client.send(get())
        assert (await client.head()).headers["content-type"].startswith("text/event-stream")
        go_on.set()
        assert [chunk async for chunk in client.chunks()] == [b"data: 1\n\n"]


@pytest.mark.parametrize("chatty", [True, False])
async def test_a_stream_is_cancelled_when_its_client_goes(chatty: bool) -> None:
    ended = trio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            while chatty:
                yield b"more"
                await trio.lowlevel.checkpoint()
            await trio.sleep_forever()
        finally:
            ended.set()

    async def stream(request: Request) -> Response:
        return StreamingResponse(events())

    async with serving(Starlette(routes=[Route("/", stream)])) as front:
        async with await front.connect() as client:
            await client.send(get())
            await client.head()
            await client.take(5)
        with trio.fail_after(2):
            await ended.wait()


async def test_is_disconnected_turns_true() -> None:
    begun, gone = trio.Event(), trio.Event()

    async def poll(request: Request) -> Response:
        assert await request.body() == b"body"
        assert not await request.is_disconnected()
        begun.set()
        while not await request.is_disconnected():
            await trio.lowlevel.checkpoint()
        gone.set()
        return Response()

    async with serving(Starlette(routes=[Route("/echo", poll, methods=["POST"])])) as front:
        async with await front.connect() as client:
            await client.send(post(b"body"))
            await begun.wait()
        with trio.fail_after(2):
            await gone.wait()


async def test_is_disconnected_turns_true_also_if_the_body_is_never_read() -> None:
    begun, gone = trio.Event(), trio.Event()

    async def poll(request: Request) -> Response:
        while not await request.is_disconnected():
            begun.set()
            await trio.lowlevel.checkpoint()
        gone.set()
        return Response()

    async with serving(Starlette(routes=[Route("/", poll)])) as front:
        async with await front.connect() as client:
            await client.send(get())
            await begun.wait()
        with trio.fail_after(2):
            await gone.wait()


async def test_polling_for_the_disconnect_does_not_swallow_the_body() -> None:
    async def poll(request: Request) -> Response:
        for _ in range(3):
            assert not await request.is_disconnected()
        return Response(await request.body())

    async with serving(Starlette(routes=[Route("/echo", poll, methods=["POST"])])) as front:
        assert (await front.ask(post(b"whole"))).body == b"whole"


async def test_a_fault_before_the_response_is_a_500_in_json(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("token-1234")

    async with serving(app) as front:
        answer = await front.ask(get("/", "Authorization: Bearer token-1234"))
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["connection"] == "close"
        assert answer.body == b'{"error": {"code": "internal", "message": "the request failed in the server"}}'
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "ValueError" in record.getMessage()
    assert "test_front_responses.py" in record.getMessage()
    assert "token-1234" not in caplog.text


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_fault_after_the_response_began_cuts_it_visibly(version: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError

    async with serving(app) as front, await front.connect() as client:
        await client.send(f"GET / HTTP/{version}\r\nHost: test\r\n\r\n".encode())
        if version == "1.1":
            with pytest.raises(AssertionError, match="the server closed after"):
                await client.answer()
        else:
            # Without chunks only a reset tells the end of the connection from the end of the response.
            with pytest.raises(trio.BrokenResourceError):
                await receive_all(client.stream)
    assert caplog.text.count("ValueError") == 1


async def receive_all(stream: trio.abc.Stream) -> None:
    while await stream.receive_some(65536):
        pass


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"type": "http.response.body", "body": b"x"}],
        [{"type": "websocket.send"}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb: c")]}],
        [{"type": "http.response.start", "status": 101, "headers": []}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]}],
        [
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]},
            {"type": "http.response.body", "body": b"more than one"},
        ],
    ],
    ids=["nothing", "no-start", "foreign", "header-injection", "switching", "no-body", "too-much"],
)
async def test_an_application_that_breaks_the_rules_gives_a_500(
    messages: list[dict[str, object]], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async with serving(app) as front:
        assert (await front.ask(get())).status == 500
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_starlette_answers_its_own_fault_and_the_connection_goes_on() -> None:
    async def broken(request: Request) -> Response:
        raise ValueError

    async with serving(Starlette(routes=[Route("/{rest:path}", broken)])) as front, await front.connect() as client:
        for _ in range(2):
            await client.send(get())
            assert (await client.answer()).status == 500


@pytest.mark.spec("RT-14")
async def test_a_client_that_does_not_read_is_cut_and_the_application_told() -> None:
    ended = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        except OSError:
            ended.set()
            raise

    async with (
        serving(app, limits=Limits(send_seconds=0.2, grace_seconds=0.2)) as front,
        await front.connect(receive_buffer=4096) as client,
    ):
        await client.send(get())
        with trio.fail_after(3):
            await ended.wait()


async def test_a_send_that_the_application_gave_up_half_way_cuts_the_response() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        with trio.move_on_after(0.1) as patience:
            await send({"type": "http.response.body", "body": bytes(5_000_000), "more_body": True})
        assert patience.cancelled_caught
        await send({"type": "http.response.body", "body": b"end"})

    async with serving(app) as front, await front.connect(receive_buffer=4096) as client:
        await client.send(get())
        await client.head()
        await trio.testing.wait_all_tasks_blocked(0.2)
        with trio.fail_after(3), pytest.raises(AssertionError, match="the server closed after"):
            await client.take(5_000_000)


async def test_a_slow_reader_that_reads_is_not_cut() -> None:
    size = 3_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})

    async with (
        serving(app, limits=Limits(send_seconds=0.3)) as front,
        await front.connect(receive_buffer=4096) as client,
    ):
        await client.send(get())
        started = trio.current_time()
        await client.head()
        received = len(client.buffer)
        while received < size:
            # Slower in all than one send may last without progress.
            with trio.move_on_after(0.002):
                await trio.Event().wait()
            received += len(await client.stream.receive_some(20_000))
        assert received == size
        assert trio.current_time() - started > 0.3


async def test_a_large_response_with_small_writes_is_whole() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for number in range(2000):
            await send({"type": "http.response.body", "body": b"%06d" % number * 50, "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(app) as front:
        assert (await front.ask(get())).body == b"".join(b"%06d" % number * 50 for number in range(2000))


async def test_the_client_of_a_plain_request_may_go_and_the_work_is_still_done() -> None:
    go_on, done = trio.Event(), trio.Event()

    async def work(request: Request) -> Response:
        await request.body()
        await go_on.wait()
        done.set()
        return Response("done")

    async with serving(Starlette(routes=[Route("/echo", work, methods=["POST"])])) as front:
        async with await front.connect() as client:
            await client.send(post(b"x"))
            await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        await done.wait()
