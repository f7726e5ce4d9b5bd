"""What a failure of PostgreSQL or of the way to it means to a person.

Here: the one table from SQLSTATE codes, and from the words of a refused connection, to our errors; each message says in one bounded
line what to do, and `path` is the store without credentials. Not here: data errors (a constraint, a wrong type, bad SQL). They map to
None, because the driver reruns such a batch op by op and only the offender fails. Invariants: a failure of the store itself never
leaves this folder as psycopg's exception; a connection that was lost before COMMIT was sent has written nothing (`StoreDown`), and one
that was lost while COMMIT had no answer leaves the outcome unknown.
"""

from __future__ import annotations

from typing import Final

import psycopg

from ..model.errors import (
    CallboardError,
    OutcomeUnknown,
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    bounded,
)

DETAIL_LIMIT: Final = 240


class BatchesMet(StoreDown):
    """This batch and another one were in each other's way (deadlock, serialization); nothing was written: run the same batch again."""


Meaning = tuple[type[CallboardError], str]

_DOWN: Final = "the database does not answer; nothing was written; check the server and send again"
_UNKNOWN: Final = "the connection was lost during a commit: it may or may not have happened"
_REFUSED: Final = "the server does not let this user in; check user, password and pg_hba.conf"
_STOPPING: Final = "the server is stopping or starting; try again"
_CROWDED: Final = "the server has no connection left; close some or raise max_connections"
_NO_DATABASE: Final = "the database does not exist; create it with `createdb`"

_BY_STATE: Final[dict[str, Meaning]] = {
    "25006": (StoreReadOnly, "the server takes no writes; name its primary (target_session_attrs=read-write)"),
    "25P03": (StoreDown, "this process stood still within a batch, so the server ended it; nothing was written"),
    "3D000": (StoreError, _NO_DATABASE),
    "40001": (BatchesMet, "two batches changed the same rows at once; nothing was written"),
    "40P01": (BatchesMet, "two batches waited for each other; nothing was written"),
    "42501": (StoreError, "this user may not do that; make it the owner of Callboard's tables"),
    "53100": (StoreFull, "no space is left for the database; free some and send again"),
    "53300": (StoreDown, _CROWDED),
    "55P03": (StoreDown, "another process holds the same rows for too long; nothing was written; send again"),
    "57014": (StoreDown, "the server cancelled the statement; nothing was written; send again"),
    "57P04": (StoreError, "the database was dropped"),
    "XX001": (StoreCorrupt, "the database is damaged; restore a backup with `callboard restore`"),
    "XX002": (StoreCorrupt, "an index of the database is damaged; rebuild it with REINDEX"),
}
_BY_CLASS: Final[dict[str, Meaning]] = {
    "08": (StoreDown, _DOWN),
    "28": (StoreError, _REFUSED),
    "53": (StoreDown, "the server is out of resources; nothing was written; try again"),
    "57": (StoreDown, _STOPPING),
    "58": (StoreDown, "the server can't read or write its files; check its disk"),
}
# A connection that is refused has no SQLSTATE in psycopg, only the server's words.
_BY_WORDS: Final[tuple[tuple[str, Meaning], ...]] = (
    ("too many clients", (StoreDown, _CROWDED)),
    ("too many connections", (StoreDown, _CROWDED)),
    ("connection slots are reserved", (StoreDown, _CROWDED)),
    ("the database system is", (StoreDown, _STOPPING)),
    ("authentication failed", (StoreError, _REFUSED)),
    ("no password supplied", (StoreError, _REFUSED)),
    ("pg_hba.conf", (StoreError, _REFUSED)),
    ("is not permitted to log in", (StoreError, _REFUSED)),
    ("permission denied for database", (StoreError, _REFUSED)),
    ("session is read-only", (StoreReadOnly, _BY_STATE["25006"][1])),
    ("certificate", (StoreError, "the server's certificate is not accepted; check sslmode and sslrootcert")),
)


def map_postgres_error(exc: psycopg.Error, shown: str, *, committing: bool = False) -> CallboardError | None:
    """Our error for a failure of the store `shown`; None for a data error, which concerns one op and not the store.

    `committing`: COMMIT had been sent and had no answer yet.
    """
    if committing and lost(exc):
        return OutcomeUnknown(f"{_UNKNOWN} ({_detail(exc)})", path=shown)
    found = _meaning(exc)
    if found is None:
        return None
    kind, advice = found
    return kind(f"{advice} ({_detail(exc)})", path=shown)


def lost(exc: psycopg.Error) -> bool:
    """Whether the connection is gone with this error: it was cut, or the server ended it."""
    if exc.sqlstate is None:
        return isinstance(exc, psycopg.OperationalError)
    return exc.diag.severity_nonlocalized in ("FATAL", "PANIC") or exc.sqlstate.startswith("08")


def _meaning(exc: psycopg.Error) -> Meaning | None:
    state = exc.sqlstate
    if state is not None:
        found = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
        return found or ((StoreDown, _DOWN) if lost(exc) else None)
    if not isinstance(exc, psycopg.OperationalError):
        return None
    words = str(exc)
    for part, meaning in _BY_WORDS:
        if part in words:
            return meaning
    if "does not exist" in words:
        return StoreError, _NO_DATABASE if "database" in words.rpartition("FATAL:")[2] else _REFUSED
    return StoreDown, _DOWN


def _detail(exc: psycopg.Error) -> str:
    """The server's own words in one line."""
    words = exc.diag.message_primary or str(exc).strip()
    line = bounded(" ".join(words.split()), DETAIL_LIMIT)
    return f"{exc.sqlstate}: {line}" if exc.sqlstate else line
