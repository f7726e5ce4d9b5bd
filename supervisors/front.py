"""The HTTP front as part of the tree: connections, then the server that starts them.

Lives here: wiring edges to a runtime, listening again on the same port after a restart. Not here: the edges themselves, settings and files.

Invariant: connections stop after the server that accepts them, and before the store that they read.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from ..actors.edges.app import make_app
from ..actors.edges.auth import Auth, Principal
from ..actors.edges.edge import Edge, Pace
from ..actors.edges.limits import Limits
from ..actors.edges.listeners import Endpoint, open_listeners
from ..actors.edges.live import Live
from ..actors.edges.metered import Metered
from ..actors.edges.server import Counts, Server
from ..storage.model.access import Purpose, digest
from ..storage.store import Store
from .attendant import Attendant
from .runtime import OPERATOR, Runtime
from .tree import Child, ChildSpec, DynamicSupervisor

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 (compared with, not bound)


@attrs.frozen(kw_only=True)
class FrontSettings:
    """What a front needs to be told. `port` 0: the system chooses. `allowed_hosts`: names besides those of the loopback and `host`."""

    token: str = attrs.field(repr=False)
    """The operator's bearer token."""
    host: str = "127.0.0.1"
    port: int = 8420
    allowed_hosts: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    limits: Limits = attrs.field(factory=Limits)
    pace: Pace = attrs.field(factory=Pace)
    in_force: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """All settings of the program, without secrets, for the doctor's report."""


class Front:
    """`open_runtime(…, extra=front)` serves HTTP; inside its block `url` says where. One front belongs to one runtime.

    An address that can't be listened on raises `RuntimeFailed` there, with `AddressInUse` or `CannotListen` in its chain of causes.
    """

    def __init__(self, settings: FrontSettings, listeners: Iterable[trio.SocketListener] = ()) -> None:
        """`listeners` are sockets opened already, for the first start; without them it opens its own when it starts."""
        self._settings = settings
        self._listeners = [*listeners]
        self._port = settings.port
        self._endpoints: list[Endpoint] = []
        self._server: Server | None = None
        self._auth: Auth | None = None
        limits = settings.limits
        self.connections = DynamicSupervisor(
            "connections",
            max_children=limits.connections + limits.refusals,
            grace_seconds=limits.close_seconds,
        )
        """A child for each open connection: `connection-1`, `connection-2`, … in the order they were accepted."""
        self.listening = trio.Event()
        """Set once `url` is known."""

    def __call__(self, runtime: Runtime) -> list[ChildSpec]:
        """The children of a runtime's tree that are this front."""
        serve = partial(self._serve, runtime)
        # The server gives requests in flight a grace of its own; what is more is for the sockets that it cuts then.
        grace = self._settings.limits.grace_seconds + 2.0
        return [self.connections.spec(), ChildSpec("front", serve, grace_seconds=grace, cooperative=True)]

    @property
    def counts(self) -> Counts | None:
        """What the server counts; None before it runs. A restart begins anew."""
        return None if self._server is None else self._server.statistics()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All addresses that are listened on; empty before `listening`."""
        return tuple(self._endpoints)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:8420`: the first address, as a client of this machine may use it. Raises `RuntimeError` before `listening`."""
        if not self._endpoints:
            raise RuntimeError("the front does not listen yet")
        first = self._endpoints[0]
        if first.host not in EVERYWHERE:
            return first.url
        return attrs.evolve(first, host="127.0.0.1" if first.host == EVERYWHERE[0] else "::1").url

    async def console_link(self) -> str:
        """A link that opens the console for the operator, once, within ten minutes. Raises `RuntimeError` before `listening`."""
        url = self.url
        assert self._auth is not None
        ticket = await self._auth.issue(self._auth.operator, Purpose.CONSOLE)
        return f"{url}/?ticket={ticket.secret}"

    async def _serve(
        self,
        runtime: Runtime,
        *,
        child: Child,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        settings = self._settings
        opened, self._listeners = self._listeners, []
        listeners = opened or await open_listeners(settings.host, self._port)
        name = _cookie_name(runtime.store, listeners[0].socket.getsockname()[1])
        names = frozenset(name.lower().strip("[]") for name in settings.allowed_hosts)
        own = () if settings.host in EVERYWHERE else (settings.host,)
        principal = Principal(OPERATOR, runtime.scope)
        self._auth = auth = Auth(settings.token, principal, runtime.store, cookie_name=name)
        edge = Edge(
            desk=runtime.desk,
            tree=runtime,
            auth=auth,
            hosts=names,
            taking=lambda: runtime.dispatcher.taking,
            operations=Attendant(runtime, self, settings.in_force),
            pace=settings.pace,
        )
        self._server = server = Server(
            Metered(make_app(edge), runtime.desk.meter),
            Live(edge),
            spawn=self.connections,
            limits=settings.limits,
            state={"stopping": child.stopping},
            tls=settings.tls,
            allowed_hosts={*LOOPBACK, *own, *names},
        )
        await server.serve(listeners, stop=child.stopping, task_status=_Listening(self, task_status))

    def listens(self, endpoints: list[Endpoint]) -> None:
        """The server accepts connections on `endpoints`; after a restart it must be the same port again."""
        self._endpoints = endpoints
        self._port = endpoints[0].port
        self.listening.set()


def _cookie_name(store: Store, port: int) -> str:
    """A browser keeps one set of cookies for all ports of a host, and two servers on it must not take each other's.

    But what serves one store behind a proxy is one server to the browser: what one process has given it, every other one takes.
    """
    return f"callboard-{digest(store.name).hex()[:12] if store.shared else port}"


@attrs.frozen
class _Listening(trio.TaskStatus[list[Endpoint]]):
    """Notes the addresses before the tree counts the child as started."""

    front: Front
    outer: trio.TaskStatus[None]

    def started(self, value: list[Endpoint] | None = None) -> None:
        assert value is not None
        self.front.listens(value)
        self.outer.started()
