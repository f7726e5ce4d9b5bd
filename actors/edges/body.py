"""The body of one request: read as it is asked for, within its bounds of bytes and seconds.

Lives here: parts of the body, 100-continue, what is left over at the end. Not here: who asks (http1).

Invariant: a body never takes more memory than what h11 makes of one read, nor more than the limits in all; who breaks them gets a `Reply`.
"""

from __future__ import annotations

from contextlib import suppress

import attrs
import h11
import trio

from .limits import Limits
from .replies import Reply, bad_request, too_large, too_slow
from .transport import RECEIVE_BYTES, Transport

_CHUNKED_BYTES = 16 * 1024
"""Read at once of a chunked body: h11 parses that much between two checkpoints, at worst in chunks of one byte."""


@attrs.frozen
class Part:
    """Some of the body; `more` tells whether another part must be asked for."""

    data: bytes
    more: bool


@attrs.define
class Body:
    """One request's body. `length` is the announced length in bytes, None if chunked; `parser` has just returned the head."""

    parser: h11.Connection
    transport: Transport
    limits: Limits
    length: int | None
    _decoded: int = attrs.field(default=0, init=False)
    _received: int = attrs.field(default=0, init=False)
    _waited: float = attrs.field(default=0.0, init=False)

    @property
    def arrived(self) -> bool:
        """Nothing of it is still to come; the socket's next bytes are another request's."""
        return self.length == 0 or self.parser.their_state is not h11.SEND_BODY

    async def next_part(self) -> Part | Reply:
        """The next bytes, as soon as there are some; the reply that ends the exchange if the body breaks a rule."""
        parts: list[bytes] = []
        while True:
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError:
                return bad_request("the body is malformed or ends too early")
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                self._decoded += len(event.data)
                if self._decoded > self.limits.body_bytes:
                    return too_large(self.limits.body_bytes)
            elif isinstance(event, h11.EndOfMessage):
                return Part(b"".join(parts), more=False)
            elif parts:
                return Part(b"".join(parts), more=True)
            elif refused := await self._read():
                return refused

    async def discard(self) -> bool:
        """Take what nobody asked for, if it is little and comes soon; False: the connection can't be used again."""
        if self.parser.they_are_waiting_for_100_continue:
            return False
        with trio.move_on_after(self.limits.linger_seconds):
            while self.parser.their_state is h11.SEND_BODY:
                if (self.length or self._received) - self._decoded > RECEIVE_BYTES or self._received > RECEIVE_BYTES:
                    return False
                if isinstance(await self.next_part(), Reply):
                    return False
            return True
        return False

    async def _read(self) -> Reply | None:
        if self.parser.they_are_waiting_for_100_continue:
            go_on = self.parser.send(h11.InformationalResponse(status_code=100, headers=[]))
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.transport.send_all(go_on)
        # Of a known length no byte more, so that requests sent ahead stay where the limit of heads counts them.
        size = _CHUNKED_BYTES if self.length is None else min(RECEIVE_BYTES, max(self.length - self._decoded, 1))
        started = trio.current_time()
        with trio.move_on_after(max(0.0, self.limits.body_seconds - self._waited)) as waiting:
            data = await self.transport.receive(size)
            self.parser.receive_data(data)
            self._received += len(data)
        self._waited += trio.current_time() - started
        if waiting.cancelled_caught:
            return too_slow("body")
        if self.length is None and self._received - self._decoded > self.limits.framing_bytes + _CHUNKED_BYTES:
            return bad_request("the body's chunks are too small")
        return None
