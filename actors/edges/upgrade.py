"""From an HTTP request to a websocket: the handler's answer, its faults, and an end that is always told and always bounded.

Lives here: what stands around `trio_websocket.wrap_server_stream`. Not here: the frames (frames), what a client may say (the handler).

Invariant: a handler always ends in one of three ways that the client can tell apart: answered by HTTP, closed with a code, or cut because
it did not answer the closing handshake in time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError

from .faults import DEPARTURES, log_fault
from .frames import FrameStream
from .head import Head
from .limits import Limits
from .replies import Reply, internal, unavailable
from .transport import RECEIVE_BYTES, Transport

log = logging.getLogger(__name__)

OnWebsocket = Callable[[trio_websocket.WebSocketRequest, FrameStream], Awaitable[None]]
"""Accepts or rejects the request within the limit, then serves it until it returns; must keep taking messages, or pings go unanswered."""

_OPENING_SECONDS = 10.0
"""For the library to read a handshake that is in memory: it passes only if the library has hung."""
_NORMAL, _GOING_AWAY, _INTERNAL = 1000, 1001, 1011
_REBUILT = frozenset({b"host", b"connection", b"upgrade", b"content-length", b"sec-websocket-extensions"})


async def serve_websocket(
    head: Head,
    glued: bytes,
    transport: Transport,
    limits: Limits,
    on_websocket: OnWebsocket,
    *,
    on_stop: Callable[[Callable[[], None]], None],
) -> Reply | None:
    """Run one websocket to its end; the reply that the client gets if the handler has not answered, else None.

    `glued` are bytes that came with the handshake. `on_stop` is given the function that begins the websocket's end when the server stops.
    What the handler raises is logged and closes the websocket with 1011; only what the library raises leaves here.
    """
    stopped = failed = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        living.cancel()

    stream: FrameStream | None = None
    try:
        async with trio.open_nursery() as nursery:
            stream = FrameStream(
                transport,
                _handshake(head),
                glued,
                host=head.host.decode("ascii"),
                message_bytes=limits.message_bytes,
                start_soon=nursery.start_soon,
            )
            # The library waits for ever on a handshake that it does not like; `judge` lets none through that we know of.
            with trio.fail_after(_OPENING_SECONDS):
                request = await trio_websocket.wrap_server_stream(
                    nursery, stream, limits.message_queue, limits.message_bytes, RECEIVE_BYTES
                )
            # The request alone can't close what it stands for: it has no public way to the connection before the handler accepts.
            websocket = request._connection  # noqa: SLF001
            stream.attach(websocket)
            with trio.CancelScope() as living:
                on_stop(stop)
                nursery.start_soon(_expect_answer, stream, living, limits.handshake_seconds)
                try:
                    await on_websocket(request, stream)
                except* DEPARTURES:
                    pass
                except* Exception as fault:
                    failed = True
                    log_fault(log, "websocket handler", fault)
            if stream.answered.is_set():
                with trio.move_on_after(limits.close_seconds):
                    await websocket.aclose(_GOING_AWAY if stopped else _INTERNAL if failed else _NORMAL)
                    # The reader may be about to tell the client of a protocol error; cancelling it now would leave that unsaid.
                    await stream.aclose()
            nursery.cancel_scope.cancel()
    except* LocalProtocolError:
        # Once we have said that we close, the library's reader fails on the first ping that it would answer. All is said by then.
        pass
    if stream is not None and stream.answered.is_set():
        return None
    return unavailable("the server is stopping") if stopped else internal()


async def _expect_answer(stream: FrameStream, living: trio.CancelScope, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await stream.answered.wait()
    if not stream.answered.is_set():
        log.error("websocket handler failed: no answer to the handshake in %s s", seconds)
        living.cancel()


def _handshake(head: Head) -> bytes:
    """The request's head once more, as the library wants it: one of each field that it reads, nothing that it can't decode."""
    target = head.raw_path + (b"?" + head.query if head.query else b"")
    lines = [b"GET %s HTTP/1.1" % target, b"Host: " + head.host, b"Upgrade: websocket", b"Connection: Upgrade"]
    # Extensions are left out: none is ever negotiated, and their list is one more text that the library would decode.
    lines += [name + b": " + value for name, value in head.headers if name not in _REBUILT]
    return b"\r\n".join(lines) + b"\r\n\r\n"
