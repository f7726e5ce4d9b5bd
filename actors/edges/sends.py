"""The sends of one websocket: a bounded number on their way at one time, so that they share commits instead of waiting for one each.

Lives here: their order, the window, their end. Not here: what is sent and what is answered (live), commits (the store).

Invariant: messages are handed to the store in the order of `add`, and answered in that order, whatever becomes of each. What was handed
over is waited for when the connection ends: a cancellation takes back nothing that has begun.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from ...storage.model.errors import CallboardError, OutcomeUnknown

WINDOW: Final = 64
"""Sends on their way of one connection; a full window reads no further frame."""
SEND_SECONDS: Final = 60.0
"""Longer than the store lets a batch take, so that its own answer comes first."""

Frame = dict[str, Any]
Work = Callable[[], Awaitable[Frame]]
"""Hands one message to the store before it waits for the first time; returns the answer's frame or raises the refusal."""
Refused = Callable[[CallboardError], Frame]


@attrs.define(eq=False)
class _Place:
    """One send in the line. `begun`: the store has it. `done`: it was answered, or will not be."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    done: trio.Event = attrs.field(factory=trio.Event)


class Sends:
    """The line of one connection. Get one from `open_sends`."""

    def __init__(self, nursery: trio.Nursery, answer: Callable[[Frame], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._answer = answer
        self._room = trio.Semaphore(WINDOW, max_value=WINDOW)
        self._committing: set[trio.CancelScope] = set()
        self._latest = math.inf
        self._last = _Place()
        self._last.begun.set()
        self._last.done.set()

    async def add(self, work: Work, refused: Refused) -> None:
        """Wait for room, then put `work` at the end of the line; it is carried out and answered later. `refused` makes an error's frame."""
        await self._room.acquire()
        before, self._last = self._last, _Place()
        self._nursery.start_soon(self._carry_out, before, self._last, work, refused)

    async def settled(self) -> None:
        """Wait until everything added so far was answered."""
        await self._last.done.wait()

    def end(self, seconds: float) -> None:
        """Nothing more will be added: give what is on its way `seconds`."""
        self._latest = trio.current_time() + seconds
        self._nursery.cancel_scope.deadline = min(self._nursery.cancel_scope.deadline, self._latest)
        for scope in self._committing:
            scope.deadline = min(scope.deadline, self._latest)

    async def _carry_out(self, before: _Place, mine: _Place, work: Work, refused: Refused) -> None:
        try:
            # Tasks start in no certain order, so each waits for the one before it.
            await before.begun.wait()
            try:
                answer = await self._commit(mine, work)
            except CallboardError as error:
                answer = refused(error)
            await before.done.wait()
            await self._answer(answer)
        finally:
            mine.begun.set()
            mine.done.set()
            self._room.release()

    async def _commit(self, mine: _Place, work: Work) -> Frame:
        deadline = min(trio.current_time() + SEND_SECONDS, self._latest)
        with trio.CancelScope(shield=True, deadline=deadline) as scope:
            self._committing.add(scope)
            try:
                # The next one runs only when this one waits, and by then the store has it.
                mine.begun.set()
                return await work()
            finally:
                self._committing.discard(scope)
        raise OutcomeUnknown("no answer from the store in time")


@asynccontextmanager
async def open_sends(answer: Callable[[Frame], Awaitable[None]], seconds: float) -> AsyncIterator[Sends]:
    """A line for as long as the block lasts; at its end, by whatever way, what has begun is waited for, at most `seconds`.

    `answer` sends a frame to the client, one at a time.
    """
    async with trio.open_nursery() as nursery:
        sends = Sends(nursery, answer)
        try:
            yield sends
        finally:
            sends.end(seconds)
