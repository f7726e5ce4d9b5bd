"""Every way in which a websocket behind the front ends, and what client, handler and log are told."""

from __future__ import annotations

import logging
import struct

import pytest
import trio
import trio_websocket
from trio_websocket import WebSocketRequest

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import BINARY, CLOSE, PING, TEXT, client_frame


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
            await client.send(message * 3000)
        assert blocked.cancelled_caught
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
