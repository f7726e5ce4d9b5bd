"""What an agent may leave behind in its task: nurseries that it entered and never left.

Trio ends a task with such a nursery by an error in the nursery around it, which would cut off every other live turn (RT-3). A task of
its own for each agent would contain that too, and costs a tenth of a whole turn. Not here: scopes left open, which Trio itself closes.
"""

from __future__ import annotations

from typing import Any

import trio


class LeftOpen(Exception):
    """The agent returned inside a nursery that it had opened: what runs in it was cancelled."""


async def close_left_open() -> None:
    """Cancel what runs in the nurseries that this task still has open, and close them. Raises `LeftOpen`.

    The task must have none of its own open. Waits for what it cancels, so an agent's task that survives that keeps its turn (RT-6).
    """
    task = trio.lowlevel.current_task()
    for nursery in reversed(task.child_nurseries):
        nursery.cancel_scope.cancel()
        # The manager that the agent has thrown away held just these two; a contract test watches that this stays so.
        manager: Any = trio.open_nursery()
        manager._nursery, manager._scope = nursery, nursery.cancel_scope  # noqa: SLF001
        await manager.__aexit__(None, None, None)
    raise LeftOpen("the agent left a nursery open; what ran in it was cancelled")
