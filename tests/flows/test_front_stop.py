"""Stopping the front: what is idle ends at once, what is in flight within the grace, and no client can hold it up."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from trio_websocket import WebSocketRequest

from callboard.actors.edges.frames import FrameStream, encode_text_frame
from callboard.actors.edges.limits import Limits
from callboard.actors.edges.listeners import endpoint, open_listeners
from callboard.tests.flows.front_kit import Front, serving
from callboard.tests.flows.raw_client import TEXT, client_frame, get, handshake, post

GRACE = Limits(grace_seconds=1.0, close_seconds=0.3, linger_seconds=0.2)


async def stop(front: Front) -> float:
    """Stop and return the seconds that it took."""
    started = trio.current_time()
    front.stop.set()
    await front.stopped.wait()
    return trio.current_time() - started


async def test_nothing_open_stops_at_once_and_the_port_is_free() -> None:
    async with serving() as front:
        assert await stop(front) < 0.3
        with pytest.raises(OSError, match="refused"):
            await front.connect()


@pytest.mark.parametrize("state", ["fresh", "half a head", "between requests"])
async def test_idle_connections_end_at_once(state: str) -> None:
    async with serving(limits=GRACE) as front, await front.connect() as client:
        if state == "between requests":
            await client.send(get())
            await client.answer()
        elif state == "half a head":
            await client.send(b"GET / HT")
        await trio.testing.wait_all_tasks_blocked()
        assert await stop(front) < 0.5
        assert await client.rest() == b""


async def test_a_request_in_flight_is_finished_and_the_connection_closed() -> None:
    go_on = trio.Event()

    async def slow(request: Request) -> Response:
        await go_on.wait()
        return Response(await request.body())

    async with (
        serving(Starlette(routes=[Route("/echo", slow, methods=["POST"])]), limits=GRACE) as front,
        await front.connect() as client,
    ):
        await client.send(post(b"finish me"))
        await trio.testing.wait_all_tasks_blocked()
        front.stop.set()
        await trio.testing.wait_all_tasks_blocked()
        assert not front.stopped.is_set()
        go_on.set()
        answer = await client.answer()
        assert answer.body == b"finish me"
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""
        await front.stopped.wait()


async def test_a_connection_whose_response_had_begun_ends_with_it() -> None:
    go_on = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"all"})

    async with serving(app, limits=Limits(grace_seconds=5)) as front, await front.connect() as client:
        await client.send(get())
        await client.head()
        front.stop.set()
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        assert [chunk async for chunk in client.chunks()] == [b"all"]
        with trio.fail_after(1):
            assert await client.rest() == b""
            await front.stopped.wait()


async def test_a_request_that_outlives_the_grace_is_cancelled() -> None:
    cancelled = trio.Event()

    async def stuck(request: Request) -> Response:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with (
        serving(Starlette(routes=[Route("/", stuck)]), limits=Limits(grace_seconds=0.3)) as front,
        await front.connect() as client,
    ):
        await client.send(get())
        await trio.testing.wait_all_tasks_blocked()
        assert 0.25 < await stop(front) < 1
        assert cancelled.is_set()
        assert await client.rest() == b""


async def test_websockets_are_closed_with_1001() -> None:
    async with serving(limits=GRACE) as front, await front.connect() as one, await front.connect() as two:
        for client in (one, two):
            await client.upgrade()
            await client.send(client_frame(TEXT, b"hi"))
            assert await client.frame() == (TEXT, b"hi")
        front.stop.set()
        for client in (one, two):
            assert await client.closing_code() == 1001
            await client.send(client_frame(8, b"\x03\xe9"))
            assert await client.rest() == b""
        with trio.fail_after(0.5):
            await front.stopped.wait()


async def test_a_websocket_that_is_not_yet_accepted_is_answered_503() -> None:
    async def undecided(request: WebSocketRequest, stream: FrameStream) -> None:
        await trio.sleep_forever()

    async with serving(on_websocket=undecided, limits=GRACE) as front, await front.connect() as client:
        await client.send(handshake())
        await trio.testing.wait_all_tasks_blocked()
        front.stop.set()
        assert (await client.answer()).status == 503
        await front.stopped.wait()


@pytest.mark.spec("RT-14")
@pytest.mark.parametrize("kind", ["http", "websocket", "mute websocket"])
async def test_a_client_that_never_reads_does_not_hold_up_the_stop(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        while kind == "websocket":
            await stream.send_frame(encode_text_frame(bytes(65536)))
        await websocket.get_message()

    limits = Limits(grace_seconds=0.5, close_seconds=0.3, linger_seconds=0.2, send_seconds=60)
    async with serving(endless, handler, limits=limits) as front, await front.connect(receive_buffer=4096) as client:
        if kind == "http":
            await client.send(get())
            await client.head()
        else:
            assert (await client.upgrade()).status == 101
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert await stop(front) < 1.5
        assert front.server.statistics().connections == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_cancelling_the_server_ends_all_connections_at_once() -> None:
    async def stuck(request: Request) -> Response:
        await trio.sleep_forever()

    async with serving(Starlette(routes=[Route("/", stuck)]), limits=GRACE) as front:
        clients = [await front.connect() for _ in range(3)]
        await clients[0].send(get())
        await clients[1].upgrade()
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        front.scope.cancel()
        await front.stopped.wait()
        assert trio.current_time() - started < 0.5
        assert front.server.statistics().connections == 0
        for client in clients:
            await client.rest()
            await client.stream.aclose()


async def test_a_stopped_server_can_serve_again() -> None:
    async with serving(limits=GRACE) as front:
        await stop(front)
        listeners = await open_listeners("127.0.0.1", 0)
        front.endpoint = endpoint(listeners[0], tls=False)
        again = trio.Event()
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await front.server.serve(listeners, stop=again)

            nursery.start_soon(serve)
            assert (await front.ask(get())).status == 200
            again.set()
