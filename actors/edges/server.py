"""The front door: one port for HTTP/1.1 and websockets, on h11 and Trio.

Lives here: accepting, counting and stopping connections. Not here: what a connection does (connection), opening sockets (listeners), who
may do what (the application).

Invariant: the server starts no task for a client itself; each connection is a child that `Spawn` starts and nobody restarts. Every accepted
socket is in `_connections` until it is closed, so a stop misses none, and a stop ends within the grace whatever the clients do.

`Server(app, on_websocket, spawn=…)`, then `await nursery.start(partial(server.serve, await open_listeners(host, port), stop=event))`.
"""

from __future__ import annotations

import errno
import logging
import math
import ssl
from collections.abc import Collection
from typing import Any

import attrs
import trio
from starlette.types import ASGIApp

from ..ports import Spawn
from .connection import Connection
from .faults import log_fault
from .limits import Limits
from .listeners import Endpoint, close_listeners, endpoint
from .upgrade import OnWebsocket

log = logging.getLogger(__name__)

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_SECONDS = 0.1
"""Between two tries of an accept that the system can't afford."""
_COMPLAINT_SECONDS = 60.0
"""Between two lines about it: ten in a second would fill the disk that the log is on."""
_LAST_SECONDS = 1.0
"""For children to end once they are cancelled; their sockets are closed under them after that."""


@attrs.define
class Counts:
    """What has happened since the start (`accepted`, `refused`, `requests`, `failures`) and what is now (`connections`, `websockets`)."""

    accepted: int = 0
    refused: int = 0
    requests: int = 0
    failures: int = 0
    connections: int = 0
    websockets: int = 0


class Server:
    """One HTTP front. `app` gets HTTP scopes only (no lifespan); `state` is copied into each scope."""

    def __init__(
        self,
        app: ASGIApp,
        on_websocket: OnWebsocket,
        *,
        spawn: Spawn,
        limits: Limits | None = None,
        state: dict[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
        allowed_hosts: Collection[str] | None = None,
    ) -> None:
        """`allowed_hosts` are the host names that are answered for, without port; None: all."""
        self.app = app
        self.on_websocket = on_websocket
        self.limits = limits or Limits()
        self.state = state if state is not None else {}
        self.tls = tls
        self.allowed_hosts = (
            None if allowed_hosts is None else frozenset(host.lower().strip("[]") for host in allowed_hosts)
        )
        self.stopping = False
        self.counts = Counts()
        self._spawn = spawn
        self._connections: set[Connection] = set()
        self._emptied = trio.Event()
        self._silent_until = -math.inf

    def statistics(self) -> Counts:
        """A copy of the counts, for metrics."""
        return attrs.evolve(self.counts, connections=len(self._connections))

    async def serve(
        self,
        listeners: list[trio.SocketListener],
        *,
        stop: trio.Event,
        task_status: trio.TaskStatus[list[Endpoint]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve on `listeners` (closed at the end) until `stop`; reports the addresses as soon as it accepts.

        On `stop`: accepts no more, closes idle connections, tells websockets 1001, and gives requests in flight the grace. Cancelling does
        without the grace. Either way all connections have ended on return.
        """
        self.stopping = False
        self._emptied = trio.Event()
        try:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(self._accept, listener)
                task_status.started([endpoint(listener, tls=self.tls is not None) for listener in listeners])
                await stop.wait()
                accepting.cancel_scope.cancel()
            close_listeners(listeners)
            self._begin_stop()
            with trio.move_on_after(self.limits.grace_seconds):
                await self._emptied.wait()
        finally:
            close_listeners(listeners)
            await self._end_connections()

    def forget(self, connection: Connection) -> None:
        """A connection's child has ended."""
        self._connections.discard(connection)
        if self.stopping and not self._connections:
            self._emptied.set()

    async def _accept(self, listener: trio.SocketListener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                self._complain(error)
                await trio.sleep(_RETRY_SECONDS)
            else:
                self._admit(stream)

    def _complain(self, error: OSError) -> None:
        if trio.current_time() >= self._silent_until:
            self._silent_until = trio.current_time() + _COMPLAINT_SECONDS
            log.error("can't accept connections, and goes on trying: %s", error.strerror)

    def _admit(self, stream: trio.SocketStream) -> None:
        self.counts.accepted += 1
        over = len(self._connections) - self.limits.connections
        if over >= 0:
            self.counts.refused += 1
        if over >= self.limits.refusals:
            stream.socket.close()
            return
        connection = Connection(self, stream, refused=over >= 0)
        self._connections.add(connection)
        try:
            self._spawn.start(f"connection-{self.counts.accepted}", connection.run)
        except Exception as fault:
            # No room for children is no reason to stop serving those that run.
            log_fault(log, "starting a connection", fault)
            connection.drop()
            self.forget(connection)

    def _begin_stop(self) -> None:
        self.stopping = True
        if not self._connections:
            self._emptied.set()
        for connection in list(self._connections):
            connection.begin_stop()

    async def _end_connections(self) -> None:
        self.stopping = True
        for connection in list(self._connections):
            connection.cut()
        if self._connections:
            # Children run elsewhere: without this wait a server that was cancelled would be gone before its clients are.
            with trio.move_on_after(_LAST_SECONDS, shield=True):
                await self._emptied.wait()
        for connection in list(self._connections):
            connection.drop()
            self.forget(connection)
