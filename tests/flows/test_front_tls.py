"""The same front behind TLS: HTTP, websockets, frames of ours, and clients that do not finish the handshake."""

from __future__ import annotations

import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from trio_websocket import WebSocketRequest
from websockets.sync.client import connect

from callboard.actors.edges.frames import FrameStream, encode_text_frame
from callboard.actors.edges.limits import Limits
from callboard.actors.edges.listeners import tls_context
from callboard.tests.flows.front_kit import Front, serving
from callboard.tests.flows.raw_client import CLOSE, PING, PONG, TEXT, Client, client_frame, get


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_context(authority: trustme.CA, tmp_path: Path) -> ssl.SSLContext:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")


@pytest.fixture
def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    return context


@asynccontextmanager
async def connected(front: Front, context: ssl.SSLContext) -> AsyncIterator[Client]:
    stream = await trio.open_ssl_over_tcp_stream(
        front.endpoint.host, front.endpoint.port, ssl_context=context, https_compatible=True
    )
    async with Client(stream) as client:
        yield client


async def test_https(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async def about(request: Request) -> Response:
        return JSONResponse({"scheme": request.url.scheme, "body": len(await request.body())})

    app = Starlette(routes=[Route("/", about, methods=["POST"])])
    async with serving(app, tls=server_context) as front, httpx.AsyncClient(verify=client_context) as client:
        assert front.url.startswith("https://")
        for size in (0, 10, 900_000):
            answer = await client.post(front.url, content=bytes(size))
            assert answer.json() == {"scheme": "https", "body": size}
        assert front.server.statistics().accepted == 1


async def test_a_websocket_of_another_library(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async with serving(tls=server_context) as front:

        def talk() -> None:
            with connect(front.url.replace("https", "wss"), ssl=client_context, compression=None) as client:
                for message in ("hello", "ü" * 70_000, b"\0" * 200_000):
                    client.send(message)
                    assert client.recv(timeout=5) == message

        await trio.to_thread.run_sync(talk)


async def test_frames_of_ours_and_the_librarys(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        assert stream.tls
        assert stream.client is not None
        websocket = await request.accept()
        async with trio.open_nursery() as nursery:

            async def send(first: int) -> None:
                for number in range(first, first + 50):
                    assert not stream.try_send(encode_text_frame(b"x"))
                    await stream.send_frame(encode_text_frame(b"%06d" % number * 2000))

            nursery.start_soon(send, 0)
            nursery.start_soon(send, 50)
            await websocket.get_message()

    async with serving(on_websocket=handler, tls=server_context) as front, connected(front, client_context) as client:
        await client.send(get())
        assert (await client.answer()).status == 200
        assert (await client.upgrade()).status == 101
        await client.send(client_frame(PING, b"p"))
        frames = [await client.frame() for _ in range(101)]
        assert (PONG, b"p") in frames
        assert {payload for opcode, payload in frames if opcode == TEXT} == {
            b"%06d" % number * 2000 for number in range(100)
        }
        await client.send(client_frame(TEXT, b"done"))
        assert await client.frame() == (CLOSE, struct.pack("!H", 1000))


async def test_protocol_errors_are_told(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async with serving(tls=server_context) as front, connected(front, client_context) as client:
        await client.upgrade()
        await client.send(b"\x81\x00")
        assert await client.closing_code() == 1002


@pytest.mark.spec("RT-14")
async def test_a_client_that_does_not_finish_the_handshake_is_cut(server_context: ssl.SSLContext) -> None:
    async with (
        serving(tls=server_context, limits=Limits(tls_seconds=0.2, linger_seconds=0.1)) as front,
        await front.connect() as client,
    ):
        await client.send(b"\x16\x03\x01")
        started = trio.current_time()
        assert await client.rest() == b""
        assert trio.current_time() - started < 2


@pytest.mark.spec("RT-3")
async def test_what_is_no_tls_stays_in_its_connection(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=server_context) as front:
        for data in (b"", get(), bytes(300), b"\x16\x03\x01\x02\x00" + bytes(512)):
            async with await front.connect() as client:
                await client.send(data)
                await client.send_eof()
                await client.rest()
        async with connected(front, client_context) as client:
            await client.send(get())
            assert (await client.answer()).status == 200
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_stop_ends_what_waits_in_any_state(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    limits = Limits(grace_seconds=2, close_seconds=0.3, linger_seconds=0.2)
    async with (
        serving(tls=server_context, limits=limits) as front,
        await front.connect() as shaking,
        connected(front, client_context) as idle,
        connected(front, client_context) as live,
    ):
        await live.upgrade()
        await idle.send(get())
        await idle.answer()
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        front.stop.set()
        assert await live.closing_code() == 1001
        assert await idle.rest() == await shaking.rest() == b""
        await front.stopped.wait()
        assert trio.current_time() - started < 1.5


async def test_a_client_that_does_not_read_is_cut(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    cut = trio.Event()

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        await request.accept()
        try:
            while True:
                await stream.send_frame(encode_text_frame(bytes(65536)))
        except trio.BrokenResourceError:
            cut.set()

    limits = Limits(send_seconds=0.3, close_seconds=0.3, linger_seconds=0.1)
    async with (
        serving(on_websocket=handler, tls=server_context, limits=limits) as front,
        connected(front, client_context) as client,
    ):
        await client.upgrade()
        with trio.fail_after(5):
            await cut.wait()
