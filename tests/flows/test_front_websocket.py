"""Websockets behind the front: the handshake, what comes with it, and how much may be said in one message."""

from __future__ import annotations

import json
import logging
import struct
from contextlib import suppress

import pytest
import trio
import trio.testing
from trio_websocket import WebSocketRequest

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import echo_websocket, serving
from callboard.tests.flows.raw_client import BINARY, CLOSE, PING, PONG, TEXT, Client, client_frame, get, handshake, post


async def test_echo_first_and_after_plain_requests() -> None:
    async with serving() as front, await front.connect() as client:
        for _ in range(2):
            await client.send(post(b"plain"))
            assert (await client.answer()).status == 200
        answer = await client.upgrade()
        assert answer.status == 101
        assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert "sec-websocket-extensions" not in answer.headers
        await client.send(
            client_frame(TEXT, "hellö".encode()) + client_frame(BINARY, b"\0\1") + client_frame(PING, b"?")
        )
        frames = [await client.frame() for _ in range(3)]
        assert [frame for frame in frames if frame[0] != PONG] == [(TEXT, "hellö".encode()), (BINARY, b"\0\1")]
        assert (PONG, b"?") in frames


async def test_what_the_handler_is_told() -> None:
    seen: list[object] = []

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        seen.extend([request.path, dict(request.headers)[b"authorization"], request.proposed_subprotocols])
        seen.extend([stream.host, stream.client, stream.tls])
        await request.accept(subprotocol="callboard.v1", extra_headers=[(b"x-a", b"1")])

    async with serving(on_websocket=handler) as front, await front.connect() as client:
        headers = b"Authorization: Bearer x\r\nSec-WebSocket-Protocol: callboard.v1, other\r\nOrigin: http://test\r\n"
        answer = await client.upgrade("/live?client=1&x=%20", headers)
        assert answer.headers["sec-websocket-protocol"] == "callboard.v1"
        assert answer.headers["x-a"] == "1"
        assert await client.closing_code() == 1000
        assert isinstance(client.stream, trio.SocketStream)
        local = client.stream.socket.getsockname()[:2]
    assert seen == ["/live?client=1&x=%20", b"Bearer x", ("callboard.v1", "other"), "test", local, False]


async def test_frames_glued_to_the_handshake_are_not_lost() -> None:
    async def slow_to_accept(request: WebSocketRequest, stream: FrameStream) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await echo_websocket(request, stream)

    for handler in (echo_websocket, slow_to_accept):
        async with serving(on_websocket=handler) as front, await front.connect() as client:
            glued = client_frame(TEXT, b"one") + client_frame(TEXT, b"two", fin=False)
            assert (await client.upgrade(glued=glued)).status == 101
            assert await client.frame() == (TEXT, b"one")
            await client.send(client_frame(0, b"+three"))
            assert await client.frame() == (TEXT, b"two+three")


async def test_a_rejection_is_an_http_answer() -> None:
    async def reject(request: WebSocketRequest, stream: FrameStream) -> None:
        await request.reject(401, extra_headers=[(b"content-type", b"application/json")], body=b'{"error": {}}')

    async with serving(on_websocket=reject) as front, await front.connect() as client:
        answer = await client.upgrade(glued=client_frame(TEXT, b"eager"))
        assert (answer.status, answer.body) == (401, b'{"error": {}}')
        assert await client.rest() == b""


@pytest.mark.parametrize("how", ["raises", "returns", "waits"])
async def test_a_handler_without_an_answer_gives_a_500(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        if how == "raises":
            raise ValueError("secret")
        if how == "waits":
            await trio.sleep_forever()

    async with (
        serving(on_websocket=handler, limits=Limits(handshake_seconds=0.2, linger_seconds=0.2)) as front,
        await front.connect() as client,
    ):
        answer = await client.upgrade()
        assert answer.status == 500
        assert json.loads(answer.body)["error"]["code"] == "internal"
        assert (await front.ask(get())).status == 200
    assert "secret" not in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == (
        0 if how == "returns" else 1
    )


@pytest.mark.spec("EVT-5")
@pytest.mark.parametrize(
    "form", ["one frame", "fragments", "four-byte characters", "announced only", "text then too much"]
)
async def test_more_than_a_mebibyte_is_closed_with_1009(form: str) -> None:
    size = 2 * 1024 * 1024
    async with serving(limits=Limits(linger_seconds=1)) as front, await front.connect() as client:
        assert (await client.upgrade()).status == 101
        match form:
            case "one frame":
                data = client_frame(BINARY, bytes(size))
            case "fragments":
                data = client_frame(BINARY, bytes(size // 4), fin=False) + client_frame(
                    0, bytes(size // 4 + 1), fin=False
                )
            case "four-byte characters":
                # 400,000 characters but 1.6 MB
                data = b"".join(
                    client_frame(0 if part else TEXT, "🙂".encode() * 100_000, fin=False) for part in range(4)
                )
            case "announced only":
                data = b"\x82\xff" + struct.pack("!Q", 1 << 62) + b"mask"
            case _:
                data = client_frame(TEXT, b"fine") + client_frame(BINARY, bytes(size))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until_closed, client, data)
            assert await client.closing_code() == 1009
            nursery.cancel_scope.cancel()
        assert (await front.ask(get())).status == 200


async def send_until_closed(client: Client, data: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await client.send(data)


async def test_a_mebibyte_is_not_too_much() -> None:
    size = 1024 * 1024
    async with serving() as front, await front.connect() as client, trio.open_nursery() as nursery:
        assert (await client.upgrade()).status == 101
        nursery.start_soon(client.send, client_frame(BINARY, bytes(size)))
        assert await client.frame() == (BINARY, bytes(size))


async def test_a_missing_upgrade_field_is_explained() -> None:
    async with serving() as front:
        answer = await front.ask(handshake().replace(b"Upgrade: websocket\r\n", b""))
        assert answer.status == 426
        assert answer.headers["upgrade"] == "websocket"
        assert json.loads(answer.body)["error"]["code"] == "upgrade_required"
        answer = await front.ask(handshake().replace(b"Version: 13", b"Version: 14"))
        assert (answer.status, answer.headers["sec-websocket-version"]) == (426, "13")


@pytest.mark.spec("RT-3")
async def test_a_ping_after_our_close_frame_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def one_word(request: WebSocketRequest, stream: FrameStream) -> None:
        await (await request.accept()).send_message("bye")

    async with serving(on_websocket=one_word) as front:
        for behind in (b"", client_frame(CLOSE, struct.pack("!H", 1000))):
            async with await front.connect() as client:
                await client.upgrade()
                assert await client.frame() == (TEXT, b"bye")
                assert await client.closing_code() == 1000
                await client.send(client_frame(PING, b"still there?") + behind)
                assert await client.rest() == b""
        assert front.server.statistics().failures == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
