"""The janitor: forgets turn.* events that are older than their keeping time (EVT-4). Its memory may be lost at any moment."""

from __future__ import annotations

import logging
from typing import Final

import trio

from ...storage.model.errors import CallboardError
from ...storage.ops import PruneEvents
from ...storage.store import Store

log: Final = logging.getLogger("callboard.janitor")
PAUSE_SECONDS: Final = 300.0


class Janitor:
    """Prunes in small ops, so that nobody waits behind it."""

    def __init__(self, store: Store, keep_seconds: float) -> None:
        self._store = store
        self._keep = keep_seconds

    async def run(self) -> None:
        """Prune, pause, for ever."""
        while True:
            try:
                while await self._store.apply(PruneEvents(self._keep)):
                    await trio.lowlevel.checkpoint()
            except CallboardError as error:
                log.warning("old events were not pruned (%s); trying again later", error.code)
            await trio.sleep(PAUSE_SECONDS)
