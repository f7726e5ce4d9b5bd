"""A tree as an `async with` block: the root of a program, a test or an embedding.

Lives here: joining a supervisor's life to a block's. Not here: supervising (`supervisor`).

Invariant: when the block has been left, by whatever way, no child of the tree runs.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from .errors import NotRunning
from .supervisor import Supervisor


@asynccontextmanager
async def open_tree(supervisor: Supervisor) -> AsyncGenerator[Supervisor]:
    """Run a root supervisor around a block: inside it all children have started, after it all have ended.

    If the supervisor gives up, the block is cancelled and the error raised, bare and not in a group: `StartFailed` or
    `IntensityExceeded`; `NotRunning` if somebody has stopped it before all had started. An `Exception` of the block is
    raised bare too; both together come as an `ExceptionGroup`.
    """
    errors: list[Exception] = []
    async with trio.open_nursery() as nursery:
        ready = trio.Event()

        async def hold() -> None:
            try:
                await supervisor.run(task_status=_Signal(ready))
                if not ready.is_set():
                    raise NotRunning(supervisor.name)
            except Exception as error:
                errors.append(error)
                nursery.cancel_scope.cancel()

        nursery.start_soon(hold)
        await ready.wait()
        try:
            yield supervisor
        except Exception as error:
            errors.append(error)
        finally:
            supervisor.stop()
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{supervisor.name} and the block around it failed", errors)


class _Signal:
    """A task status that sets an event."""

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    def started(self, value: object = None) -> None:
        self._event.set()
