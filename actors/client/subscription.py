"""One followed session as its reader sees it: events in order, each once, whatever happens to the connection.

Lives here: the cursor and a bounded window of events not yet read. Not here: the connection (`link`), resuming (`live`).

Invariant: the next event given out is the one after `cursor`, or a `resync` that moves it. A reader that is too slow costs a window of
memory: what comes past it is dropped, and asked for again by cursor when the window is empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from ...storage.model.errors import CallboardError

WINDOW: Final = 1_024


@attrs.frozen
class LiveEvent:
    """One event of a session; kind `resync` {after, oldest}: what lies up to `after` can't be had any more, or never was."""

    session: str
    id: int
    kind: str
    data: dict[str, Any]


class Subscription:
    """An endless async iterator of `LiveEvent`. It ends by an error: the session is gone, or the client is closed or refused.

    `cursor` is the id to go on from in a later run. `newest` is the newest event at the last (re)connection, None before it.
    """

    def __init__(self, session: str, after: int, ask: Callable[[Subscription, str], None]) -> None:
        self.session = session
        self.cursor = after
        self.newest: int | None = None
        self._received = after
        self._ask = ask
        self._queue: deque[LiveEvent] = deque()
        self._wake = trio.Event()
        self._active = False
        self._full = False
        self._error: CallboardError | None = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> LiveEvent:
        await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._full:
                self._full = False
                self._ask(self, "subscribe")
            await self._woken()
        event = self._queue.popleft()
        self.cursor = event.id
        return event

    async def started(self) -> int:
        """Wait until the server has confirmed, and return the session's newest event at that moment. Raises as iterating does."""
        while self.newest is None:
            if self._error is not None:
                raise self._error
            await self._woken()
        return self.newest

    def leave(self) -> None:
        """Follow no longer; the session may then be followed anew, from `cursor` for instance."""
        self._ask(self, "leave")

    # -- for the client ------------------------------------------------------------------------------------------------

    @property
    def resume(self) -> dict[str, Any] | None:
        """The frame that follows on from what was received; None while the window is full."""
        if self._full or self._error is not None:
            return None
        return {"type": "subscribe", "session": self.session, "after": self._received}

    def confirmed(self, newest: int) -> None:
        """The server sends from here on."""
        self._active, self.newest = True, newest
        self._wake.set()

    def lost(self) -> None:
        """The connection is gone; nothing comes before the next confirmation."""
        self._active = False

    def fail(self, error: CallboardError) -> None:
        """Nothing more will come, ever."""
        self._error, self._active = error, False
        self._wake.set()

    def take(self, event: LiveEvent) -> None:
        """Something came from the server."""
        if not self._active or (event.kind != "resync" and event.id <= self._received):
            return
        if len(self._queue) >= WINDOW:
            self._active, self._full = False, True
            self._ask(self, "unsubscribe")
            return
        self._received = event.id
        self._queue.append(event)
        self._wake.set()

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake = trio.Event()
