"""A model's service that misbehaves below HTTP, byte by byte as a test writes it. Real sockets; not here: a service that works (`model_kit`)."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

Part = bytes | Callable[[trio.abc.Stream], Awaitable[object]]
EVENTS = "text/event-stream"


@attrs.frozen
class Request:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]


class FakeModel:
    """The n-th request is answered with the n-th script, part by part, then its connection is closed. `hung_up`: a client left first."""

    def __init__(self) -> None:
        self._scripts: list[tuple[Part, ...]] = []
        self.url = ""
        self.requests: list[Request] = []
        self.hung_up = trio.Event()

    def plan(self, *scripts: tuple[Part, ...]) -> None:
        """What the requests to come are answered with."""
        self._scripts += scripts

    async def serve(self, stream: trio.abc.Stream) -> None:
        async with stream:
            try:
                self.requests.append(await _read(stream))
                for part in self._scripts.pop(0):
                    if isinstance(part, bytes):
                        await stream.send_all(part)
                    else:
                        await part(stream)
            except trio.BrokenResourceError:
                self.hung_up.set()

    async def until_hung_up(self, stream: trio.abc.Stream) -> None:
        """A part: wait, without a byte, until the client is gone."""
        while await stream.receive_some(1024):
            pass
        self.hung_up.set()


@asynccontextmanager
async def faking(*scripts: tuple[Part, ...], tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeModel]:
    """A service on a port of its own, over TLS if asked. Every script must have been used at the end."""
    fake = FakeModel()
    fake.plan(*scripts)
    async with trio.open_nursery() as nursery:
        if tls is None:
            (listener,) = await nursery.start(partial(trio.serve_tcp, fake.serve, 0, host="127.0.0.1"))
            fake.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        else:
            (listener,) = await nursery.start(partial(trio.serve_ssl_over_tcp, fake.serve, 0, tls, host="127.0.0.1"))
            fake.url = f"https://127.0.0.1:{listener.transport_listener.socket.getsockname()[1]}/v1"
        yield fake
        nursery.cancel_scope.cancel()
    assert not fake._scripts, "fewer requests came than the test has answers for"


def head(status: str = "200 OK", kind: str = EVENTS, *headers: str) -> bytes:
    """The head of an answer that ends with its connection."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunked(*parts: bytes, end: bool = True) -> bytes:
    """An event stream whose end can be told from a connection that broke."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    start = f"HTTP/1.1 200 OK\r\nContent-Type: {EVENTS}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return start + body + (b"0\r\n\r\n" if end else b"")


def sse(*data: Any) -> bytes:
    """Events with this data; what is no text is written as JSON."""
    return b"".join(b"data: %b\n\n" % (one if isinstance(one, str) else json.dumps(one)).encode() for one in data)


def delta(content: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A piece of a streamed answer."""
    told = {"content": content} if content is not None else {}
    return {"model": "fake-1", "choices": [{"index": 0, "delta": told, "finish_reason": finish}], **fields}


def whole(text: str, **fields: Any) -> bytes:
    """An answer in one piece."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        **fields,
    }
    return head(kind="application/json; charset=utf-8") + json.dumps(body).encode()


async def _read(stream: trio.abc.Stream) -> Request:
    received = b""
    while b"\r\n\r\n" not in received:
        received += await stream.receive_some(65_536)
    start, _, body = received.partition(b"\r\n\r\n")
    line, *fields = start.decode("ascii").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    while len(body) < int(headers["content-length"]):
        body += await stream.receive_some(65_536)
    return Request(line, headers, json.loads(body))
