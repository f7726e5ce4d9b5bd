"""What every route, stream and websocket of one front works with.

Lives here: the shared parts and their pace, one request as a route sees it. Not here: routes; who is asking (auth).

Invariant: nothing of a request is used before it was checked here: unknown fields and parameters are refused, with their path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import attrs
import trio
from starlette.requests import Request

from ...storage.model.addresses import Scope
from ...storage.model.errors import InvalidField
from ...storage.model.ids import check_message_id
from ...storage.model.limits import PAGE_LIMIT
from ...storage.wire import parse_object, structure
from ..desk import Desk
from ..ports import Operations, TreeView
from .auth import Auth, Principal
from .errors import WrongContentType
from .fields import one_field

T = TypeVar("T")
CURSOR_MOST: Final = 2**63 - 1
KEY: Final = "Idempotency-Key"


@attrs.frozen(kw_only=True)
class Pace:
    """How often and how long the edges wait, in seconds."""

    beat: float = 15.0
    """Between two heartbeats of a quiet event stream (EVT-4)."""
    ping: float = 20.0
    """Between two pings of a websocket, and for the answer to one."""
    slow: float = 20.0
    """For one write of events to a websocket, below the front's own limit, so that there is a chance to say why it ends."""
    close: float = 5.0
    """For the closing handshake of a client that was too slow or too quiet."""
    health: float = 2.0
    """For the store's answer to a health check."""
    recheck: float = 10.0
    """Between two looks at whether an open stream's credential is still good (AUTH-3)."""


@attrs.frozen(kw_only=True)
class Edge:
    """One front's view of the runtime. `hosts` are configured host names in lower case; `taking` says whether turns are still started."""

    desk: Desk
    tree: TreeView
    auth: Auth
    hosts: frozenset[str] = frozenset()
    taking: Callable[[], bool] = lambda: True
    operations: Operations | None = None
    pace: Pace = attrs.field(factory=Pace)


@attrs.frozen
class Ask:
    """One request that may be answered: who asks, and the parts of it after they were checked."""

    request: Request
    edge: Edge
    visitor: Principal | None
    """None where no credential is needed."""

    @property
    def principal(self) -> Principal:
        """Who asks, at an address that is not public."""
        assert self.visitor is not None
        return self.visitor

    @property
    def desk(self) -> Desk:
        return self.edge.desk

    @property
    def scope(self) -> Scope:
        return self.principal.scope

    @property
    def id(self) -> str:
        """The id in the address."""
        return self.request.path_params["id"]

    @property
    def stopping(self) -> trio.Event:
        """Set when the front is asked to stop."""
        return self.request.state.stopping

    @property
    def key(self) -> str | None:
        """The Idempotency-Key. Raises `InvalidField`."""
        key = one_field(self.request.scope["headers"], KEY.lower().encode())
        return None if key is None else check_message_id(key, KEY)

    def check_key(self) -> None:
        """Accept an Idempotency-Key where a repeat does no harm without it. Raises `InvalidField`."""
        _ = self.key

    @property
    def refused(self) -> Callable[[], Awaitable[None]] | None:
        """Returns once the credential is no longer good, for what stays open; None: it can't become bad."""
        if self.principal.credential is None:
            return None
        return partial(self.edge.auth.until_refused, self.principal, self.edge.pace.recheck)

    def query(self, *known: str) -> dict[str, str]:
        """The query's parameters. Raises `InvalidField` for one that is not known, or that is there twice."""
        found: dict[str, str] = {}
        for name, value in self.request.query_params.multi_items():
            if name not in known:
                raise InvalidField("is not a parameter of this address", path=name)
            if name in found:
                raise InvalidField("may be given once", path=name)
            found[name] = value
        return found

    async def body(self, kind: type[T]) -> T:
        """The body as a value. Raises `WrongContentType`, `BadJson`, `InvalidField`."""
        self._check_type()
        return structure(parse_object(await self.request.body()), kind)

    async def body_if_any(self, kind: type[T]) -> T:
        """The same, where an empty body means that all fields have their defaults."""
        raw = await self.request.body()
        if not raw:
            return kind()
        self._check_type()
        return structure(parse_object(raw), kind)

    def _check_type(self) -> None:
        given = one_field(self.request.scope["headers"], b"content-type") or ""
        name, *parameters = (part.strip().lower() for part in given.split(";"))
        charset = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset=")]
        if name != "application/json" or any(value != "utf-8" for value in charset):
            raise WrongContentType("the body must be application/json in UTF-8", path="Content-Type")


def number(text: str | None, path: str) -> int:
    """A cursor: 0 if there is none. Raises `InvalidField` for what is no number from 0 to 2^63 - 1."""
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > CURSOR_MOST:
        raise InvalidField("must be a whole number from 0", path=path)
    return int(text)


def limit(text: str | None, default: int) -> int:
    """The size of a page. Raises `InvalidField`."""
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= PAGE_LIMIT:
        raise InvalidField(f"must be 1 to {PAGE_LIMIT}", path="limit")
    return int(text)
