"""A backup as a response: its copy is made when the response begins, and read as the client takes it.

Not here: making it (storage), who may ask (access). Invariant: whatever ends the response ends the copy: the client's leaving, a credential
that is no longer good, the front's stop. The length is announced, so that half a backup can't pass for a whole one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime

import trio
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...storage.model.errors import CallboardError, Unauthorized
from ...storage.store import Store


class CopyStream(Response):
    """All bytes of a backup of `store`. Raises what `Store.backup` raises, before anything is sent."""

    media_type = "application/vnd.sqlite3"

    def __init__(self, store: Store, refused: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        self._store = store
        self._refused = refused
        self._begun = False
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure: CallboardError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            if self._refused is not None:
                nursery.start_soon(self._until_refused, self._refused, nursery.cancel_scope)
            try:
                await self._send(send)
            except CallboardError as error:
                failure = error
            nursery.cancel_scope.cancel()
        if self._over:
            failure = Unauthorized("the credential is not valid any more")
        if failure is not None:
            # Once a part is sent, only a cut tells the client that it is not the whole.
            raise ClientDisconnect if self._begun else failure

    async def _send(self, send: Send) -> None:
        async with self._store.backup() as copy, aclosing(copy.chunks()) as chunks:
            self.headers["Content-Length"] = str(copy.size)
            name = f"callboard-{datetime.fromtimestamp(copy.made_at, UTC):%Y%m%dT%H%M%SZ}.db"
            self.headers["Content-Disposition"] = f'attachment; filename="{name}"'
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_refused(self, refused: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        await refused()
        self._over = True
        scope.cancel()


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
