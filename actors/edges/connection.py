"""The life of one connection: TLS, heads, requests in turn, perhaps a websocket, the end.

Lives here: what follows what on one socket, and the wall that faults stop at. Not here: one request (http1), one websocket (upgrade), who
starts and counts connections (server).

Invariant: whatever happens in a connection ends with this connection, is logged once, and leaves its socket closed. The child is temporary:
nobody restarts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11
import trio

from .faults import DEPARTURES, log_fault
from .head import Head, judge
from .http1 import Exchange
from .replies import Reply, bad_request, refusal, too_slow, unavailable
from .transport import Transport
from .upgrade import serve_websocket

if TYPE_CHECKING:
    from .server import Server

log = logging.getLogger(__name__)


class Connection:
    """One accepted socket. `run` is the whole child; `begin_stop` and `cut` may be called from outside at any time."""

    def __init__(self, server: Server, stream: trio.SocketStream, *, refused: bool) -> None:
        """`refused`: the server is full; say so and close."""
        self._server = server
        self._limits = server.limits
        self._transport = Transport(stream, send_seconds=server.limits.send_seconds)
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=server.limits.head_bytes)
        self._scope = trio.CancelScope()
        self._refused = refused
        self._on_stop: Callable[[], None] | None = None

    async def run(self) -> None:
        """Serve the client until it or we end it. Raises nothing but cancellation from outside."""
        try:
            with self._scope:
                await self._converse()
        except* DEPARTURES:
            pass
        except* Exception as fault:
            self._server.counts.failures += 1
            log_fault(log, "connection", fault)
        finally:
            self._transport.close()
            self._server.forget(self)

    def begin_stop(self) -> None:
        """The server stops: end at once if nothing is in flight, else soon."""
        if self._on_stop is not None:
            self._on_stop()

    def cut(self) -> None:
        """End now, whatever is in flight."""
        self._scope.cancel()

    def drop(self) -> None:
        """Close the socket of a connection whose child was never run, or does not end."""
        self._transport.close()

    async def _converse(self) -> None:
        if self._server.tls is not None:
            with trio.CancelScope() as shaking:
                self._on_stop = shaking.cancel
                if not await self._transport.start_tls(self._server.tls, self._limits.tls_seconds):
                    return
            if shaking.cancelled_caught:
                return
        reply = (
            unavailable("the server has as many connections as it may")
            if self._refused
            else await self._serve_requests()
        )
        if reply is not None:
            await self._transport.send_all(reply.render())
        if not self._transport.closed:
            await self._transport.linger(self._limits.linger_seconds)

    def _answers_for(self) -> frozenset[str] | None:
        """The allowed names and the address that the client has reached: a page of a rebound name can't say that as its host."""
        allowed, reached = self._server.allowed_hosts, self._transport.server
        return allowed if allowed is None or reached is None else allowed | {reached[0]}

    async def _serve_requests(self) -> Reply | None:
        """One request after the other; the last word of ours, None if there is nothing to say."""
        while True:
            request = await self._next_request()
            if not isinstance(request, h11.Request):
                return request
            self._on_stop = None
            self._server.counts.requests += 1
            head = judge(request, body_bytes=self._limits.body_bytes, allowed_hosts=self._answers_for())
            if isinstance(head, Reply):
                return head if request.method != b"HEAD" else Reply(head.status, b"", head.headers)
            if head.websocket:
                return await self._serve_websocket(head)
            exchange = Exchange(head, self._parser, self._transport, self._limits, lambda: self._server.stopping)
            if not await exchange.run(self._server.app, self._server.state):
                return None
            self._next_cycle()

    async def _next_request(self) -> h11.Request | Reply | None:
        """The next head; None when the client ended, was silent for too long, or the server stops."""
        buffered = len(self._parser.trailing_data[0])
        patience = self._limits.head_seconds if buffered else self._limits.idle_seconds
        with trio.CancelScope(deadline=trio.current_time() + patience) as waiting:
            self._on_stop = waiting.cancel
            if self._server.stopping:
                return self._close_at_once()
            while True:
                try:
                    event = self._parser.next_event()
                except h11.RemoteProtocolError as error:
                    return self._explain(error)
                if isinstance(event, h11.Request):
                    return event
                if isinstance(event, h11.ConnectionClosed):
                    return self._close_at_once()
                # Not a byte more than a head may have: h11 looks at the size of incomplete heads only.
                data = await self._transport.receive(self._limits.head_bytes + 1 - buffered)
                if data and not buffered:
                    # Some clients send an empty line after a body; h11 takes it for a request.
                    data = data.lstrip(b"\r\n")
                    if not data:
                        continue
                    waiting.deadline = trio.current_time() + self._limits.head_seconds
                buffered += len(data)
                self._parser.receive_data(data)
        return too_slow("head") if buffered and not self._server.stopping else self._close_at_once()

    def _close_at_once(self) -> None:
        # Nothing is on its way in either direction, so there is nothing to linger for.
        self._transport.close()

    def _explain(self, error: h11.RemoteProtocolError) -> Reply:
        match error.error_status_hint:
            case 431 if b"\n" not in self._parser.trailing_data[0]:
                return refusal(414, "uri_too_long", "the request line is too long")
            case 431:
                return refusal(431, "headers_too_large", f"the head may have at most {self._limits.head_bytes} bytes")
            case 501:
                return refusal(501, "not_implemented", "the only transfer coding known here is chunked")
            case _:
                return bad_request("this is not an HTTP/1.1 request")

    async def _serve_websocket(self, head: Head) -> Reply | None:
        self._server.counts.websockets += 1
        try:
            glued = self._parser.trailing_data[0]
            self._parser = h11.Connection(h11.SERVER)
            return await serve_websocket(
                head, glued, self._transport, self._limits, self._server.on_websocket, on_stop=self._set_on_stop
            )
        finally:
            self._server.counts.websockets -= 1

    def _set_on_stop(self, stop: Callable[[], None]) -> None:
        self._on_stop = stop
        if self._server.stopping:
            stop()

    def _next_cycle(self) -> None:
        self._parser.start_next_cycle()
        ahead, ended = self._parser.trailing_data
        if ahead[:1] in (b"\r", b"\n"):
            self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
            if ahead := ahead.lstrip(b"\r\n"):
                self._parser.receive_data(ahead)
            if ended:
                self._parser.receive_data(b"")
