"""Reads of the namespace. Lives here: sessions by path, also by one that they had; a project's rules; where a client went last.

Not here: SQL (`sql/reads.sql`), what the rules mean (`model/policies`). Invariant: an old path answers with the session as it is now, so
whoever asked sees the new path in the answer.
"""

from __future__ import annotations

import json

from .model.addresses import Scope
from .model.errors import InvalidField, UnknownTarget
from .model.limits import PAGE_LIMIT
from .model.policies import Rules
from .model.sessions import Page, Session
from .ops.namespace import Navigated
from .overview import Overview
from .rows import Row, rule_from, session_from


class Namespace(Overview):
    """What may be asked about paths. What the scope does not own answers as unknown."""

    async def session_at(self, scope: Scope, path: str) -> Session:
        """The session that a path names, or named until it was renamed less than 30 days ago. Raises `UnknownTarget`."""
        rows = await self._named("session_by_path", scope, path=path)
        if not rows:
            rows = await self._named("session_by_redirect", scope, path=path, now=self._driver.now())
        if not rows:
            raise UnknownTarget("no session has this path", path="path")
        return session_from(rows[0])

    async def directory(self, scope: Scope, *, limit: int = PAGE_LIMIT, cursor: str | None = None) -> Page[Session]:
        """Sessions that have a path, in the order of paths; the cursor is the last path seen. Raises `InvalidField` for a bad limit."""
        if not 1 <= limit <= PAGE_LIMIT:
            raise InvalidField(f"must be 1 to {PAGE_LIMIT}", path="limit")
        rows = await self._named("sessions_by_path", scope, after=cursor or "", limit=limit + 1)
        page = tuple(session_from(row) for row in rows[:limit])
        return Page(page, page[-1].path if len(rows) > limit else None)

    async def rules(self, scope: Scope) -> Rules:
        """The rules of a project; none for one in which none were made."""
        return Rules(tuple(map(rule_from, await self._named("policy_of", scope))))

    async def navigation(self, scope: Scope, principal: str, client: str) -> Navigated | None:
        """Where a client of a principal went last; None if it never went anywhere, or long ago."""
        rows = await self._named("navigation_of", scope, principal=principal, client=client)
        return Navigated(rows[0][0], json.loads(rows[0][1]), rows[0][2]) if rows else None

    async def project_known(self, scope: Scope) -> bool:
        """Whether anything was ever opened in a project, or anybody let in."""
        return bool(await self._named("project_known", scope))

    async def _named(self, name: str, scope: Scope, **params: object) -> list[Row]:
        (rows,) = await self._driver.read((name, {**params, "tenant": scope.tenant, "project": scope.project}))
        return rows
