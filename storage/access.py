"""Reads about who may come in. Lives here: looking a credential up, and the operator's listings. Not here: deciding, SQL.

Invariant: a credential is found by the digest of its secret or by its id, never by anything that a request says about itself; a listing
names its tenant. No secret and no digest is in any answer.
"""

from __future__ import annotations

from .model.access import Carrier, Credential, Member, Standing
from .model.sessions import Page
from .overview import Queries
from .reads import page_limit, row_cursor
from .rows import credential_from, member_from, standing_from


class Access:
    """What may be asked about members and credentials."""

    def __init__(self, driver: Queries) -> None:
        self._driver = driver

    async def standing(self, digest: bytes, carrier: Carrier, now: float) -> Standing | None:
        """The valid credential whose secret has this digest; None if there is none at `now` (store time)."""
        (rows,) = await self._driver.read(
            ("standing_by_digest", {"digest": digest, "carrier": str(carrier), "now": now})
        )
        return standing_from(rows[0]) if rows else None

    async def standing_of(self, id: str, now: float) -> Standing | None:
        """The credential of this id, if it is still valid at `now`."""
        (rows,) = await self._driver.read(("standing_by_id", {"id": id, "now": now}))
        return standing_from(rows[0]) if rows else None

    async def members(self, tenant: str, *, limit: int = 50, cursor: str | None = None) -> Page[Member]:
        """Members by name. Raises `InvalidField` for a bad limit."""
        given = {"tenant": tenant, "after": cursor, "limit": page_limit(limit) + 1}
        (rows,) = await self._driver.read(("members_list", given))
        page = tuple(member_from(row) for row in rows[:limit])
        return Page(page, page[-1].name if len(rows) > limit else None)

    async def credentials(self, tenant: str, *, limit: int = 50, cursor: str | None = None) -> Page[Credential]:
        """Tokens and cookies, newest first, those that are revoked as well. Raises `InvalidField` for a bad limit or cursor."""
        given = {"tenant": tenant, "before": row_cursor(cursor), "limit": page_limit(limit) + 1}
        (rows,) = await self._driver.read(("tokens_list", given))
        page = tuple(credential_from(row) for row in rows[:limit])
        return Page(page, str(rows[limit - 1][12]) if len(rows) > limit else None)
