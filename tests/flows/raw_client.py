"""A client that writes raw bytes, and strict parsers for what comes back: HTTP responses and websocket frames.

Not here: any judgement, and nothing of the code under test.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Self

import attrs
import trio

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@attrs.frozen
class Answer:
    """One HTTP response as it was on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A raw TCP (or TLS) client."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.buffer = b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send_eof(self) -> None:
        assert isinstance(self.stream, trio.SocketStream)
        await self.stream.send_eof()

    async def more(self) -> bool:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        self.buffer += data
        return bool(data)

    async def take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            assert await self.more(), f"the server closed after {self.buffer!r}"
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            assert await self.more(), f"the server closed after {self.buffer!r}"
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    async def rest(self) -> bytes:
        """All until the server closes."""
        while await self.more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    async def head(self) -> Answer:
        version, status, _ = (await self.line()).split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers: dict[str, str] = {}
        while line := await self.line():
            name, _, value = line.decode("ascii").partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        return Answer(int(status), headers, b"")

    async def answer(self, *, to_head: bool = False) -> Answer:
        head = await self.head()
        if to_head or head.status in (101, 204, 304) or head.status < 200:
            return head
        if head.headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.chunks()])
        elif "content-length" in head.headers:
            body = await self.take(int(head.headers["content-length"]))
        else:
            body = await self.rest()
        return attrs.evolve(head, body=body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.line(), 16):
            yield await self.take(size)
            assert await self.take(2) == b"\r\n"
        assert await self.line() == b""

    # -- websocket --------------------------------------------------------------------------------------------------

    async def upgrade(self, path: str = "/live", headers: bytes = b"", glued: bytes = b"") -> Answer:
        await self.send(handshake(path, headers) + glued)
        return await self.answer()

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the server as (opcode, payload); it must be whole, final and unmasked."""
        first, second = await self.take(2)
        assert first & 0xF0 == 0x80, f"first byte {first:#x}"
        assert second < 0x80, "a server masks nothing"
        length = second
        if length == 126:
            (length,) = struct.unpack("!H", await self.take(2))
            assert length > 125
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.take(8))
            assert length > 65535
        return first & 0x0F, await self.take(length)

    async def closing_code(self) -> int | None:
        """The code of the next close frame, other frames left out; None if the server closes without one."""
        while self.buffer or await self.more():
            opcode, payload = await self.frame()
            if opcode == CLOSE:
                return struct.unpack("!H", payload[:2])[0] if payload else 1005
        return None


def handshake(path: str = "/live", headers: bytes = b"") -> bytes:
    return (
        b"GET %s HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" % path.encode()
        + b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n%s\r\n" % (KEY, headers)
    )


def client_frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes = b"\x37\xfa\x21\x3d") -> bytes:
    """One masked frame, as a client sends it."""
    length = len(payload)
    head = bytes([opcode | (0x80 if fin else 0)])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65536:
        head += struct.pack("!BH", 0x80 | 126, length)
    else:
        head += struct.pack("!BQ", 0x80 | 127, length)
    key = (mask * (length // 4 + 1))[:length]
    masked = (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(length, "big")
    return head + mask + masked


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def post(body: bytes, path: str = "/echo", *headers: str) -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers, "", ""])
    return head.encode() + body
