"""What a front asks over HTTP: which session a path leads to, what became of a message, what was said last, where this client went last.

Not here: anything live (`live`). Invariant: a session that these answers name is one that the asking principal may open at this moment.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import attrs
import httpx

from ...storage.model.addresses import clean_label
from ...storage.model.errors import (
    CallboardError,
    InvalidField,
    NotFound,
    Rejected,
    Unavailable,
    UnknownTarget,
    error_named,
)
from ...storage.wire import parse_object

SECONDS: Final = 30.0
RECENT: Final = 99
"""Entries among which a result is looked for that is in no log any more."""
Entries = list[dict[str, Any]]


@attrs.frozen
class Place:
    """A session as a front knows it: its id, its path (None for one that has none), its agent, the session that opened it."""

    session: str
    path: str | None
    agent: str
    title: str = ""
    parent: str | None = None

    @property
    def name(self) -> str:
        """What people call it, on one printable line: a title is whatever its author likes, and this may be spoken."""
        return self.path or clean_label(self.title) or self.session

    @property
    def above(self) -> list[str]:
        """Where "up" may lead, the nearest first: the levels above a path, or the parent of a session that has none."""
        if self.path is None:
            return [self.parent] if self.parent else ["/"]
        if self.path == "/":
            return []
        segments = self.path.split("/")[1:-1]
        return ["/" + "/".join(segments[:depth]) for depth in range(len(segments), 0, -1)] + ["/"]


class Rest:
    """A server's answers. All calls raise its refusals, and `Unavailable` if it does not answer."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def place(self, where: str) -> Place:
        """The session at a path, also one that it had, or of an id. Raises `UnknownTarget`, `InvalidField`."""
        if not where.startswith("/"):
            return _place(await self._get(f"/v1/sessions/{quote(where, safe='')}"))
        found: list[dict[str, Any]] = (await self._get("/v1/sessions", {"path": where}))["sessions"]
        if not found:
            raise UnknownTarget("no session has this path", path="path")
        return _place(found[0])

    async def message(self, message: str) -> dict[str, Any]:
        """A message with its stage."""
        return await self._get(f"/v1/messages/{quote(message, safe='')}")

    async def frontiers(self, client: str) -> dict[str, int] | None:
        """What the server noted when this client went somewhere last; None if it did not, or long ago."""
        try:
            return (await self._get(f"/v1/clients/{quote(client, safe='')}"))["frontiers"]
        except NotFound:
            return None

    async def newest(self, session: str) -> Entries:
        """The newest entries of a transcript, at most 99, in order. Raises `UnknownTarget`."""

        async def read(after: int, limit: int) -> Entries:
            query = {"after": str(after), "limit": str(limit)}
            return (await self._get(f"/v1/sessions/{quote(session, safe='')}/transcript", query))["entries"]

        return await newest_entries(read, RECENT)

    async def _get(self, address: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            try:
                answer = await self._client.get(address, params=query)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                # A connection that was kept may have died without a word; asking twice changes nothing.
                answer = await self._client.get(address, params=query)
        except httpx.HTTPError as error:
            raise Unavailable(f"the server did not answer: {error or type(error).__name__}") from error
        if answer.is_success:
            return parse_object(answer.content)
        raise _refusal(answer)


async def newest_entries(read: Callable[[int, int], Awaitable[Entries]], count: int) -> Entries:
    """The last `count` entries, at most 99, of a transcript of which `read(after, limit)` gives those above a number.

    Numbers are dense from 1, so the end is found by doubling and halving.
    """
    low, high = 0, 256
    while await read(high, 1):
        low, high = high, 2 * high
    while high - low > count:
        middle = (low + high) // 2
        if await read(middle, 1):
            low = middle
        else:
            high = middle
    return (await read(max(0, low - count), 2 * count + 1))[-count:]


@asynccontextmanager
async def open_rest(url: str, token: str, tls: ssl.SSLContext | None) -> AsyncIterator[Rest]:
    """A client of the server at `url`; it asks nothing yet. Raises `InvalidField`."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise InvalidField("must be http://HOST:PORT or https://HOST:PORT", path="url") from None
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, verify=tls or True, timeout=SECONDS) as client:
        yield Rest(client)


def _refusal(answer: httpx.Response) -> CallboardError:
    try:
        error = parse_object(answer.content)["error"]
        return error_named(error["code"], error["message"], error.get("path"))
    except (CallboardError, KeyError, TypeError, AttributeError):
        # Not the server's own words: something between answers for it.
        kind = Unavailable if answer.status_code >= 500 else Rejected
        return kind(f"the server answered {answer.status_code}")


def _place(view: dict[str, Any]) -> Place:
    return Place(view["id"], view["path"], view["agent"], view["title"], view["parent"])
