"""The bytes of one connection: plain or TLS, each send with a deadline.

Lives here: one accepted socket as HTTP and websocket use it. Not here: any protocol.

Invariant: after a send that was not completed the transport is closed or the caller knows exactly how much went out, so nobody ever writes
into the middle of somebody else's bytes.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from contextlib import suppress

import trio

RECEIVE_BYTES = 64 * 1024
SLICE_BYTES = 64 * 1024
"""One send at most, so that its deadline measures progress and a large response to a slow line is not cut."""

_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Seconds of silence before the first probe, seconds between probes, probes."""
_NO_WAY = -1
_ABORT = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class Transport:
    """One accepted connection; owns its socket. `client` and `server` are (host, port), None where the peer has gone already."""

    def __init__(self, stream: trio.SocketStream, *, send_seconds: float) -> None:
        self.socket = stream.socket
        self.tls = False
        self.closed = False
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = stream
        self._plain = stream
        self._send_seconds = send_seconds
        self._descriptor = self.socket.fileno() if os.name != "nt" else _NO_WAY
        """For writes without waiting, which a crowd is sent a token by: asking the socket for it each time would cost more than the rest."""
        with suppress(OSError):
            self._keep_alive()
            self.server = self.socket.getsockname()[:2]
            self.client = self.socket.getpeername()[:2]

    async def start_tls(self, context: ssl.SSLContext, seconds: float) -> bool:
        """Do the server's side of a TLS handshake within `seconds`; False: it failed, close the transport."""
        # HTTP frames its own messages, so a missing close_notify is not an error (most clients send none).
        stream = trio.SSLStream(self._plain, context, server_side=True, https_compatible=True)
        with trio.move_on_after(seconds):
            try:
                await stream.do_handshake()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            self._stream, self.tls = stream, True
            self._descriptor = _NO_WAY
        return self.tls

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """Some bytes; b"" when the client sends no more, was reset, or we have closed. Cancelling loses nothing."""
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()
            return b""

    def send_now(self, data: bytes) -> int:
        """Write what the kernel takes at once and return how many bytes that were; 0 also where there is no direct way (TLS)."""
        if self._descriptor == _NO_WAY:
            return 0
        try:
            # trio's socket has no non-blocking send of its own; the descriptor is in non-blocking mode.
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0

    async def send_some(self, data: memoryview) -> int:
        """Wait until some of `data` is written and return how much, at least 1 byte.

        Raises `BrokenResourceError` when the client is gone or takes nothing for the time limit, `ClosedResourceError` after `close`. A
        cancelled call has written nothing; under TLS, where that can't be known, it closes the transport.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise trio.ClosedResourceError("the connection is closed")
        piece = data[:SLICE_BYTES]
        try:
            with trio.fail_after(self._send_seconds):
                if not self.tls:
                    return await self.socket.send(piece)
                await self._stream.send_all(piece)
                return len(piece)
        except trio.TooSlowError:
            self.close()
            raise trio.BrokenResourceError("the client does not read") from None
        except OSError as error:
            self.close()
            raise trio.BrokenResourceError("the client is gone") from error
        except BaseException as error:
            if self.tls or not isinstance(error, trio.Cancelled):
                self.close()
            raise

    async def send_all(self, data: bytes) -> None:
        """Write all of `data`; errors as `send_some`. A call that is cancelled half-way closes the transport."""
        await trio.lowlevel.checkpoint_if_cancelled()
        sent = self.send_now(data)
        if sent == len(data):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        view = memoryview(data)
        try:
            while sent < len(data):
                sent += await self.send_some(view[sent:])
        except BaseException:
            if sent:
                self.close()
            raise

    def close(self) -> None:
        """Close at once; whoever waits on this transport is woken. Closing twice does no harm."""
        self.closed = True
        # First of all: once the socket is closed the system gives the number to another one.
        self._descriptor = _NO_WAY
        self.socket.close()

    def abort(self) -> None:
        """Close with a reset, where an orderly end would look like the end of a complete response."""
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.close()

    def _keep_alive(self) -> None:
        # A peer that vanished without a word is noticed in two minutes, not two hours, also where no protocol asks it for a sign of life.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if (option := getattr(socket, name, None)) is not None:
                self.socket.setsockopt(socket.IPPROTO_TCP, option, value)

    async def linger(self, seconds: float) -> None:
        """Say that nothing follows, let the client finish for at most `seconds`, close.

        A socket closed with bytes unread is reset by the kernel, and the reset overtakes our last words.
        """
        with trio.move_on_after(seconds), suppress(OSError, trio.ClosedResourceError):
            self.socket.shutdown(socket.SHUT_WR)
            while await self.socket.recv(RECEIVE_BYTES):
                pass
        self.close()
