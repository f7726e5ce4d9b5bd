"""A front on loopback for one test, with applications that echo. Not here: any judgement, the client (raw_client)."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
import trio_websocket
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.limits import Limits
from callboard.actors.edges.listeners import Endpoint, open_listeners
from callboard.actors.edges.server import Server
from callboard.actors.edges.upgrade import OnWebsocket
from callboard.tests.flows.raw_client import Answer, Client

DEADLINE = 20.0


@attrs.frozen
class Spawn:
    """Children in a plain nursery: one exception out of a connection fails the test."""

    nursery: trio.Nursery

    def start(
        self, name: str, fn: Callable[..., Awaitable[object]], /, *args: Any, scope: trio.CancelScope | None = None
    ) -> None:
        self.nursery.start_soon(partial(fn, *args), name=name)


@attrs.define
class Front:
    """A front that serves; `stopped` is set once `serve` has returned."""

    server: Server
    endpoint: Endpoint
    stop: trio.Event
    scope: trio.CancelScope
    stopped: trio.Event

    @property
    def url(self) -> str:
        return self.endpoint.url

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        sock = trio.socket.socket(trio.socket.AF_INET6 if ":" in self.endpoint.host else trio.socket.AF_INET)
        if receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect((self.endpoint.host, self.endpoint.port))
        except OSError:
            sock.close()
            raise
        return Client(trio.SocketStream(sock))

    async def ask(self, data: bytes) -> Answer:
        """One request on a connection of its own."""
        async with await self.connect() as client:
            await client.send(data)
            return await client.answer()


async def echo(request: Request) -> Response:
    return JSONResponse(
        {"method": request.method, "path": request.url.path, "body": (await request.body()).decode(errors="replace")}
    )


def echo_app() -> Starlette:
    methods = ["GET", "POST", "PUT", "OPTIONS"]
    return Starlette(routes=[Route("/echo", echo, methods=methods), Route("/{rest:path}", echo, methods=methods)])


async def echo_websocket(request: trio_websocket.WebSocketRequest, stream: FrameStream) -> None:
    websocket = await request.accept()
    while True:
        await websocket.send_message(await websocket.get_message())


@asynccontextmanager
async def serving(
    app: ASGIApp | None = None,
    on_websocket: OnWebsocket = echo_websocket,
    *,
    limits: Limits | None = None,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    state: dict[str, Any] | None = None,
    allowed_hosts: set[str] | None = None,
) -> AsyncIterator[Front]:
    """A front until the block ends; then it is stopped, and nothing may be left of it."""
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as connections, trio.open_nursery() as nursery:
            server = Server(
                app or echo_app(),
                on_websocket,
                spawn=Spawn(connections),
                limits=limits or Limits(grace_seconds=0.2, linger_seconds=0.2, close_seconds=0.2),
                tls=tls,
                state=state,
                allowed_hosts=allowed_hosts,
            )
            listeners = await open_listeners(host, 0)
            stop, stopped, scope = trio.Event(), trio.Event(), trio.CancelScope()

            async def run(task_status: trio.TaskStatus[list[Endpoint]]) -> None:
                with scope:
                    await server.serve(listeners, stop=stop, task_status=task_status)
                stopped.set()

            endpoints = await nursery.start(run)
            front = Front(server, endpoints[0], stop, scope, stopped)
            yield front
            stop.set()
            await stopped.wait()
            assert server.statistics().connections == 0
            assert server.statistics().websockets == 0


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
