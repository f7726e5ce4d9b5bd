"""One HTTP request and its response, as an ASGI application sees them.

Lives here: the scope, `receive` and `send` of one exchange, noticing that the client has gone. Not here: reading heads (connection) and
bodies (body), deciding what is acceptable (head).

Invariant: the client gets exactly one response, the application's or one of ours, or sees that it was cut.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import attrs
import h11
import trio
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope

from .body import Body
from .faults import log_fault
from .head import Head
from .limits import Limits
from .replies import Reply, http_date, internal, reason
from .transport import Transport

log = logging.getLogger(__name__)


class ClientGone(OSError):
    """The application went on streaming to a client that is gone."""


@attrs.define
class Exchange:
    """One request on a connection; `run` calls the application once. `parser` has just returned the request's head."""

    head: Head
    parser: h11.Connection
    transport: Transport
    limits: Limits
    stopping: Callable[[], bool]
    """Asked when the response starts: a stopping server announces the end of the connection."""

    _body: Body = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _gone: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Nothing more comes from the client for this request, or nothing more of the response goes to it."""
    _given: bool = attrs.field(default=False, init=False)
    """The application has the whole body."""
    _watching: bool = attrs.field(default=False, init=False)
    _pending: bytes | None = attrs.field(default=None, init=False)
    """None before the response starts; then its head until it is written, together with the first bytes of a body of known length."""
    _on_wire: bool = attrs.field(default=False, init=False)
    _complete: bool = attrs.field(default=False, init=False)
    _refused: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._body = Body(self.parser, self.transport, self.limits, self.head.length)

    async def run(self, app: ASGIApp, state: dict[str, Any]) -> bool:
        """Answer the request; True: the connection can carry another one. Never raises what the application raised."""
        try:
            async with trio.open_nursery() as self._nursery:
                # A task of its own, so that context variables which one request sets do not reach the next one on this connection.
                self._nursery.start_soon(self._call, app, state)
        finally:
            if not self._complete and not self._refused:
                self._cut()
        return (
            self._complete
            and self.parser.our_state is h11.DONE
            and not self.transport.closed
            and await self._body.discard()
        )

    async def _call(self, app: ASGIApp, state: dict[str, Any]) -> None:
        try:
            await app(self._scope(state), self._receive, self._send)
        except* (ClientGone, ClientDisconnect):
            pass
        except* Exception as fault:
            log_fault(log, "request", fault)
        else:
            if not self._complete and not self._gone.is_set():
                log.error("request failed: the application returned before its response was complete")
        if not self._on_wire and not self._gone.is_set():
            await self._refuse(internal())
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()

    def _scope(self, state: dict[str, Any]) -> Scope:
        head = self.head
        return {
            "type": "http",
            # Not 2.4: by 2.3 Starlette waits for the disconnect beside a stream, and so ends a quiet one too.
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method,
            "scheme": "https" if self.transport.tls else "http",
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": self.transport.client,
            "server": self.transport.server,
            "state": dict(state),
            "extensions": {},
        }

    # -- receive --------------------------------------------------------------------------------------------------------

    async def _receive(self) -> Message:
        # Starlette asks whether the client is gone by calling this in a cancelled scope: that answer must come before any checkpoint, and
        # must not swallow a part of the body. A client that only closed its sending side still gets its body read and answered.
        polled = trio.current_effective_deadline() == -math.inf
        if self._gone.is_set() and (polled or self._given or self._refused or self._complete):
            return {"type": "http.disconnect"}
        if self._body.arrived and not self._watching:
            self._watching = True
            assert self._nursery is not None
            self._nursery.start_soon(self._watch)
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._given:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        part = await self._body.next_part()
        if isinstance(part, Reply):
            await self._refuse(part)
            return {"type": "http.disconnect"}
        self._given = not part.more
        return {"type": "http.request", "body": part.data, "more_body": part.more}

    async def _watch(self) -> None:
        """Notice the client's end while the application works or streams; keep what it sends ahead, within the limit of a head."""
        ahead = len(self.parser.trailing_data[0])
        while ahead <= self.limits.head_bytes:
            data = await self.transport.receive(self.limits.head_bytes + 1 - ahead)
            self.parser.receive_data(data)
            ahead += len(data)
            if not data:
                self._gone.set()
                return

    # -- send -----------------------------------------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        if self._refused or self._complete or self.transport.closed:
            await trio.lowlevel.checkpoint()
            if message.get("more_body") and not self._complete:
                raise ClientGone("the client is gone")
            return
        kind, started = message["type"], self._pending is not None
        if kind == "http.response.start" and not started:
            await self._send_start(message)
        elif kind == "http.response.body" and started:
            body = message.get("body", b"")
            data = self.parser.send(h11.Data(data=body)) if body else b""
            await (self._write(data) if message.get("more_body") else self._finish(data))
        else:
            raise RuntimeError(f"{kind} is not possible now")

    async def _send_start(self, message: Message) -> None:
        status = message["status"]
        headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        names = {name.lower() for name, _ in headers}
        if b"date" not in names:
            headers.append((b"date", http_date()))
        if self.stopping():
            headers = [(name, value) for name, value in headers if name.lower() != b"connection"]
            headers.append((b"connection", b"close"))
        self._pending = self.parser.send(h11.Response(status_code=status, headers=headers, reason=reason(status)))
        if self.head.method == "HEAD" or status in (204, 304):
            # Complete without a body, whatever the application still sends: an endless stream under HEAD must end.
            await self._finish(b"")
        elif b"content-length" not in names:
            # A stream may be quiet for long, and its client waits for the head.
            await self._write(b"")

    async def _finish(self, data: bytes) -> None:
        data += self.parser.send(h11.EndOfMessage())
        self._complete = True
        await self._write(data)
        self._gone.set()

    async def _write(self, data: bytes) -> None:
        data, self._pending = (self._pending or b"") + data, b""
        self._on_wire = True
        try:
            await self.transport.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._gone.set()

    async def _refuse(self, reply: Reply) -> None:
        self._refused = True
        if self._on_wire:
            self._cut()
        else:
            self._pending = None
            await self._write(reply.render(without_body=self.head.method == "HEAD"))
        self._gone.set()

    def _cut(self) -> None:
        # Without chunked framing an orderly end would pass for the end of the response.
        if self.head.version == "1.0":
            self.transport.abort()
        else:
            self.transport.close()
