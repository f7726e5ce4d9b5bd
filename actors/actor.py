"""What every actor is: a supervised task with its own cancel scope and a mailbox of rows under an address (RT-1).

Not here: supervision, and what any kind of actor does. Invariant: an actor's memory may be lost at any moment; its rows may not.
"""

from __future__ import annotations

from typing import Protocol

import trio


class Actor(Protocol):
    """`address` names the mailbox (`session:<id>`, `dispatcher:<process>`); `scope` is what ends the actor and nothing else."""

    @property
    def address(self) -> str: ...

    @property
    def scope(self) -> trio.CancelScope: ...

    async def run(self) -> None:
        """Do the actor's work until it is done or `scope` is cancelled."""
        ...
