"""Server-sent events: rows of a session as a stream that can be broken off and resumed at any event.

Lives here: pace, heartbeat, the end of a stream. Not here: where events come from (the desk), how one looks (views), who may read.

Invariant: an event is sent once, in the order of its id, after its row is committed; a slow reader costs a page and nobody else's time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from ...storage.model.addresses import Scope
from ...storage.model.errors import CallboardError
from ...storage.model.events import TERMINAL, Event
from ...storage.model.ids import message_of_turn
from ...storage.model.states import OPEN
from ..desk import Desk
from ..tail import Feed, Resync
from .edge import Pace
from .views import sse

_HELLO = b"retry: 1000\n"
_BEAT = b": beat\n"
"""No empty line after either: some clients make an event without data of it."""


class EventStream(Response):
    """The events of a session above `after`, then live; with `turn` only those of one turn, until its end.

    It also ends, in good order, when the front stops, when the session or the store is gone, and when `refused` returns, as the credential is
    no longer good: the client comes back with its cursor and is told by a status.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        desk: Desk,
        scope: Scope,
        session: str,
        after: int,
        stopping: trio.Event,
        pace: Pace,
        *,
        turn: str | None = None,
        refused: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._desk = desk
        self._scope = scope
        self._session = session
        self._after = after
        self._stopping = stopping
        self._pace = pace
        self._turn = turn
        self._refused = refused
        self._over = False
        self._until: int | None = None
        """Where a turn's events end, once that is known."""
        self._waiting = trio.CancelScope()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            nursery.start_soon(self._until_stop)
            if self._refused is not None:
                nursery.start_soon(self._until_refused, self._refused, nursery.cancel_scope)
            await self._pump(send)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        await _write(send, _HELLO)
        try:
            async with self._desk.follow(self._scope, self._session, after=self._after) as feed:
                await self._learn_end()
                while not self._ending and not self._at_end(feed):
                    items = await self._next(feed)
                    ours = [item for item in items if self._is_ours(item)]
                    if ours:
                        await _write(send, b"".join(map(sse, ours)))
                    elif not items and not self._ending:
                        await _write(send, _BEAT)
                    if self._turn is not None and any(item.kind in TERMINAL for item in ours):
                        return
                    if any(isinstance(item, Resync) or item.kind in TERMINAL for item in items):
                        await self._learn_end()
        except CallboardError:
            return

    async def _next(self, feed: Feed) -> Sequence[Event | Resync]:
        """The next items; none when it is time for a heartbeat, or to stop."""
        # Only the waiting is in this scope: a write that is cancelled half-way breaks the connection.
        with trio.move_on_after(self._pace.beat) as self._waiting:
            return await feed.some()
        return ()

    def _is_ours(self, item: Event | Resync) -> bool:
        return self._turn is None or isinstance(item, Resync) or item.turn == self._turn

    async def _learn_end(self) -> None:
        """Find out whether the turn is over without a terminal event to come: another turn took its message in, or its end was pruned."""
        if self._turn is None or self._until is not None:
            return
        message = await self._desk.receipt(self._scope, message_of_turn(self._turn))
        if message.status not in OPEN:
            self._until = (await self._desk.store.reads.session(self._scope, self._session)).newest_event

    def _at_end(self, feed: Feed) -> bool:
        return self._until is not None and feed.cursor >= self._until

    @property
    def _ending(self) -> bool:
        return self._over or self._stopping.is_set()

    async def _until_stop(self) -> None:
        await self._stopping.wait()
        self._waiting.cancel()

    async def _until_refused(self, refused: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        await refused()
        self._over = True
        self._waiting.cancel()
        # A reader that takes nothing must not keep the stream open either.
        await trio.sleep(self._pace.close)
        scope.cancel()


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
