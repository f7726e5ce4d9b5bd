"""Named reads, by value. Lives here: what can be asked of a store. Not here: SQL.

Invariant: a read on behalf of anybody takes a `Scope`, and its statement names tenant and project (NS-5).
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any

import attrs

from .model.addresses import Scope
from .model.approvals import Approval, ApprovalState
from .model.errors import AmbiguousId, InvalidField, NotFound, UnknownTarget
from .model.events import EventPage
from .model.limits import PAGE_LIMIT
from .model.messages import MessageView
from .model.sessions import ACTIVE, IDLE, Entry, Page, Session
from .model.turns import Step, StepKind, StopRequest
from .namespace import Namespace
from .rows import Row, entry_from, event_from, message_from, session_from
from .surroundings import Surroundings

_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?\Z")
"""Store time as `repr` writes it; `float` alone would also take nan."""
_ROW = re.compile(r"[0-9]{1,18}\Z")


@attrs.frozen
class AttemptView:
    """How one attempt of a message ended, for its history."""

    attempt: int
    ending: str
    detail: str | None
    status: str
    due: float | None
    at: float


class Reads(Namespace, Surroundings):
    """Everything that may be asked. Where a scope is taken, what it does not own answers as unknown."""

    async def session(self, scope: Scope, id: str) -> Session:
        """A session by id. Raises `UnknownTarget`; an internal one answers the same (SES-2)."""
        rows = await self._rows("session_by_id", scope, id=id)
        if not rows:
            raise UnknownTarget("there is no such session here", path="session")
        return session_from(rows[0])

    async def sessions(
        self,
        scope: Scope,
        *,
        path: str | None = None,
        active: bool = False,
        idle: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Sessions, or only the `active` or `idle` ones, newest change first. Raises `InvalidField` for a bad limit or cursor.

        Those at a `path` are at most one, which has another path by now if it was renamed since.
        """
        updated, row = _session_cursor(cursor)
        most = page_limit(limit) + 1
        if path is not None:
            # Found by its own index: a walk along the changes would look at all of them for one.
            found: list[Session] = []
            with suppress(UnknownTarget):
                found.append(await self.session_at(scope, path))
            wrong = {status for status, unwanted in ((IDLE, active), (ACTIVE, idle)) if unwanted}
            return Page(
                tuple(session for session in found if session.status not in wrong and session.updated < updated), None
            )
        if active:
            rows = [] if idle else await self._rows("sessions_active", scope, updated=updated, row=row, limit=most)
        else:
            rows = await self._rows("sessions_list", scope, idle=int(idle), updated=updated, row=row, limit=most)
        page = tuple(session_from(row) for row in rows[:limit])
        return Page(page, f"{page[-1].updated!r}~{rows[limit - 1][14]}" if len(rows) > limit else None)

    async def transcript(self, scope: Scope, session: str, *, after: int = 0, limit: int = PAGE_LIMIT) -> list[Entry]:
        """Entries above `after`, oldest first."""
        rows = await self._rows("transcript", scope, id=session, after=after, limit=limit)
        return [entry_from(row) for row in rows]

    async def transcript_tail(self, scope: Scope, session: str, limit: int) -> tuple[list[Entry], int]:
        """The newest `limit` visible entries, oldest first, and how many there are in all."""
        params = {"id": session, **_of(scope)}
        tail, count = await self._driver.read(
            ("transcript_tail", {**params, "limit": limit}), ("entries_count", params)
        )
        return [entry_from(row) for row in reversed(tail)], count[0][0]

    async def message(self, scope: Scope, id: str, *, principal: str | None = None) -> MessageView:
        """A message by our id, or by a message id: the caller's own, else the only visible one (INB-4).

        Raises `NotFound`; `AmbiguousId` if several senders have used it.
        """
        rows = await self._rows("message_named", scope, id=id, principal=principal)
        exact = [row for row in rows if row[0] == id] or [row for row in rows if row[30] == principal] or rows
        if not exact:
            raise NotFound("there is no such message here", path="id")
        if len(exact) > 1:
            raise AmbiguousId("several messages bear this message id: use the msg_… id", path="id")
        return message_from(exact[0])

    async def inbox(
        self,
        scope: Scope,
        *,
        target: str | None = None,
        status: str | None = None,
        peer: str | None = None,
        before: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[MessageView]:
        """Messages, newest first (INB-12). Raises `InvalidField` for a bad limit or cursor."""
        rows = await self._rows(
            "inbox_list",
            scope,
            target=target,
            status=status,
            peer=peer,
            before=before,
            row=row_cursor(cursor),
            limit=page_limit(limit) + 1,
        )
        page = tuple(message_from(row) for row in rows[:limit])
        return Page(page, str(rows[limit - 1][34]) if len(rows) > limit else None)

    async def attempts(self, scope: Scope, message: str) -> list[AttemptView]:
        """How the attempts of a message ended that did not commit, oldest first. `message` is a `msg_…` id."""
        return [AttemptView(*row) for row in await self._rows("attempts_of", scope, id=message)]

    async def events(self, scope: Scope, session: str, *, after: int = 0, limit: int = PAGE_LIMIT) -> EventPage:
        """Events above `after`, with the session's floor and newest id in the same snapshot. Raises `UnknownTarget`.

        A gap is only looked for where one shows: numbers are dense above the floor but for what a restore has skipped.
        """
        params = {"id": session, **_of(scope)}
        counters, rows = await self._driver.read(
            ("event_counters", params), ("events_after", {**params, "after": after, "limit": limit + 1})
        )
        if not counters:
            raise UnknownTarget("there is no such session here", path="session")
        floor, newest, closed = counters[0]
        events = tuple(event_from(session, row) for row in rows[:limit])
        dense = not floor < after < newest or (events and events[0].id == after + 1)
        skipped = not dense and not await self._rows("event_known", scope, id=session, n=after)
        return EventPage(events, floor, newest, more=len(rows) > limit, closed=bool(closed), skipped=skipped)

    async def turn_goes_on(self, scope: Scope, session: str, turn: str, *, after: int) -> bool:
        """Whether any event of a turn is above `after`."""
        return bool(await self._rows("turn_events_after", scope, id=session, turn=turn, after=after))

    async def steps(self, scope: Scope, message: str) -> tuple[Step, ...]:
        """The step log of the turn whose head is `msg_…`."""
        return tuple(
            Step(
                row[0],
                StepKind(row[1]),
                row[2],
                bool(row[3]),
                json.loads(row[4]),
                json.loads(row[5]) if row[5] else None,
            )
            for row in await self._rows("steps_of", scope, id=message)
        )

    async def tokens(self, scope: Scope, session: str, turn: str) -> dict[int, str]:
        """The text that each attempt of a turn has streamed, by attempt."""
        text: dict[int, str] = {}
        for (data,) in await self._rows("tokens_of", scope, id=session, turn=turn, after=0):
            token = json.loads(data)
            text[token["attempt"]] = text.get(token["attempt"], "") + token["text"]
        return text

    async def stop_of(self, scope: Scope, session: str) -> StopRequest | None:
        """The stop that is stored for the session's running turn."""
        rows = await self._rows("stop_of", scope, id=session)
        return StopRequest(rows[0][0], rows[0][1]) if rows and rows[0][0] is not None else None

    async def approval(self, scope: Scope, id: str) -> Approval:
        """A question to a person. Raises `NotFound`."""
        rows = await self._rows("approval_by_id", scope, id=id)
        if not rows:
            raise NotFound("there is no such approval here", path="id")
        return Approval(rows[0][0], rows[0][1], ApprovalState(rows[0][2]), rows[0][3])

    async def _rows(self, name: str, scope: Scope, **params: Any) -> list[Row]:
        (rows,) = await self._driver.read((name, {**params, **_of(scope)}))
        return rows


def _of(scope: Scope) -> dict[str, str]:
    return {"tenant": scope.tenant, "project": scope.project}


def page_limit(limit: int) -> int:
    """Return the size of a page if a listing may have it; else raise `InvalidField`."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidField(f"must be 1 to {PAGE_LIMIT}", path="limit")
    return limit


def row_cursor(cursor: str | None) -> int | None:
    """The row that a cursor stands for. Raises `InvalidField`."""
    if cursor is None:
        return None
    if not _ROW.match(cursor):
        raise InvalidField("is not a cursor of this listing", path="cursor")
    return int(cursor)


def _session_cursor(cursor: str | None) -> tuple[float, int]:
    if cursor is None:
        return math.inf, 0
    updated, _, row = cursor.partition("~")
    if _SECONDS.match(updated) and _ROW.match(row):
        return float(updated), int(row)
    raise InvalidField("is not a cursor of this listing", path="cursor")
