"""What aiosqlite's thread is handed under Trio: a call that is its own future, and the little it asks of an event loop.

Here: `Call` and `Loop`, for `bridge.py` only. Not here: SQLite. Invariant: a call is run or dropped, never both, and its waiter is woken
at most once, in the Trio thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


@attrs.frozen
class Loop:
    """All that aiosqlite's thread asks of an event loop."""

    _token: trio.lowlevel.TrioToken

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        # A finished run has nobody to tell. Raising would kill the thread before it reaches its stop.
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback, *args)


@attrs.define(eq=False, repr=False)
class Call(Generic[T]):
    """One item of aiosqlite's queue: the function its thread calls and also the future that it answers.

    `_todo` holds the function until somebody takes it: the thread to run it, or a cancel to drop it. list.pop is atomic, so never both.
    The result stays here because the thread keeps what a function returned until its next call comes, however large. The default repr
    is wanted: aiosqlite logs it, and a batch's contents don't belong in a log.
    """

    _loop: Loop
    _todo: list[Callable[[], T]]
    _task: trio.lowlevel.Task | None
    _results: list[T] = attrs.field(factory=list, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)

    def __call__(self) -> None:
        try:
            fn = self._todo.pop()
        except IndexError:
            return
        self._results.append(fn())

    def get_loop(self) -> Loop:
        return self._loop

    def done(self) -> bool:
        """Whether nobody waits (any more)."""
        return self._task is None

    def set_result(self, _: None) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self.set_result(None)

    async def wait(self) -> T:
        await trio.lowlevel.wait_task_rescheduled(self._abandon)
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback holds this frame: the cycle would keep the batch alive until the next collection.
                del error
        return self._results.pop()

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self._todo.clear()
        return trio.lowlevel.Abort.SUCCEEDED
