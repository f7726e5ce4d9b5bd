"""Ops on sessions: open (get or create), change, delete."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..model.addresses import Scope, Sender, check_path
from ..model.errors import InvalidField
from ..model.ids import new_id
from ..model.limits import AGENT_NAME_CHARS, TITLE_CHARS
from ..model.messages import check_text
from ..model.policies import By
from ..model.sessions import Session, SessionKind
from .base import Op


@attrs.frozen
class Opened:
    """The session, and whether this op made it."""

    session: Session
    created: bool


@attrs.frozen
class OpenSession(Op[Opened]):
    """Create a session and its mailbox, or get the one that `path` names, or has named until it was renamed.

    With `must_create`, a taken path raises `PathTaken`; without it, only a path whose session has another agent does. A path that a
    session has given up within 30 days still names that session; where that is not what is asked for, an operator gives the path away,
    and for others it is taken. Agents go by the project's rules.
    `parent` makes it a child that counts against the limits, in this transaction (SES-8). `deadline_seconds` is a child's time limit.
    Raises: `PathTaken`, `TooManyChildren`, `UnknownTarget` (the parent; or the session of this id was deleted), `Conflict` (the id has
    opened another agent, path or title), `NotPermitted`.
    """

    repeat: ClassVar[str] = (
        "a session of this id is returned with created=False; one that was deleted is not opened again"
    )

    scope: Scope
    agent: str
    id: str
    kind: SessionKind = SessionKind.INTERACTIVE
    path: str | None = None
    title: str = ""
    parent: str | None = None
    must_create: bool = False
    deadline_seconds: float | None = None
    by: By = attrs.field(default=By.OPERATOR, converter=By)


def open_session(
    scope: Scope,
    agent: str,
    *,
    kind: SessionKind = SessionKind.INTERACTIVE,
    path: str | None = None,
    title: str = "",
    parent: str | None = None,
    must_create: bool = False,
    deadline_seconds: float | None = None,
    by: By = By.OPERATOR,
) -> OpenSession:
    """Build an `OpenSession` from checked fields; raises `InvalidField` naming the wrong one."""
    if not agent or len(agent) > AGENT_NAME_CHARS or not agent.isprintable():
        raise InvalidField(f"must be 1 to {AGENT_NAME_CHARS} printable characters", path="agent")
    if path is not None:
        check_path(path)
    check_title(title)
    return OpenSession(scope, agent, new_id("ses"), kind, path, title, parent, must_create, deadline_seconds, by)


def check_title(title: str) -> str:
    """Return a title that is empty or clean text of at most 200 characters; else raise `InvalidField`."""
    return check_text(title, "title", TITLE_CHARS) if title else title


@attrs.frozen
class UpdateSession(Op[Session]):
    """Set the title and the path, both or neither (None leaves it). The id stays, and the old path leads to it for 30 days (NS-3).

    Build it with `update_session`. Raises: `UnknownTarget`, `PathTaken`, `Conflict` (the root), `NotPermitted` (an agent, by the rules).
    """

    repeat: ClassVar[str] = "setting the same values again changes nothing"

    scope: Scope
    id: str
    title: str | None = None
    path: str | None = None
    by: By = attrs.field(default=By.OPERATOR, converter=By)


def update_session(
    scope: Scope, id: str, *, title: str | None = None, path: str | None = None, by: By = By.OPERATOR
) -> UpdateSession:
    """Build an `UpdateSession` from checked fields; raises `InvalidField` naming the wrong one."""
    return UpdateSession(
        scope, id, None if title is None else check_title(title), None if path is None else check_path(path), by
    )


@attrs.frozen
class DeleteSession(Op[None]):
    """Delete a session: its waiting messages fail (`target_deleted`), their senders are told, a parent is woken, its holder is fenced out.

    Its path is free again, and those that led to it; a session that takes one inherits no mail (INB-11). The root `/` can't be deleted.
    Raises: `UnknownTarget`, `Conflict` (the root).
    """

    repeat: ClassVar[str] = "a session that is already deleted stays so"

    scope: Scope
    id: str
    by: Sender
