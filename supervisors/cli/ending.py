"""How `serve` ends in bounded time, whatever agents do.

Lives here: noticing that nothing but agents that can't be ended is left, or that ending takes too long, and ending the process then.
Not here: stopping in order (`runtime`), signals (`serving`).

Invariant: from the moment that a stop is asked for, the root gives up or the start fails, the process has a last moment. Trio can't leave a
living task behind, so its root would wait for a blocking thread for ever. Such an agent is fenced out, its message is where it belongs, and
a store that is closed this way is as good as one closed in order.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs
import trio

from ...storage.model.errors import CallboardError
from ..runtime import Runtime
from ..tree import State
from .output import problem
from .refusals import refusal_in

log: Final = logging.getLogger("callboard.serve")
LOOK_SECONDS: Final = 0.2
IN_ORDER_SECONDS: Final = 45.0
"""Beyond the graces of turns: for requests in flight, the last commits and closing the store."""
STUCK_LEFT: Final = frozenset({State.STOPPED, State.FAILED, State.STUCK})


@attrs.define
class Ending:
    """What is known about the end of one `serve`. `withdraw` takes back what others were told about this server."""

    stop: trio.Event
    withdraw: Callable[[], None]
    failure: CallboardError | None = None
    """Why it ends, if nobody has asked for it."""

    async def watch(self, runtime: Runtime) -> None:
        """Wait for the end to begin, then for it to be over: a clean end cancels this."""
        async with trio.open_nursery() as nursery:
            for event in (self.stop, runtime.ending):
                nursery.start_soon(_first, event, nursery.cancel_scope)
        tuning = runtime.desk.tuning
        with trio.move_on_after(tuning.stop_grace_seconds + tuning.stuck_after_seconds + IN_ORDER_SECONDS):
            await _until_only_stuck(runtime)
        self._leave(runtime)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Around the block of the runtime: what fails there is why the server ends, but it is raised only when all agents have ended."""
        try:
            yield
        except Exception as error:
            self.failure = refusal_in(error)
            raise

    def _leave(self, runtime: Runtime) -> None:
        left = [live.address for live in runtime.dispatcher.live.values()]
        log.error("ending without waiting for %s", ", ".join(left or _left(runtime)))
        self.withdraw()
        failure = self.failure
        if runtime.failure is not None:
            failure = refusal_in(runtime.failure)
        if failure is not None:
            problem(str(failure))
        end_now(0 if failure is None and self.stop.is_set() else 1)


def end_now(code: int) -> None:
    """End: no handler, no thread and no task is waited for."""
    for stream in (sys.stdout, sys.stderr):
        # A RuntimeError, if a signal has come in the middle of what is being written there, a line of the log above all.
        with suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(code)


async def _first(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _until_only_stuck(runtime: Runtime) -> None:
    # Nothing tells when an agent was given up and the last child above it has ended; both are looked up.
    while True:
        await trio.sleep(LOOK_SECONDS)
        if _only_stuck(runtime):
            return


def _only_stuck(runtime: Runtime) -> bool:
    """Whether nothing is left that could still end in order: agents that were fenced out, or children that outlived their cancel."""
    children = runtime.snapshot().children
    stuck = runtime.dispatcher.stuck
    if stuck and len(stuck) == len(runtime.dispatcher.live):
        return any(node.name == "dispatcher" and node.state is State.STOPPED for node in children)
    states = {node.state for node in children}
    return State.STUCK in states and states <= STUCK_LEFT


def _left(runtime: Runtime) -> list[str]:
    alive = [node.name for node in runtime.snapshot().children if node.state not in (State.STOPPED, State.FAILED)]
    return alive or ["the store"]
