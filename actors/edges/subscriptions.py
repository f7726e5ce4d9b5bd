"""One subscription of one websocket: pushed live, or reading rows while its client can't take what is pushed.

Lives here: going from one to the other and back, frames encoded once for all. Not here: tails (their own module), commands (live).

Invariant: an event above the cursor is sent once and in order. The cursor moves only over events that the stream has taken whole, and at
any moment either the tail or one task of this subscription moves it, never both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator

import trio

from ...storage.model.addresses import Scope
from ...storage.model.errors import CallboardError, UnknownTarget
from ...storage.model.events import Event, EventPage
from ..desk import Desk
from ..tail import gap
from .frames import FrameStream, encode_text_frame
from .views import dump, event_frame, resync_frame

WRITE_BYTES = 64 * 1024
"""At most in one write, or one larger frame: the time limit of a write measures a client, not the length of a log."""


class Batches:
    """The frames of the batch that a tail has just read: made for its first subscriber, used by all the others at once."""

    def __init__(self) -> None:
        self.events: tuple[Event, ...] = ()
        self.first = self.last = 0
        """Ids of the first and the last of them."""
        self.whole = b""
        """All their frames, for who has had nothing of them: nearly everybody."""
        self._frames: list[bytes] = []

    def take(self, events: tuple[Event, ...]) -> None:
        """The next batch: one event at least."""
        self.events = events
        self.first, self.last = events[0].id, events[-1].id
        self._frames = [encode(event) for event in events]
        self.whole = b"".join(self._frames)

    def above(self, cursor: int) -> bytes:
        """The frames of the events above `cursor`."""
        return b"".join(frame for event, frame in zip(self.events, self._frames, strict=True) if event.id > cursor)


class Subscription:
    """A sink of a tail. `deliver` sends to the client and returns when it is written; `fail` is told why nothing more will come."""

    def __init__(
        self,
        desk: Desk,
        scope: Scope,
        session: str,
        cursor: int,
        batches: Batches,
        stream: FrameStream,
        nursery: trio.Nursery,
        deliver: Callable[[bytes], Awaitable[None]],
        fail: Callable[[Subscription, CallboardError], Awaitable[None]],
    ) -> None:
        self.session = session
        self._desk = desk
        self._scope = scope
        self._cursor = cursor
        self._batches = batches
        self._stream = stream
        self._nursery = nursery
        self._deliver = deliver
        self._fail = fail
        self._left = False
        self._reading = trio.CancelScope()

    def start(self, page: EventPage) -> None:
        """Begin with the page that was read at the cursor."""
        self._nursery.start_soon(self._catch_up, page)

    def push(self, events: tuple[Event, ...]) -> bool:
        if self._left:
            return False
        if events:
            batch, cursor = self._batches, self._cursor
            if events is not batch.events:
                batch.take(events)
            frames = batch.whole if batch.first > cursor else batch.above(cursor)
            if not frames or self._stream.try_send(frames):
                if batch.last > cursor:
                    self._cursor = batch.last
                return True
        self._nursery.start_soon(self._catch_up, None)
        return False

    def leave(self) -> None:
        """Send nothing more but what is under way."""
        self._left = True
        self._reading.cancel()
        self._desk.tails.leave(self._scope, self.session, self)

    async def _catch_up(self, page: EventPage | None) -> None:
        with trio.CancelScope() as self._reading:
            if self._left:
                return
            try:
                await self._read_to_the_end(page)
            except CallboardError as error:
                await self._fail(self, error)

    async def _read_to_the_end(self, page: EventPage | None) -> None:
        first = page is not None
        while True:
            if page is None:
                page = await self._desk.store.reads.events(self._scope, self.session, after=self._cursor)
            resync = gap(self.session, self._cursor, page, first=first)
            if resync is not None:
                await self._deliver(encode_text_frame(dump(resync_frame(resync))))
                self._cursor, page, first = resync.after, None, False
                continue
            for frames, newest in _writes(page.events):
                await self._deliver(frames)
                self._cursor = newest
            self._cursor = page.reached(self._cursor)
            if page.last:
                raise UnknownTarget("the session was deleted", path="session")
            if not page.more and self._desk.tails.join(self._scope, self.session, self, self._cursor):
                return
            page, first = None, False


def encode(event: Event) -> bytes:
    """The whole websocket frame of an event."""
    return encode_text_frame(dump(event_frame(event)))


def _writes(events: Iterable[Event]) -> Iterator[tuple[bytes, int]]:
    """Frames put together up to `WRITE_BYTES`, each write with the id of its last event."""
    frames: list[bytes] = []
    size = newest = 0
    for event in events:
        frame = encode(event)
        if frames and size + len(frame) > WRITE_BYTES:
            yield b"".join(frames), newest
            frames, size = [], 0
        frames.append(frame)
        size += len(frame)
        newest = event.id
    if frames:
        yield b"".join(frames), newest
