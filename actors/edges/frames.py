"""The stream under a websocket: the library's frames and ours, one after the other, never mixed.

Lives here: `FrameStream`, which trio-websocket reads and writes, and frames made once for many clients. Not here: the protocol itself
(wsproto), who is subscribed to what, when to give up on a slow client.

Invariant: a frame on the wire is followed by its own rest. Whoever holds the lock first finishes what is left of an earlier frame (`_rest`),
and while something is left there is a task that finishes it or closes the connection.

Traps of trio-websocket 0.12 that this stream answers: bytes behind the handshake are lost unless they come after the acceptance; a send
that is cancelled half-way corrupts the stream; a frame's announced length is believed; a protocol error is not told to the peer.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio_websocket

from .messages import MessageMeter
from .transport import RECEIVE_BYTES, Transport

_TEXT, _CLOSE = 0x81, 0x88
_CLOSE_SECONDS = 1.0
"""For the one close frame that the library owes: the connection ends with or without it."""
_TOO_BIG = 1009
_NOT_SENT = frozenset({1005, 1006, 1015})
"""Codes that stand for the absence of a close frame."""

StartSoon = Callable[[Callable[[], Awaitable[None]]], None]


class FrameStream(trio.abc.Stream):
    """One websocket's bytes. `client` is (host, port), `host` the handshake's Host field, which the library does not pass on.

    `start_soon` must start tasks that live as long as the websocket.
    """

    def __init__(
        self,
        transport: Transport,
        handshake: bytes,
        glued: bytes,
        *,
        host: str,
        message_bytes: int,
        start_soon: StartSoon,
    ) -> None:
        self.answered = trio.Event()
        """The handler has accepted or rejected; before that nothing behind the handshake is read."""
        self.host = host
        self.client = transport.client
        self.tls = transport.tls
        self.socket = transport.socket
        self._transport = transport
        self._handshake = handshake
        self._glued = glued
        self._meter = MessageMeter(message_bytes)
        self._start_soon = start_soon
        self._lock = trio.StrictFIFOLock()
        self._rest = memoryview(b"")
        self._open = False
        self._close_sent = False
        self._closed = False
        self._free = False
        """Whether a whole frame may be written at once: kept up to date, as a crowd asks for it with every frame."""
        self._reading: trio.CancelScope | None = None
        self._websocket: trio_websocket.WebSocketConnection | None = None

    def __repr__(self) -> str:
        return f"<websocket of {self.client}>"

    def try_send(self, frame: bytes) -> bool:
        """Send a whole frame without waiting; False: nothing of it went out (busy, full, closed, or TLS), use `send_frame`.

        No checkpoint: a caller with many streams makes its own.
        """
        if not self._free:
            return False
        sent = self._transport.send_now(frame)
        if sent == len(frame):
            return True
        if sent:
            self._keep_rest(memoryview(frame)[sent:])
        return sent > 0

    async def send_frame(self, frame: bytes) -> None:
        """Send a whole frame when its turn comes. Cancelling is safe: a frame that was begun is finished, or the connection closed.

        Raises `ClosedResourceError` before the acceptance and once the websocket is closing, `BrokenResourceError` when the client is gone
        or has read nothing for the time limit; the connection is closed then.
        """
        if not self._open or self._close_sent or self._closed:
            raise trio.ClosedResourceError("the websocket is not open")
        await self._send(frame)

    def attach(self, websocket: trio_websocket.WebSocketConnection) -> None:
        """Name the connection that the library made of this stream, whose closing code may have to be sent for it."""
        self._websocket = websocket

    # -- what the library calls ---------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send one frame, or the answer to the handshake; the library always passes whole ones."""
        if not self.answered.is_set():
            self.answered.set()
            await self._send(data)
            self._open = bytes(data[:12]) == b"HTTP/1.1 101"
            self._look()
            return
        if self._close_sent or self._closed:
            raise trio.ClosedResourceError("the websocket is closed")
        self._close_sent = data[:1] == bytes([_CLOSE])
        await self._send(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for the frames before; then a send of ours may still wait for the client."""
        async with self._writing():
            pass

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The handshake alone, then, once it is answered, the client's frames; b"" when no more come."""
        size = max_bytes or RECEIVE_BYTES
        if self._handshake:
            await trio.lowlevel.checkpoint()
            data, self._handshake = self._handshake[:size], self._handshake[size:]
            return data
        await self.answered.wait()
        if not self._meter.exceeded:
            data = await self._receive(size)
            if not data:
                return data
            if admitted := self._meter.admit(data):
                return data[:admitted]
        await self._say_close(_TOO_BIG)
        return b""

    async def aclose(self) -> None:
        """Send what is owed and let the library's reader end; the socket itself is closed by the connection, after it has lingered."""
        reason = self._websocket.closed if self._websocket is not None else None
        try:
            await self._say_close(reason.code if reason is not None and reason.code not in _NOT_SENT else None)
        finally:
            self._closed = True
            self._look()
            if self._reading is not None:
                self._reading.cancel()

    # -- the lock and the rest ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[None]:
        """Nobody else writes while the block lasts, and nothing of an earlier frame is left."""
        self._free = False
        try:
            async with self._lock:
                await self._finish_rest()
                yield
        finally:
            self._look()

    def _look(self) -> None:
        """Something has changed that `_free` depends on."""
        self._free = (
            self._open and not self._close_sent and not self._closed and not self._rest and not self._lock.locked()
        )

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        async with self._writing():
            view = self._rest = memoryview(data)
            try:
                await self._finish_rest()
            except trio.Cancelled:
                rest, self._rest = self._rest, memoryview(b"")
                if len(rest) < len(view):
                    self._keep_rest(rest)
                raise

    async def _finish_rest(self) -> None:
        while self._rest:
            sent = await self._transport.send_some(self._rest)
            self._rest = self._rest[sent:]

    def _keep_rest(self, rest: memoryview) -> None:
        if not self._transport.closed:
            self._rest = rest
            self._free = False
            self._start_soon(self._finish_later)

    async def _finish_later(self) -> None:
        try:
            async with self._writing():
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._closed = True
            self._look()

    async def _receive(self, size: int) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError("the websocket is closed")
        if self._glued:
            await trio.lowlevel.checkpoint()
            data, self._glued = self._glued[:size], self._glued[size:]
            return data
        with trio.CancelScope() as self._reading:
            return await self._transport.receive(size)
        raise trio.ClosedResourceError("the websocket is closed")

    async def _say_close(self, code: int | None) -> None:
        """Send a close frame unless one was sent or there is no `code`; either way wait for frames that are under way."""
        owed = code is not None and self._open and not self._close_sent and not self._closed
        self._close_sent = self._close_sent or owed
        frame = bytes([_CLOSE, 2]) + struct.pack("!H", code) if owed else b""
        with trio.move_on_after(_CLOSE_SECONDS):
            try:
                await self._send(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._closed = True
                self._look()


def encode_text_frame(payload: bytes) -> bytes:
    """A server's frame with a whole text message; `payload` is UTF-8. Made once, it can be sent to any number of clients."""
    length = len(payload)
    if length < 126:
        return bytes([_TEXT, length]) + payload
    if length < 65536:
        return struct.pack("!BBH", _TEXT, 126, length) + payload
    return struct.pack("!BBQ", _TEXT, 127, length) + payload
