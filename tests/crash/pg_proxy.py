"""A proxy in front of a PostgreSQL server that cuts a connection at a message of its protocol, as a network may.

Here: the proxy alone. Invariant: whole messages pass it, one after the other, until the one at which it was told to cut; a cut resets the
client's end, and what has passed before it has arrived.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import attrs
import trio

Towards = Literal["server", "client"]
CHUNK = 65_536
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: close with RST."""


@attrs.define
class Proxy:
    """`port` on 127.0.0.1. At most one cut is planned at a time; whether it was made is `cut`."""

    port: int
    _socket: Path
    cut: bool = attrs.field(default=False, init=False)
    _planned: tuple[Towards, bool] | None = attrs.field(default=None, init=False)
    _left: int = attrs.field(default=0, init=False)

    def plan(self, towards: Towards, messages: int, *, within: bool) -> None:
        """Cut after so many more messages in one direction; `within`: when half of the next one has passed too."""
        self.cut = False
        self._planned, self._left = (towards, within), messages

    def clear(self) -> None:
        """Plan nothing."""
        self._planned = None

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass on what a client and the server say, until one of them has gone or it is cut."""
        async with client, await trio.open_unix_socket(self._socket) as server, trio.open_nursery() as nursery:

            async def pump(source: trio.SocketStream, sink: trio.SocketStream, towards: Towards) -> None:
                with suppress(trio.BrokenResourceError):
                    await self._pump(source, sink, towards)
                if self.cut:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                nursery.cancel_scope.cancel()

            nursery.start_soon(pump, client, server, "server")
            nursery.start_soon(pump, server, client, "client")

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, towards: Towards) -> None:
        # The first message of a client has no type in front of its length.
        waiting, before = b"", 0 if towards == "server" else 1
        while chunk := await source.receive_some(CHUNK):
            waiting += chunk
            while len(waiting) >= before + 4:
                size = before + int.from_bytes(waiting[before : before + 4], "big")
                if len(waiting) < size:
                    break
                message, waiting, before = waiting[:size], waiting[size:], 1
                if self._planned is not None and self._planned[0] == towards:
                    if not self._left:
                        await sink.send_all(message[: size // 2] if self._planned[1] else b"")
                        self._planned, self.cut = None, True
                        return
                    self._left -= 1
                await sink.send_all(message)


@asynccontextmanager
async def proxied(server: Path) -> AsyncIterator[Proxy]:
    """A proxy to the server whose socket is `server`."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        proxy = Proxy(listener.socket.getsockname()[1], server)
        nursery.start_soon(trio.serve_listeners, proxy.serve, [listener])
        yield proxy
        nursery.cancel_scope.cancel()
