"""What the runtime itself asks of a store, over all scopes: never on behalf of a principal, and never text that anybody wrote.

Lives here: figures for health and the doctor, and what tails ask for all sessions at once. Not here: SQL (`sql/system.sql`), reads on
somebody's behalf (`reads`). Invariant: no read here returns content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from .rows import Row


class Queries(Protocol):
    """The part of a driver that reads: all statements of a call see one snapshot. `now`: store time."""

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]: ...
    def now(self) -> float: ...


@attrs.frozen
class ProcessView:
    """A process that claims: when it last did (store time), the leases that it holds, and how many of those have run out."""

    name: str
    seen_at: float
    held: int
    run_out: int


class Overview:
    """The reads of the runtime."""

    def __init__(self, driver: Queries) -> None:
        self._driver = driver

    async def moved(self, positions: Mapping[str, int]) -> list[str]:
        """Of sessions and the newest event known of each, by id: those that have newer ones, or were deleted. Over all scopes."""
        (rows,) = await self._driver.read(("sessions_moved", {"positions": json.dumps(dict(positions))}))
        return [row[0] for row in rows]

    async def counts(self, now: float) -> tuple[int, int]:
        """How many mailboxes are due, and how many are held, over all scopes."""
        ((row,),) = await self._driver.read(("store_stats", {"now": now}))
        return row[0], row[1]

    async def oldest_due(self, now: float) -> float | None:
        """Store time since which a mailbox waits for somebody to claim it; None if none does. Over all scopes."""
        (rows,) = await self._driver.read(("oldest_due", {"now": now}))
        return rows[0][0] if rows else None

    async def processes(self, now: float) -> list[ProcessView]:
        """The processes that claim from this store, by name; one that was killed is among them for a day."""
        (rows,) = await self._driver.read(("processes", {"now": now}))
        return [ProcessView(*row) for row in rows]

    async def run_out(self, now: float) -> int:
        """How many leases have run out and were not taken yet, over all scopes."""
        ((row,),) = await self._driver.read(("leases_run_out", {"now": now}))
        return row[0]

    async def oldest_open(self) -> tuple[str, float] | None:
        """The id (`msg_…`) of the message that has been open for longest, and when it was accepted; over all scopes."""
        (rows,) = await self._driver.read(("oldest_open", {}))
        return (rows[0][0], rows[0][1]) if rows else None

    async def restored(self) -> tuple[float, float | None] | None:
        """When this store was restored, and when the backup was made, in seconds since the epoch; None: it never was."""
        ((row,),) = await self._driver.read(("restored", {}))
        return None if row[0] is None else (row[0], row[1])

    async def schema(self) -> int:
        """The number of the newest migration of this store."""
        ((row,),) = await self._driver.read(("schema_version", {}))
        return row[0]

    async def integrity(self) -> str:
        """`ok`, or what the database says is wrong with it. Reads all of it."""
        (rows,) = await self._driver.read(("integrity", {}))
        return str(rows[0][0])

    async def stuck(self) -> list[tuple[str, str]]:
        """Recipients whose task survived its cancel, each with the process that has it."""
        (rows,) = await self._driver.read(("stuck_sessions", {}))
        return [(row[0], row[1]) for row in rows]
