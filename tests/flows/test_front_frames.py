"""Frames that are made once and sent to many: whole, in order, never mixed with the library's, whatever the client's pace."""

from __future__ import annotations

import random
import struct

import pytest
import trio
from trio_websocket import WebSocketConnection, WebSocketRequest
from wsproto.frame_protocol import FrameDecoder

from callboard.actors.edges.frames import FrameStream, encode_text_frame
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import BINARY, CLOSE, PING, PONG, TEXT, client_frame

SLOW = Limits(send_seconds=5, close_seconds=0.3, grace_seconds=0.3, linger_seconds=0.1)


class Accepted:
    """A handler that accepts, hands its ends to the test, and reads until the client leaves."""

    def __init__(self, *, send_buffer: int | None = 4096) -> None:
        self.send_buffer = send_buffer
        self.ready = trio.Event()
        self.stream: FrameStream
        self.websocket: WebSocketConnection

    async def __call__(self, request: WebSocketRequest, stream: FrameStream) -> None:
        assert not stream.try_send(b"too early")
        with pytest.raises(trio.ClosedResourceError):
            await stream.send_frame(b"too early")
        self.websocket = await request.accept()
        if self.send_buffer is not None:
            stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, self.send_buffer)
        self.stream = stream
        self.ready.set()
        while True:
            await self.websocket.get_message()


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65535, 65536, 1 << 20])
def test_encoded_frames_decode(length: int) -> None:
    decoder = FrameDecoder(client=True)
    decoder.receive_bytes(encode_text_frame(b"a" * length))
    frame = decoder.process_buffer()
    assert frame is not None
    assert (frame.opcode, frame.payload, frame.frame_finished, frame.message_finished) == (
        TEXT,
        b"a" * length,
        True,
        True,
    )
    assert not len(decoder.buffer)


async def test_try_send_sends_at_once() -> None:
    handler = Accepted(send_buffer=None)
    async with serving(on_websocket=handler, limits=SLOW) as front, await front.connect() as client:
        await client.upgrade()
        await handler.ready.wait()
        for number in range(100):
            assert handler.stream.try_send(encode_text_frame(b"%d" % number))
        assert [await client.frame() for _ in range(100)] == [(TEXT, b"%d" % number) for number in range(100)]


async def test_try_send_never_blocks_and_what_it_took_arrives_whole() -> None:
    handler = Accepted()
    async with serving(on_websocket=handler, limits=SLOW) as front, await front.connect(receive_buffer=4096) as client:
        await client.upgrade()
        await handler.ready.wait()
        taken: list[bytes] = []
        for number in range(1000):
            payload = b"%04d" % number * 3000
            if not handler.stream.try_send(encode_text_frame(payload)):
                break
            taken.append(payload)
        assert 0 < len(taken) < 1000
        assert not handler.stream.try_send(encode_text_frame(b"x")), "a frame overtook the rest of another"
        for payload in taken:
            assert await client.frame() == (TEXT, payload)
        while not handler.stream.try_send(encode_text_frame(b"again")):
            await trio.lowlevel.checkpoint()
        assert await client.frame() == (TEXT, b"again")


@pytest.mark.parametrize("seed", range(4))
async def test_all_ways_to_send_give_whole_frames(seed: int) -> None:
    rng = random.Random(seed)
    handler = Accepted()
    total = 400
    async with serving(on_websocket=handler, limits=SLOW) as front, await front.connect(receive_buffer=4096) as client:
        await client.upgrade()
        await handler.ready.wait()
        sent: set[bytes] = set()

        def payload(number: int) -> bytes:
            return b"%06d" % number * rng.randrange(1, 4000)

        async def try_some() -> None:
            for number in range(total):
                data = payload(number)
                if handler.stream.try_send(encode_text_frame(data)):
                    sent.add(data)
                await trio.lowlevel.checkpoint()

        async def send_some() -> None:
            for number in range(total, 2 * total):
                data = payload(number)
                with trio.move_on_after(rng.choice([0, 0.0005, 1])) as patience:
                    await handler.stream.send_frame(encode_text_frame(data))
                if not patience.cancelled_caught:
                    sent.add(data)

        async def send_by_the_library() -> None:
            for number in range(2 * total, 3 * total):
                data = payload(number)
                await handler.websocket.send_message(data)
                sent.add(data)

        async def ping() -> None:
            for number in range(total):
                await client.send(client_frame(PING, b"%d" % number))

        received: list[tuple[int, bytes]] = []
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                awaited = {(TEXT, b"last"), (PONG, b"%d" % (total - 1))}
                while awaited:
                    received.append(await client.frame())
                    awaited.discard(received[-1])

            nursery.start_soon(read)
            async with trio.open_nursery() as senders:
                for sender in (try_some, send_some, send_by_the_library, ping):
                    senders.start_soon(sender)
            await handler.stream.send_frame(encode_text_frame(b"last"))
        bodies = {data for opcode, data in received if opcode in (TEXT, BINARY)}
        # A cancelled send may have gone out whole; a reported one must have.
        assert sent <= bodies
        for opcode, data in received:
            assert opcode == PONG or data == b"last" or data == data[:6] * (len(data) // 6), "frames are mixed"
        assert [data for opcode, data in received if opcode == PONG] == [b"%d" % number for number in range(total)]


async def test_a_cancelled_send_does_not_corrupt_the_stream() -> None:
    handler = Accepted()
    async with serving(on_websocket=handler, limits=SLOW) as front, await front.connect(receive_buffer=4096) as client:
        await client.upgrade()
        await handler.ready.wait()
        large = bytes(500_000)
        with trio.move_on_after(0.1) as patience:
            await handler.stream.send_frame(encode_text_frame(large))
        assert patience.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handler.stream.send_frame, encode_text_frame(b"next"))
            assert await client.frame() == (TEXT, large)
            assert await client.frame() == (TEXT, b"next")


@pytest.mark.spec("EVT-5")
@pytest.mark.parametrize("way", ["send_frame", "try_send"])
async def test_a_client_that_does_not_read_is_cut(way: str) -> None:
    handler = Accepted()
    limits = Limits(send_seconds=0.3, close_seconds=0.3, linger_seconds=0.1)
    async with (
        serving(on_websocket=handler, limits=limits) as front,
        await front.connect(receive_buffer=4096) as client,
    ):
        await client.upgrade()
        await handler.ready.wait()
        frame = encode_text_frame(bytes(100_000))
        started = trio.current_time()
        if way == "send_frame":
            with pytest.raises(trio.BrokenResourceError):
                await send_endlessly(handler.stream, frame)
        else:
            while handler.stream.try_send(frame):
                pass
            while front.server.statistics().connections:
                with trio.move_on_after(0.01):
                    await trio.Event().wait()
        assert trio.current_time() - started < 3
        assert not handler.stream.try_send(frame)
        with pytest.raises(trio.ClosedResourceError):
            await handler.stream.send_frame(frame)


async def send_endlessly(stream: FrameStream, frame: bytes) -> None:
    while True:
        await stream.send_frame(frame)


async def test_nothing_follows_a_close_frame() -> None:
    handler = Accepted()
    async with (
        serving(on_websocket=handler, limits=SLOW) as front,
        await front.connect() as client,
        trio.open_nursery() as nursery,
    ):
        await client.upgrade()
        await handler.ready.wait()
        nursery.start_soon(handler.websocket.aclose, 4000)
        assert await client.frame() == (CLOSE, struct.pack("!H", 4000))
        assert not handler.stream.try_send(encode_text_frame(b"late"))
        with pytest.raises(trio.ClosedResourceError):
            await handler.stream.send_frame(encode_text_frame(b"late"))
        await client.send(client_frame(CLOSE, struct.pack("!H", 4000)))
        assert await client.rest() == b""
        nursery.cancel_scope.cancel()


async def test_protocol_errors_are_told_with_their_code() -> None:
    for data, code in [(b"\x81\x00", 1002), (client_frame(TEXT, b"\xff"), 1007), (client_frame(3), 1002)]:
        async with serving() as front, await front.connect() as client:
            await client.upgrade()
            await client.send(data)
            assert await client.closing_code() == code
