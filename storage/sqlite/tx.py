"""What an op's handler works with inside a transaction. Lives here: statements by name, scopes, events, hints, the refusal rule.

Not here: BEGIN and COMMIT (`driver`). Invariant: a handler that refuses has written nothing, or the batch is run again op by op.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.addresses import Scope
from ..model.errors import UnknownTarget
from ..rows import Row

encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Tx:
    """One transaction of the writing connection, at store time `now` (seconds since the epoch)."""

    __slots__ = ("_scopes", "conn", "now", "sql", "tally", "touched", "wrote")

    def __init__(self, conn: sqlite3.Connection, sql: Mapping[str, str], scopes: dict[Scope, int], now: float) -> None:
        self.conn = conn
        self.sql = sql
        self.now = now
        self.wrote = False
        self.touched: dict[str, int] = {}
        self.tally: dict[tuple[str, str], int] = {}
        self._scopes = scopes

    def one(self, name: str, args: Sequence[Any] = ()) -> Row | None:
        """The first row of a reading statement."""
        return self.conn.execute(self.sql[name], args).fetchone()

    def all(self, name: str, args: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """All rows of a reading statement."""
        return self.conn.execute(self.sql[name], args).fetchall()

    def run(self, name: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        """A writing statement."""
        self.wrote = True
        return self.conn.execute(self.sql[name], args)

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> int:
        """A writing statement for several rows; returns how many it changed."""
        self.wrote = True
        return self.conn.executemany(self.sql[name], rows).rowcount

    def touch(self, recipient: str, aspect: int) -> None:
        """Tell the readers of `recipient` after the commit."""
        self.touched[recipient] = self.touched.get(recipient, 0) | aspect

    def count(self, what: str, which: str, by: int = 1) -> None:
        """Count for people who look at the store from outside; it counts once this transaction has committed."""
        key = (what, which)
        self.tally[key] = self.tally.get(key, 0) + by

    def scope(self, scope: Scope, *, create: bool = False) -> int:
        """The row of a scope. Raises `UnknownTarget` if nothing was ever opened in it."""
        found = self._scopes.get(scope)
        if found is not None:
            return found
        key = (scope.tenant, scope.project)
        if create:
            self.run("scope_insert", key)
        row = self.one("scope_id", key)
        if row is None:
            raise UnknownTarget("nothing of that name here", path="target")
        if not self.wrote:
            # A scope made by this transaction may still be rolled back: it is remembered at its next use.
            self._scopes[scope] = row[0]
        return row[0]


def turn_data(turn: str, message_id: str, attempt: int, **more: Any) -> str:
    """The JSON of a turn.* event: every one carries turn, message and attempt (EVT-1)."""
    # Both ids hold no character that JSON escapes, and this is written several times for every turn.
    head = f'{{"turn_id":"{turn}","message_id":"{message_id}","attempt":{attempt}'
    return f"{head},{encode(more)[1:]}" if more else head + "}"
