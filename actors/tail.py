"""Live reading: one log tail per (process, session) feeds all its subscribers (EVT-2).

Rows first: a tail reads what is committed, once, and hands each batch to its sinks; nothing exists only in a tail. A subscriber catches
up from its own cursor by reading pages, joins the tail when it has reached it, and goes back to reading pages when it falls behind.
A tail sleeps until it is woken: by a hint, or, as hints may be lost, by the one look that is taken for all tails together (RT-1).

Invariants: a subscriber sees every event above its cursor once, in order, or one `Resync` in place of what is gone (EVT-3). While there
is a tail there is a look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from typing import Any, Protocol

import attrs
import trio

from ..storage.changes import Aspect
from ..storage.model.addresses import Scope, session_address
from ..storage.model.errors import CallboardError, Unavailable, UnknownTarget
from ..storage.model.events import Event, EventPage
from ..storage.model.limits import PAGE_LIMIT
from ..storage.store import Store
from .ports import Spawn

WINDOW = 1_024
"""Events that a follower may be behind before it reads rows again."""
LOOK_SECONDS = 1.0
"""Between two looks: the longest that a lost hint delays an event."""
PORTION = 64
"""Pushes in a row: between two portions everything else runs, so a crowd keeps nobody waiting, and what is committed meanwhile goes out
with the next page, in one write a follower."""
LOOK_TAILS = 1_000
"""How many tails one statement looks for: it holds a reading connection for about two milliseconds."""


@attrs.frozen
class Resync:
    """The cursor can't be served: go on from `after`; `oldest` is the oldest id that may still exist."""

    session: str
    after: int
    oldest: int
    kind: str = attrs.field(default="resync", init=False)

    @property
    def id(self) -> int:
        """The cursor to go on from, as an event's id is."""
        return self.after

    @property
    def data(self) -> dict[str, int]:
        """The same as JSON."""
        return {"after": self.after, "oldest": self.oldest}


class Sink(Protocol):
    """Where a tail pushes. Must not block or raise; False says that it can't keep up and has left."""

    def push(self, events: tuple[Event, ...]) -> bool: ...


class Tail:
    """The newest events of one session, read once for all who follow it in this process."""

    def __init__(self, store: Store, scope: Scope, session: str) -> None:
        self._store = store
        self._scope = scope
        self._session = session
        self._hint = trio.Event()
        self.sinks: set[Sink] = set()
        self.position = -1

    def wake(self, aspect: int) -> None:
        if aspect & Aspect.EVENTS:
            self._hint.set()

    async def run(self) -> None:
        """Read and push until the last sink has left."""
        with self._store.changes.watch(session_address(self._session), self.wake):
            while self.sinks:
                try:
                    await self._read()
                except CallboardError:
                    # Whoever follows reads rows itself and meets the same error, or goes on where the store is back.
                    self.drop_all()
                    return
                await self._hint.wait()
                self._hint = trio.Event()

    async def _read(self) -> None:
        more = True
        while more and self.sinks:
            page = await self._store.reads.events(self._scope, self._session, after=max(self.position, 0))
            more = page.more
            self.position = page.reached(self.position)
            if page.events:
                await self._push(page.events)
            if page.last:
                self.drop_all()

    async def _push(self, events: tuple[Event, ...]) -> None:
        # Who joins while this waits has read at least as far as the page does.
        followers = tuple(self.sinks)
        for start in range(0, len(followers), PORTION):
            if start:
                await trio.lowlevel.checkpoint()
            for sink in followers[start : start + PORTION]:
                if sink in self.sinks and not sink.push(events):
                    self.sinks.discard(sink)

    def drop_all(self) -> None:
        """Send every sink back to reading rows."""
        for sink in tuple(self.sinks):
            sink.push(())
        self.sinks.clear()


class Tails:
    """All tails of this process."""

    def __init__(self, store: Store, spawn: Spawn) -> None:
        self._store = store
        self._spawn = spawn
        self._tails: dict[tuple[Scope, str], Tail] = {}
        self._numbers = count(1)
        self._looking = False

    @property
    def followed(self) -> int:
        """How many sessions are followed live."""
        return len(self._tails)

    @property
    def followers(self) -> int:
        """How many follow them live; who still reads rows is not among them."""
        return sum(len(tail.sinks) for tail in self._tails.values())

    def join(self, scope: Scope, session: str, sink: Sink, cursor: int) -> bool:
        """Let `sink` have what comes after `cursor`; False if the tail is already past it: read on, then try again.

        Raises `Unavailable` if no more sessions can be followed in this process.
        """
        key = (scope, session)
        tail = self._tails.get(key)
        if not self._looking:
            self._start("look", self._look)
            self._looking = True
        if tail is None:
            tail = Tail(self._store, scope, session)
            tail.position = cursor
            tail.sinks.add(sink)
            self._start(f"tail:{session}", self._run, key, tail)
            # Once it is sure to run: others would wait for ever on one that does not. It begins at a later checkpoint.
            self._tails[key] = tail
            return True
        if tail.position > cursor:
            return False
        tail.sinks.add(sink)
        return True

    def leave(self, scope: Scope, session: str, sink: Sink) -> None:
        """Give `sink` nothing more."""
        tail = self._tails.get((scope, session))
        if tail is not None:
            tail.sinks.discard(sink)
            tail.wake(Aspect.EVENTS)

    def _start(self, name: str, fn: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            self._spawn.start(f"{name}#{next(self._numbers)}", fn, *args)
        except Exception as error:
            raise Unavailable("as many sessions are followed here as may be") from error

    async def _look(self) -> None:
        """Wake the tails whose session has moved on without their knowing, until no session is followed."""
        try:
            while self._tails:
                await trio.sleep(LOOK_SECONDS)
                tails = iter(tuple((session, tail) for (_, session), tail in self._tails.items()))
                while portion := dict(islice(tails, LOOK_TAILS)):
                    for session in await self._moved(portion):
                        portion[session].wake(Aspect.EVENTS)
        finally:
            self._looking = False
            # Ended from outside while sessions are followed: who reads rows joins again, and with that starts another look.
            for tail in tuple(self._tails.values()):
                tail.drop_all()
                tail.wake(Aspect.EVENTS)

    async def _moved(self, tails: Mapping[str, Tail]) -> Iterable[str]:
        try:
            return await self._store.reads.moved({session: tail.position for session, tail in tails.items()})
        except CallboardError:
            return tails  # each reads for itself, and meets the same error or not

    async def _run(self, key: tuple[Scope, str], tail: Tail) -> None:
        try:
            while tail.sinks:
                await tail.run()
        finally:
            # Nothing awaits between the last look at the sinks and this, so no sink joins a tail that has ended.
            self._tails.pop(key, None)
            tail.drop_all()

    @asynccontextmanager
    async def follow(self, scope: Scope, session: str, after: int) -> AsyncIterator[Feed]:
        """Events above `after`, from rows and then live, until the block ends."""
        feed = Feed(self._store, self, scope, session, after)
        try:
            yield feed
        finally:
            self.leave(scope, session, feed)


class Feed:
    """One follower. Iterate it; it never ends by itself, but raises `UnknownTarget` once a deleted session has no more to tell.

    A slow one costs the others nothing: it reads rows when it falls behind.
    """

    def __init__(self, store: Store, tails: Tails, scope: Scope, session: str, after: int) -> None:
        self._store = store
        self._tails = tails
        self._scope = scope
        self._session = session
        self._queue: deque[Event] = deque()
        self._ready = trio.Event()
        self._live = False
        self._checked = False
        self._reached = after
        self.cursor = after

    def push(self, events: tuple[Event, ...]) -> bool:
        self._ready.set()
        if not events or len(self._queue) + len(events) > WINDOW:
            self._live = False
            return False
        self._queue.extend(events)
        return True

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> Event | Resync:
        return (await self.some(1))[0]

    async def some(self, most: int = PAGE_LIMIT) -> Sequence[Event | Resync]:
        """What there is, at most `most` and at least one, as soon as there is one. Cancelling loses nothing."""
        # Before anything is taken: an item that was taken by a call which is then cancelled would be a gap.
        await trio.lowlevel.checkpoint()
        while True:
            while self._queue:
                taken = self._take(most)
                if taken:
                    return taken
            if self._live:
                await self._ready.wait()
                self._ready = trio.Event()
                continue
            resync = await self._catch_up()
            if resync is not None:
                return (resync,)

    def _take(self, most: int) -> list[Event]:
        taken: list[Event] = []
        while self._queue and len(taken) < most:
            event = self._queue.popleft()
            if event.id > self.cursor:
                self.cursor = event.id
                taken.append(event)
        self._skip()
        return taken

    def _skip(self) -> None:
        """Nothing is left below what was read: where a restore has left a gap, that is more than the newest event's id."""
        if not self._queue:
            self.cursor = max(self.cursor, self._reached)

    async def _catch_up(self) -> Resync | None:
        page = await self._store.reads.events(self._scope, self._session, after=self.cursor)
        first, self._checked = not self._checked, True
        resync = gap(self._session, self.cursor, page, first=first)
        if resync is not None:
            self.cursor = resync.after
            return resync
        self._queue.extend(page.events)
        self._reached = page.reached(self.cursor)
        self._skip()
        if page.last and not page.events:
            raise UnknownTarget("the session was deleted", path="session")
        if not page.more and not page.closed:
            self._live = self._tails.join(self._scope, self._session, self, self._reached)
        return None


def gap(session: str, cursor: int, page: EventPage, *, first: bool) -> Resync | None:
    """What a reader at `cursor` must be told before the page that was read there, if its cursor can't be served (EVT-3).

    `first`: it is the reader's first page. Later its cursor is above the newest id only because that was read a moment before.
    """
    if cursor < page.floor:
        # What is left below the floor is not dense: it is told as one gap.
        return Resync(session, page.floor, page.floor + 1)
    if first and cursor > page.newest:
        return Resync(session, page.newest, page.floor + 1)
    if page.skipped:
        return Resync(session, page.events[0].id - 1 if page.events else page.newest, page.floor + 1)
    return None
