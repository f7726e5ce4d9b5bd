"""The janitor: forgets turn.* events that are older than their keeping time (EVT-4), bodies of messages by retention (INB-12), dead processes.

Every process has one, on a shared store too: each op does what is left to do, so what one has done the next one does not find. Its memory
may be lost at any moment.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from ...storage.model.errors import CallboardError
from ...storage.ops import PruneEvents, PruneMessages, PruneProcesses
from ...storage.store import Store

log: Final = logging.getLogger("callboard.janitor")
PAUSE_SECONDS: Final = 300.0


class Janitor:
    """Prunes in small ops, so that nobody waits behind it. `messages` None: bodies are kept until somebody prunes them by hand."""

    def __init__(self, store: Store, *, events: float, messages: float | None) -> None:
        self._store = store
        self._events = PruneEvents(events)
        # Without a retention too: what was pruned by hand leaves its key behind, whose time ends.
        self._messages = PruneMessages(None, messages)

    async def run(self) -> None:
        """Prune, pause, for ever."""
        while True:
            try:
                while await self._store.apply(self._events):
                    await trio.lowlevel.checkpoint()
                while (await self._store.apply(self._messages)).more:
                    await trio.lowlevel.checkpoint()
                await self._store.apply(PruneProcesses())
            except CallboardError as error:
                log.warning("old rows were not pruned (%s); trying again later", error.code)
            await trio.sleep(PAUSE_SECONDS)
