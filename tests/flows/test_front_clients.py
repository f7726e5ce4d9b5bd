"""The front and clients that other people wrote: httpx for HTTP, `websockets` for websockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
import trio
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from trio_websocket import WebSocketRequest
from websockets.sync.client import connect

from callboard.actors.edges.frames import FrameStream, encode_text_frame
from callboard.tests.flows.front_kit import serving


async def test_httpx_with_many_connections() -> None:
    async with serving() as front, httpx.AsyncClient(base_url=front.url) as client:
        answers: dict[int, str] = {}

        async def ask(number: int) -> None:
            for turn in range(5):
                answer = await client.post("/echo", content=b"%d-%d" % (number, turn))
                answers[number * 5 + turn] = answer.json()["body"]

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(ask, number)
        assert answers == {number * 5 + turn: f"{number}-{turn}" for number in range(30) for turn in range(5)}


async def test_httpx_streams_up_and_down() -> None:
    async def double(request: Request) -> Response:
        received = [piece async for piece in request.stream()]

        async def pieces() -> AsyncIterator[bytes]:
            for piece in received:
                yield piece * 2

        return StreamingResponse(pieces())

    async def upload() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"ab" * 5000

    app = Starlette(routes=[Route("/", double, methods=["POST"])])
    async with serving(app) as front, httpx.AsyncClient(base_url=front.url) as client:
        answer = await client.post("/", content=upload())
        assert len(answer.content) == 2 * 20 * 10_000
        assert answer.headers["transfer-encoding"] == "chunked"
        assert (await client.head("/")).status_code == 405
        assert (await client.get("/nowhere")).status_code == 404


async def test_websockets_library_sync() -> None:
    async with serving() as front:

        def talk() -> None:
            with connect(front.url.replace("http", "ws") + "/live?x=1", max_size=None) as client:
                for message in ("hello", "", "ü" * 100_000, b"\0" * 1_000_000):
                    client.send(message)
                    assert client.recv(timeout=5) == message
                client.ping().wait(5)
                client.send([b"a" * 1000, b"b" * 1000])
                assert client.recv(timeout=5) == b"a" * 1000 + b"b" * 1000

        await trio.to_thread.run_sync(talk)


async def test_websockets_library_asyncio_with_many_subscribers() -> None:
    subscribers, frames = 20, 200
    streams: list[FrameStream] = []
    all_here = trio.Event()

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        streams.append(stream)
        if len(streams) == subscribers:
            all_here.set()
        await websocket.get_message()

    async def subscribe(url: str) -> list[int]:
        async with websockets.connect(url, compression=None) as client:
            numbers = [json.loads(await client.recv())["id"] for _ in range(frames)]
            await client.send("enough")
            return numbers

    async def subscribe_all(url: str) -> list[list[int]]:
        return await asyncio.gather(*[subscribe(url) for _ in range(subscribers)])

    async with serving(on_websocket=handler) as front, trio.open_nursery() as nursery:
        received: list[list[int]] = []

        async def watch() -> None:
            url = front.url.replace("http", "ws")
            received.extend(await trio.to_thread.run_sync(lambda: asyncio.run(subscribe_all(url))))

        nursery.start_soon(watch)
        await all_here.wait()
        for number in range(frames):
            frame = encode_text_frame(json.dumps({"id": number}).encode())
            for stream in streams:
                if not stream.try_send(frame):
                    await stream.send_frame(frame)
            await trio.lowlevel.checkpoint()
    assert received == [list(range(frames))] * subscribers


async def test_the_websockets_library_is_told_why_it_was_closed() -> None:
    async with serving() as front:

        def talk() -> None:
            with connect(front.url.replace("http", "ws"), compression=None) as client:
                client.send(b"\0" * (2 * 1024 * 1024))
                with pytest.raises(websockets.exceptions.ConnectionClosedError) as caught:
                    client.recv(timeout=5)
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1009

        await trio.to_thread.run_sync(talk)
