"""One connection to a server's `/v1/live`, from the TCP handshake to its loss.

Lives here: handshake, one reader that always drains, one writer, pings. Not here: what to do when it is lost (`live`).

Invariant: only the writer sends, and it is cancelled only with the whole connection: a send that is cancelled half-way would make the next
frame unreadable.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import attrs
import trio
import trio_websocket

from ...storage.model.errors import CallboardError, InvalidField, Rejected, Unavailable, error_named
from ...storage.wire import parse_object

log: Final = logging.getLogger("callboard.client")
SUBPROTOCOL: Final = "callboard.v1"
CONNECT_SECONDS: Final = 10.0
PING_SECONDS: Final = 20.0
MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Of one frame that we take: an agent's answer has no limit of its own, and a frame that is refused would come again for ever."""
_EXPECTED: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


@attrs.frozen
class Address:
    """Where and as whom to connect."""

    host: str
    port: int
    resource: str
    token: str = attrs.field(repr=False)
    tls: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        """The host as a Host field has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def address_of(url: str, token: str, *, client: str | None = None, tls: ssl.SSLContext | None = None) -> Address:
    """The address of a server's base URL (`http://127.0.0.1:8420`). Raises `InvalidField`."""
    try:
        parts = urlsplit(url)
        secure = {"http": False, "ws": False, "https": True, "wss": True}[parts.scheme]
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    except (ValueError, KeyError):
        raise InvalidField("must be http://HOST:PORT or https://HOST:PORT", path="url") from None
    if not host:
        raise InvalidField("names no host", path="url")
    if not token.isascii() or not token.isprintable() or not token:
        raise InvalidField("is not a token", path="token")
    query = f"?client={quote(client, safe='')}" if client is not None else ""
    resource = f"{parts.path.rstrip('/')}/v1/live{query}"
    return Address(host, port, resource, token, (tls or ssl.create_default_context()) if secure else None)


class Link:
    """One connection. `say` queues a frame; `opened` is called once it may be used, `hear` with each frame that comes.

    What `hear` raises ends the connection: an `Unavailable` as a loss, any other `CallboardError` for good.
    """

    def __init__(
        self, address: Address, opened: Callable[[Link], None], hear: Callable[[dict[str, Any]], None]
    ) -> None:
        self._address = address
        self._opened = opened
        self._hear = hear
        self._outbox: deque[str] = deque()
        self._wake = trio.Event()
        self._websocket: trio_websocket.WebSocketConnection | None = None
        self._closing = False

    def say(self, frame: dict[str, Any]) -> None:
        """Send a frame as soon as the connection takes it; if it is lost before, so is the frame."""
        self._outbox.append(json.dumps(frame))
        self._wake.set()

    async def close(self) -> None:
        """Say good-bye, if there is somebody to say it to."""
        if self._websocket is not None:
            self._closing = True
            await self._websocket.aclose()

    async def run(self) -> str:
        """Connect and serve until the connection is lost; returns why it was. Raises the server's refusal if trying again can't help."""
        failure: Exception | None = None
        try:
            await self._converse()
        except* Exception as group:
            failure = _first(group)
        match failure:
            case None:
                return "it was closed"
            case trio_websocket.ConnectionRejected() if failure.status_code < 500:
                raise _refusal(failure)
            case trio.BrokenResourceError(__cause__=ssl.SSLCertVerificationError() as cause):
                raise Rejected(f"the server's certificate is not trusted: {cause.verify_message}", path="url")
            case CallboardError() if not isinstance(failure, Unavailable):
                raise failure
            case Unavailable() | trio_websocket.HandshakeError() | trio_websocket.ConnectionClosed():
                return type(failure).__name__
            case _ if isinstance(failure, _EXPECTED):
                return str(failure) or type(failure).__name__
            case _:
                # The library is known to fail in other ways on bytes that it did not expect; a new connection starts clean.
                log.warning("a connection failed: %s", type(failure).__name__, exc_info=failure)
                return type(failure).__name__

    async def _converse(self) -> None:
        address = self._address
        with trio.fail_after(CONNECT_SECONDS):
            raw = _Watched(await _open(address))
        async with raw, trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_at, raw.ended, nursery.cancel_scope)
            with trio.fail_after(CONNECT_SECONDS):
                self._websocket = websocket = await trio_websocket.wrap_client_stream(
                    nursery,
                    cast("trio.SocketStream", raw),
                    address.name,
                    address.resource,
                    subprotocols=[SUBPROTOCOL],
                    extra_headers=[(b"Authorization", f"Bearer {address.token}".encode("ascii"))],
                    max_message_size=MESSAGE_BYTES,
                )
            self._opened(self)
            nursery.start_soon(self._write, websocket)
            nursery.start_soon(_keep_alive, websocket)
            try:
                while True:
                    self._hear(parse_object(await websocket.get_message()))
            except trio_websocket.ConnectionClosed:
                if self._closing:
                    # The library's reader is still needed for the closing handshake; who closes also cancels us.
                    await trio.sleep_forever()
                raise

    async def _give_up_at(self, ended: trio.Event, scope: trio.CancelScope) -> None:
        await ended.wait()
        if self._websocket is None:
            scope.cancel()

    async def _write(self, websocket: trio_websocket.WebSocketConnection) -> None:
        while True:
            while self._outbox:
                await websocket.send_message(self._outbox.popleft())
            await self._wake.wait()
            self._wake = trio.Event()


class _Watched(trio.abc.Stream):
    """A stream that tells when the other side has ended: the library waits for a handshake for ever, whoever has gone."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.ended = trio.Event()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            data = await self._stream.receive_some(max_bytes)
            return data
        finally:
            if not data:
                self.ended.set()

    async def aclose(self) -> None:
        self.ended.set()
        await trio.aclose_forcefully(self._stream)


async def _open(address: Address) -> trio.abc.Stream:
    if address.tls is None:
        return await trio.open_tcp_stream(address.host, address.port)
    stream = await trio.open_ssl_over_tcp_stream(
        address.host, address.port, ssl_context=address.tls, https_compatible=True
    )
    await stream.do_handshake()
    return stream


async def _keep_alive(websocket: trio_websocket.WebSocketConnection) -> None:
    """Notice a server that is gone without a word."""
    while True:
        await trio.sleep(PING_SECONDS)
        with trio.fail_after(PING_SECONDS):
            await websocket.ping()


def _refusal(rejected: trio_websocket.ConnectionRejected) -> CallboardError:
    """The error in the server's answer to a handshake."""
    try:
        error = parse_object(rejected.body or b"")["error"]
        return error_named(error["code"], error["message"], error.get("path"))
    except (CallboardError, KeyError, TypeError, AttributeError):
        return Rejected(f"the server answered {rejected.status_code} to the websocket handshake", path="url")


def _first(group: BaseExceptionGroup[Any]) -> Exception:
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = cast("BaseExceptionGroup[BaseException]", leaf).exceptions[0]
    assert isinstance(leaf, Exception)
    return leaf
