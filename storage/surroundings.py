"""Reads for prompts: what is around a session. Lives here: places with a path, running children, what waits, the summary of old entries.

Not here: SQL (`sql/prompts.sql`), how any of it is told (`actors/session/prompt`).
Invariant: each is bounded, whatever the project holds, and comes in an order that is the same on every database.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from .model.addresses import Scope
from .model.turns import Summary
from .overview import Overview
from .rows import Row

COUNT_MOST: Final = 10_000
"""What is counted ends here: a prompt needs no exact number of so many."""
CHILDREN_MOST: Final = 50


@attrs.frozen
class Place:
    """A session with a path."""

    session: str
    path: str
    agent: str


@attrs.frozen
class Child:
    """A child that has not ended; `working`: it has a turn at this moment."""

    session: str
    agent: str
    title: str
    working: bool


class Surroundings(Overview):
    """The reads. Of a session that the scope does not own they give nothing."""

    async def places(self, scope: Scope, session: str, limit: int, *, after: str = "") -> list[Place]:
        """The first `limit` sessions with a path above `after`, by path, without `session`."""
        rows = await self._of_session("paths_of", scope, session, after=after, limit=limit)
        return [Place(*row) for row in rows]

    async def places_count(self, scope: Scope, session: str) -> int:
        """How many sessions with a path there are, without `session`; `COUNT_MOST` at most are counted."""
        ((count,),) = await self._of_session("paths_count", scope, session, limit=COUNT_MOST)
        return count

    async def children(self, scope: Scope, session: str) -> list[Child]:
        """The running children of a session, by the time of their making."""
        rows = await self._of_session("children_of", scope, session, limit=CHILDREN_MOST)
        return [Child(row[0], row[1], row[2], bool(row[3])) for row in rows]

    async def queued(self, scope: Scope, session: str) -> dict[str, int]:
        """How many messages wait for a session, by kind, sorted; `COUNT_MOST` at most are counted."""
        return dict(sorted(await self._of_session("queued_of", scope, session, limit=COUNT_MOST)))

    async def summary(self, scope: Scope, session: str) -> Summary | None:
        """What a model has made of the older entries of a session."""
        rows = await self._of_session("summary_of", scope, session)
        return Summary(*rows[0]) if rows else None

    async def _of_session(self, name: str, scope: Scope, session: str, **params: Any) -> list[Row]:
        (rows,) = await self._driver.read(
            (name, {**params, "id": session, "tenant": scope.tenant, "project": scope.project})
        )
        return rows
