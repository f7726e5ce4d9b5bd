"""Websockets behind the front: the handshake, what follows it, and every way in which one ends."""

from __future__ import annotations

import json
import logging
import struct

import pytest
import trio
import trio.testing
import trio_websocket
from trio_websocket import WebSocketRequest

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    client_frame,
    echo_websocket,
    get,
    handshake,
    post,
    serving,
)


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


@pytest.mark.spec("RT-3")
async def test_a_fault_of_the_handler_closes_with_1011_and_stays_there(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        if await websocket.get_message() == "break":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(websocket.get_message)
                raise ValueError("secret")
        await websocket.send_message("fine")

    async with serving(on_websocket=handler) as front, await front.connect() as broken, await front.connect() as other:
        for client in (broken, other):
            assert (await client.upgrade()).status == 101
        await broken.send(client_frame(TEXT, b"break"))
        assert await broken.closing_code() == 1011
        await other.send(client_frame(TEXT, b"go"))
        assert await other.frame() == (TEXT, b"fine")
        assert await other.closing_code() == 1000
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "ValueError" in errors[0]
    assert "secret" not in caplog.text


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
            nursery.start_soon(send_until_closed, client.send, data)
            assert await client.closing_code() == 1009
            nursery.cancel_scope.cancel()
        assert (await front.ask(get())).status == 200


async def send_until_closed(send: object, data: bytes) -> None:
    try:
        await send(data)  # pyright: ignore
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def test_a_mebibyte_is_not_too_much() -> None:
    size = 1024 * 1024
    async with serving() as front, await front.connect() as client, trio.open_nursery() as nursery:
        assert (await client.upgrade()).status == 101
        nursery.start_soon(client.send, client_frame(BINARY, bytes(size)))
        assert await client.frame() == (BINARY, bytes(size))


async def test_the_clients_close_is_answered_and_the_handler_told() -> None:
    reasons: list[object] = []

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        try:
            await websocket.get_message()
        except trio_websocket.ConnectionClosed as closed:
            reasons.append(closed.reason and closed.reason.code)

    async with serving(on_websocket=handler) as front, await front.connect() as client:
        await client.upgrade()
        await client.send(client_frame(CLOSE, b"\x0f\xa1bye"))
        assert await client.closing_code() == 4001
        assert await client.rest() == b""
    assert reasons == [4001]


@pytest.mark.parametrize("how", ["half-closed", "reset", "gone"])
async def test_a_client_that_goes_without_a_close_ends_the_handler(how: str, caplog: pytest.LogCaptureFixture) -> None:
    ended = trio.Event()
    codes: list[object] = []

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        try:
            await websocket.get_message()
        except trio_websocket.ConnectionClosed as closed:
            codes.append(closed.reason and closed.reason.code)
            ended.set()
            raise

    async with serving(on_websocket=handler) as front:
        async with await front.connect() as client:
            await client.upgrade()
            await client.send(client_frame(TEXT, b"hello")[:3])
            if how == "half-closed":
                await client.send_eof()
                await ended.wait()
            elif how == "reset":
                assert isinstance(client.stream, trio.SocketStream)
                client.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
        with trio.fail_after(2):
            await ended.wait()
    assert codes == [1006]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.spec("RT-14")
async def test_a_client_that_does_not_answer_the_close_is_cut() -> None:
    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        await request.accept()

    async with (
        serving(on_websocket=handler, limits=Limits(close_seconds=0.2, linger_seconds=0.1)) as front,
        await front.connect() as client,
    ):
        await client.upgrade()
        started = trio.current_time()
        assert await client.frame() == (CLOSE, struct.pack("!H", 1000))
        assert await client.rest() == b""
        assert 0.1 < trio.current_time() - started < 2


@pytest.mark.spec("RT-14")
async def test_messages_that_nobody_takes_stay_with_the_client() -> None:
    take = trio.Event()
    taken: list[str | bytes] = []

    async def handler(request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        await take.wait()
        while len(taken) < 3000:
            taken.append(await websocket.get_message())

    limits = Limits(message_queue=2, linger_seconds=0.2)
    async with serving(on_websocket=handler, limits=limits) as front, await front.connect() as client:
        await client.upgrade()
        message = client_frame(BINARY, bytes(10_000))
        with trio.move_on_after(0.5) as blocked:
            for sent in range(3000):
                await client.send(message)
        assert blocked.cancelled_caught
        assert sent < 2900
        await client.stream.aclose()
        take.set()


@pytest.mark.spec("RT-3")
async def test_a_leak_of_the_library_stays_in_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def leak(self: object, event: object) -> None:
        raise UnicodeDecodeError("ascii", b"token-1", 0, 1, "secret")

    async with serving() as front, await front.connect() as other:
        assert (await other.upgrade()).status == 101
        with monkeypatch.context() as patch:
            patch.setattr(trio_websocket.WebSocketConnection, "_handle_ping_event", leak)
            async with await front.connect() as client:
                assert (await client.upgrade()).status == 101
                await client.send(client_frame(PING))
                await client.rest()
        await other.send(client_frame(TEXT, b"alive"))
        assert await other.frame() == (TEXT, b"alive")
        assert front.server.statistics().failures == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "UnicodeDecodeError" in errors[0]
    assert "secret" not in caplog.text


async def test_a_missing_upgrade_field_is_explained() -> None:
    async with serving() as front:
        answer = await front.ask(handshake().replace(b"Upgrade: websocket\r\n", b""))
        assert answer.status == 426
        assert answer.headers["upgrade"] == "websocket"
        assert json.loads(answer.body)["error"]["code"] == "upgrade_required"
        answer = await front.ask(handshake().replace(b"Version: 13", b"Version: 14"))
        assert (answer.status, answer.headers["sec-websocket-version"]) == (426, "13")
