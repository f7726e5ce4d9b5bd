"""Sessions and upkeep: OpenSession, UpdateSession, DeleteSession, RequestStop, ClearStuck, PruneEvents."""

from __future__ import annotations

from ..changes import Aspect
from ..model.addresses import session_address
from ..model.errors import Conflict, Inactive, PathTaken, TooManyChildren, UnknownTarget
from ..model.events import TERMINAL
from ..model.ids import turn_id
from ..model.limits import CHILDREN_PER_PARENT, CHILDREN_PER_PROJECT
from ..model.sessions import ACTIVE, IDLE, ChildState, Session, SessionKind
from ..model.states import Reason
from ..ops.sessions import DeleteSession, Opened, OpenSession, UpdateSession
from ..ops.upkeep import ClearStuck, PruneEvents, RequestStop, Stopping
from ..rows import Row, session_from
from .changing import fail_all
from .naming import check_free, move, old_path, take_path
from .notices import wake_parent
from .tx import Tx

PAGES = 10
_KEPT = {*TERMINAL, "message.created"}


def open_session(tx: Tx, op: OpenSession) -> Opened:
    """Carry out `OpenSession`."""
    scope = tx.scope(op.scope, create=True)
    known = tx.one("session_row", (op.id, scope))
    if known is not None:
        if (known[4], known[21], known[20]) != (op.agent, op.path, op.title):
            raise Conflict("this id has opened another session", path="id")
        if known[14] is not None:
            raise UnknownTarget("the session that this id has opened was deleted", path="id")
        return Opened(session_from(known), created=False)
    if op.path is not None:
        found = tx.one("session_at_path", (scope, op.path))
        if found is None and not op.must_create:
            lead = old_path(tx, scope, op.path)
            # One with another agent is not what is asked for; whether its path may be given away is another question.
            found = lead if lead is not None and lead[1] == op.agent else None
        if found is not None:
            if op.must_create or found[1] != op.agent:
                raise PathTaken(f"{op.path} names a session of the agent {found[1]}", path="path")
            return Opened(session_from(_row(tx, found[0], scope)), created=False)
        check_free(tx, scope, op.path, op.by)
    if op.parent is not None:
        _row(tx, op.parent, scope)
        of_parent, of_project = tx.one("children_running", (op.parent, scope)) or (0, 0)
        if of_parent >= CHILDREN_PER_PARENT:
            raise TooManyChildren(f"{of_parent} children are running, {CHILDREN_PER_PARENT} are allowed")
        if of_project >= CHILDREN_PER_PROJECT:
            raise TooManyChildren(f"{of_project} children run in this project, {CHILDREN_PER_PROJECT} are allowed")
    if op.path is not None:
        take_path(tx, scope, op.path)
    ((mailbox,),) = tx.returning("mailbox_insert", [(scope, session_address(op.id), tx.now)])
    child = ChildState.RUNNING if op.parent is not None else None
    deadline = None if op.deadline_seconds is None else tx.now + op.deadline_seconds
    tx.put(
        "session_insert",
        (
            op.id, scope, mailbox, op.kind, op.agent, op.path, op.title, op.title, op.parent, child, deadline, tx.now,
            op.path,
        ),
    )  # fmt: skip
    status = ACTIVE if child else IDLE
    return Opened(
        Session(
            op.id, op.scope, op.kind, op.agent, op.path, op.title, op.parent, status, tx.now, tx.now, child_state=child
        ),
        created=True,
    )


def update_session(tx: Tx, op: UpdateSession) -> Session:
    """Carry out `UpdateSession`."""
    scope = tx.scope(op.scope)
    row = _row(tx, op.id, scope)
    if op.path is not None and op.path != row[5]:
        move(tx, scope, op.id, row[5], op.path, op.by)
    if op.title is not None:
        tx.put("session_rename", (op.title, op.id))
    return session_from(_row(tx, op.id, scope))


def delete_session(tx: Tx, op: DeleteSession) -> None:
    """Carry out `DeleteSession`."""
    scope = tx.scope(op.scope)
    row = tx.one("session_row", (op.id, scope))
    if row is None or row[3] == SessionKind.INTERNAL:
        raise UnknownTarget("there is no such session here", path="session")
    if row[14] is not None:
        return
    if row[5] == "/":
        raise Conflict("the root session can't be deleted", path="path")
    tx.put("session_delete", (tx.now, op.id))
    tx.put("redirects_of_session", (op.id,))
    mailbox, recipient, last_event = row[15], row[17], row[12]
    tx.put("mailbox_close", (tx.now, mailbox))
    waiting = tx.all("open_rows", (mailbox,))
    fail_all(tx, op.scope, mailbox, recipient, last_event, waiting, Reason.TARGET_DELETED, gone=0)
    if row[8] == ChildState.RUNNING:
        wake_parent(tx, op.id, row[7], ChildState.DELETED, None)
    tx.touch(recipient, Aspect.EVENTS | Aspect.CONTROL)


def request_stop(tx: Tx, op: RequestStop) -> Stopping:
    """Carry out `RequestStop`."""
    row = tx.one("stop_target", (op.recipient, tx.scope(op.scope)))
    if row is None or row[5] is not None or row[6] == SessionKind.INTERNAL:
        raise UnknownTarget("there is no such session here", path="session")
    mailbox, head, stop_at, uid, last_event = row[:5]
    if op.key is not None and row[7] == op.key:
        return Stopping(row[8], 0)
    if head is None:
        raise Inactive("the session runs no turn", path="session")
    if op.key is not None:
        tx.put("stop_key_store", (op.key, turn_id(uid), mailbox))
    if stop_at is None:
        tx.put("stop_store", (tx.now, op.grace, tx.now, mailbox, head))
    waiting = tx.all("waiting_rows", (mailbox,)) if op.drop_queued else []
    fail_all(tx, op.scope, mailbox, op.recipient, last_event, waiting, Reason.DROPPED, gone=len(waiting))
    tx.touch(op.recipient, Aspect.CONTROL)
    return Stopping(turn_id(uid), len(waiting))


def clear_stuck(tx: Tx, op: ClearStuck) -> None:
    """Carry out `ClearStuck`."""
    tx.put("stuck_clear", (op.mailbox, op.holder))


def prune_events(tx: Tx, op: PruneEvents) -> int:
    """Carry out `PruneEvents`: walk on from where the last pruning stopped, so that kept rows are not read again.

    A page of rows that are all kept says nothing about those behind it: up to ten are looked through for some to delete.
    """
    for _ in range(PAGES):
        seen, gone = _prune_page(tx, op)
        if gone or seen < op.limit:
            return gone
    return 0


def _prune_page(tx: Tx, op: PruneEvents) -> tuple[int, int]:
    cursor = tx.one("meta_get", ("prune_cursor",))
    rows = tx.all("events_to_prune", (cursor[0] if cursor else 0, tx.now - op.keep_seconds, op.limit))
    floors: dict[int, int] = {}
    gone: list[tuple[int]] = []
    for row, mailbox, number, kind in rows:
        if kind not in _KEPT:
            gone.append((row,))
            floors[mailbox] = max(floors.get(mailbox, 0), number)
    tx.put_all("event_delete", gone)
    tx.put_all("floor_raise", [(floor, mailbox) for mailbox, floor in floors.items()])
    if rows:
        # Not the last row seen: if that one went, the database gives its place to a new event, which would never be looked at.
        last = tx.one("event_last", (rows[-1][0],)) or (0,)
        tx.put("meta_put", ("prune_cursor", last[0]))
    return len(rows), len(gone)


def _row(tx: Tx, session: str, scope: int) -> Row:
    row = tx.one("session_row", (session, scope))
    if row is None or row[14] is not None:
        raise UnknownTarget("there is no such session here", path="session")
    return row
