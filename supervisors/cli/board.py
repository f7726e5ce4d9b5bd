"""What the client commands ask, whoever answers: the running server of the folder, or the store itself when none runs.

Lives here: the questions. Not here: choosing who is asked (`asking`), the two who answer (`remote`, `local`), printing.

Invariant: both answer in the shapes of the HTTP contract, and raise the same errors.
"""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from ...storage.model.addresses import check_path
from ...storage.model.ids import check_message_id
from .announce import Server

Json = dict[str, Any]


class Board(Protocol):
    """The questions. `session` is a path or an id, `message` either of its ids. Absent filters are None."""

    async def sessions(self, **filters: Any) -> Json: ...
    async def session(self, session: str) -> str:
        """The id of a session. Raises `UnknownTarget`."""
        ...

    async def directory(self, cursor: str | None) -> Json: ...
    async def rename(self, session: str, path: str | None, title: str | None) -> Json: ...
    async def policy(self, project: str | None) -> Json: ...
    async def set_policy(self, rule: Json, project: str | None) -> Json: ...
    async def transcript(self, session: str, *, after: int = 0, limit: int | None = None) -> Json: ...
    async def send(self, session: str, content: str, message_id: str | None) -> Json: ...
    async def stop(self, session: str, *, drop_queued: bool) -> Json: ...
    async def inbox(self, **filters: Any) -> Json: ...
    async def message(self, message: str) -> Json: ...
    async def prompt(self, session: str) -> Json:
        """What the next call of a session's model would send. Raises `UnknownTarget`, `Conflict`."""
        ...

    async def requeue(self, message: str) -> Json:
        """Accept it again; a repeat answers with the row that the first one made, `created` false."""
        ...

    async def cancel(self, message: str) -> Json: ...
    async def prune(self, older_than_seconds: float, project: str | None) -> Json: ...
    async def members(self, **filters: Any) -> Json: ...
    async def add_member(self, name: str, project: str | None) -> Json: ...
    async def suspend_member(self, name: str, *, suspended: bool) -> Json: ...
    async def tokens(self, **filters: Any) -> Json: ...
    async def create_token(self, member: str | None, project: str | None, label: str) -> Json: ...
    async def revoke_token(self, id: str) -> Json: ...
    async def console_ticket(self, member: str | None) -> Json: ...


def requeue_key(id: str) -> str:
    """The Idempotency-Key of requeueing `msg_…`: its one copy may be requeued in turn, if it is to run once more."""
    return f"requeue:{id}"


@attrs.frozen
class Found:
    """Who answers: `server` is None where the store was opened instead."""

    board: Board
    server: Server | None


def check_session(session: str) -> str:
    """`session` if it is a canonical path, or might be an id: it becomes part of an address. Raises `InvalidField`."""
    if session.startswith("/"):
        return check_path(session, "session")
    return check_message_id(session.removeprefix("session:"), "session")
