"""What the tests of a shared store have in common: runtimes with fronts on one PostgreSQL database, as several processes would be.

Here: `shared_store`, finding out who runs a turn. Not here: any judgement; real processes (`tests/crash/fleet`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from callboard.tests.contract.postgres_server import session_server
from callboard.tests.flows.edge_kit import Served, serving_runtime

SIZE = 3


@attrs.frozen
class Shared:
    """Runtimes on one store, and its URL."""

    url: str
    all: list[Served]

    async def runner(self, message_id: str) -> tuple[Served, Served]:
        """Who runs the turn of a message, and one who does not."""
        holder = (await self.all[0].runtime.receipt(message_id)).lease_holder
        (own,) = [served for served in self.all if served.runtime.process == holder]
        return own, next(served for served in self.all if served is not own)


@asynccontextmanager
async def shared_store(folder: Path, *, size: int = SIZE, **options: Any) -> AsyncIterator[Shared]:
    """So many served runtimes on a database of their own; `options` are those of `serving_runtime`."""
    with session_server().database() as url:
        async with AsyncExitStack() as stack:
            served: list[Served] = []
            for n in range(size):
                place = folder / f"process-{n}"
                place.mkdir()
                served.append(await stack.enter_async_context(serving_runtime(place, store=url, **options)))
            yield Shared(url, served)
