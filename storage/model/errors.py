"""The one error tree, in four families by who must act.

`UsageError`: the caller must change the request. `Unavailable`: the same again, later. `LeaseLost`: not ours to write any more.
`Rejected`: never; a person must look. Every error has a stable `code` (used by HTTP, websocket and `--json`), a bounded message and,
where a field is to blame, its `path`.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

MESSAGE_LIMIT = 500


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Cut `text` to `limit` characters and make it one printable line: it may quote hostile input."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


class CallboardError(Exception):
    """Root of all errors that Callboard raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, path: str | None = None) -> None:
        self.message = bounded(message)
        self.path = path
        self.store: object | None = None
        """The store that raised it, if one did: its trouble is told from the same error of somebody else's."""
        super().__init__(self.message if path is None else f"{path}: {self.message}")


# -- the caller must act --------------------------------------------------------------------------------------------


class UsageError(CallboardError):
    """The request itself is wrong; repeating it can't help."""

    code = "invalid_request"
    status = 400


class InvalidField(UsageError):
    """One field of the input is wrong; `path` names it."""

    code = "invalid_field"


class NotFound(UsageError):
    """Nothing of that name that the caller may see."""

    code = "not_found"
    status = 404


class UnknownTarget(NotFound):
    """The session or address does not exist, or may not be seen from here."""

    code = "unknown_target"


class UnknownAgent(UsageError):
    """No agent of that name is known to this process."""

    code = "unknown_agent"


class Conflict(UsageError):
    """The request contradicts what is recorded."""

    code = "conflict"
    status = 409


class MessageConflict(Conflict):
    """The same message id was used with other content, kind, payload or target."""

    code = "message_conflict"


class AmbiguousId(Conflict):
    """Several visible messages bear that message id; use the `msg_…` id."""

    code = "ambiguous_id"


class PathTaken(Conflict):
    """The path names another session."""

    code = "path_taken"


class Inactive(Conflict):
    """The session runs no turn that could be stopped."""

    code = "inactive"


class IllegalMove(Conflict):
    """The state table has no such move; nothing was changed."""

    code = "illegal_move"


class SelfTarget(UsageError):
    """A session addressed itself."""

    code = "self_target"


class Denied(UsageError):
    """A person did not allow the call, or nobody answered in time."""

    code = "denied"
    status = 403


class WouldDeadlock(UsageError):
    """A turn asked to wait for another session."""

    code = "would_deadlock"


class Unauthorized(UsageError):
    """No credential, or one that is not valid."""

    code = "unauthorized"
    status = 401


class Forbidden(UsageError):
    """The credential does not allow this."""

    code = "forbidden"
    status = 403


class NotPermitted(UsageError):
    """The project's rules don't allow this to an agent."""

    code = "not_permitted"
    status = 403


# -- later ----------------------------------------------------------------------------------------------------------


class Unavailable(CallboardError):
    """Not now; the same request may succeed later. `retry_after` is in seconds."""

    code = "unavailable"
    status = 503
    retry_after: float = 1.0


class StoreDown(Unavailable):
    """The store is closed or has failed."""

    code = "store_down"


class Busy(Unavailable):
    """The commit queue is full."""

    code = "busy"


class OutcomeUnknown(Unavailable):
    """The time limit passed while a commit was under way: it may or may not have happened."""

    code = "outcome_unknown"


class MailboxFull(Unavailable):
    """The target's mailbox holds as many open messages as it may."""

    code = "mailbox_full"
    status = 429


class LimitReached(Unavailable):
    """A stored limit (hops, messages a minute, children) refuses this."""

    code = "limit_reached"
    status = 429


class TooManyChildren(LimitReached):
    """The parent or the project already has as many running children as it may."""

    code = "too_many_children"


# -- not mine -------------------------------------------------------------------------------------------------------


class LeaseLost(CallboardError):
    """The mailbox is held at another epoch: whoever asks holds it no longer and must write nothing more."""

    code = "lease_lost"
    status = 409


# -- never ----------------------------------------------------------------------------------------------------------


class Rejected(CallboardError):
    """Can't work at all until a person changes something."""

    code = "rejected"


class StoreError(Rejected):
    """The database can't be used. `path` is the file or URL (without credentials)."""

    code = "store_error"


class NotADatabase(StoreError):
    """The file is not an SQLite database, or not one of ours."""

    code = "not_a_database"


class StoreCorrupt(StoreError):
    """The database says of itself that it is damaged."""

    code = "store_corrupt"


class StoreReadOnly(StoreError):
    """The file or its folder can't be written."""

    code = "store_read_only"


class StoreFull(StoreError):
    """The disk, or the size limit of the database, is full. It may have room again: `retry_after` is in seconds."""

    code = "store_full"
    status = 503
    retry_after: float = 5.0


class SchemaTooNew(StoreError):
    """A newer Callboard has migrated this database."""

    code = "schema_too_new"


class StoreLocked(StoreError):
    """Another process owns the file; `owner` says which."""

    code = "store_locked"

    def __init__(self, message: str, *, path: str | None = None, owner: str = "unknown") -> None:
        super().__init__(message, path=path)
        self.owner = owner


class SettingsError(UsageError):
    """A setting is unknown or wrong; `path` names it."""

    code = "settings"


class RuntimeFailed(Rejected):
    """The root supervisor gave up; the cause is chained."""

    code = "runtime_failed"


def error_named(code: str, message: str, path: str | None = None) -> CallboardError:
    """The error that a recorded `code` stands for; `CallboardError` for one that this version does not know."""
    return _by_code().get(code, CallboardError)(message, path=path)


@cache
def _by_code() -> dict[str, type[CallboardError]]:
    found: dict[str, type[CallboardError]] = {}
    waiting: list[type[CallboardError]] = [CallboardError]
    while waiting:
        kind = waiting.pop()
        found.setdefault(kind.code, kind)
        waiting.extend(kind.__subclasses__())
    return found
