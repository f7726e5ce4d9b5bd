"""What an op's handler works with inside a transaction. Lives here: statements by name, scopes, events, hints, the refusal rule.

Not here: how a database runs a statement (`sqlite/tx`, `postgres/tx`); BEGIN and COMMIT (the drivers).
Invariant: a handler that refuses has written nothing, or the batch is run again op by op.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.addresses import Scope
from ..model.errors import UnknownTarget
from ..model.policies import Rules
from ..rows import Row

encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

Args = Sequence[Any]


class Clash(Exception):
    """A statement for several ops changed fewer rows than what was read before it says: the ops must be carried out one by one."""


class Tx(ABC):
    """One transaction of a writing connection, at store time `now` (seconds since the epoch)."""

    __slots__ = ("_scopes", "now", "rules", "tally", "touched", "wrote")

    def __init__(self, scopes: dict[Scope, int], now: float) -> None:
        self.now = now
        self.wrote = False
        self.touched: dict[str, int] = {}
        self.tally: dict[tuple[str, str], int] = {}
        self._scopes = scopes
        self.rules: dict[int, Rules] = {}
        """Those of projects that this transaction has read: each send of a crowd of agents asks for them (`naming.rules_of`)."""

    @abstractmethod
    def all(self, name: str, args: Args | Mapping[str, Any] = ()) -> list[Row]:
        """All rows of a reading statement."""

    @abstractmethod
    def run(self, name: str, args: Args = ()) -> int:
        """A writing statement; returns how many rows it changed."""

    @abstractmethod
    def each(self, name: str, rows: Sequence[Args]) -> list[Row]:
        """One reading statement for several keys; the rows come in no order, and name their key."""

    @abstractmethod
    def many(self, name: str, rows: Sequence[Args]) -> int:
        """A writing statement for several rows; returns how many it changed."""

    def must(self, name: str, rows: Sequence[Args]) -> None:
        """The same for several rows that must all change. Raises `Clash` if one does not: here, or at a later statement."""
        if self.many(name, rows) != len(rows):
            raise Clash

    @abstractmethod
    def returning(self, name: str, rows: Sequence[Args]) -> list[Row]:
        """The same; returns what it says of the rows that it changed, in no order."""

    def new_messages(self, rows: Sequence[Args], *, together: bool) -> dict[str, int]:
        """Insert messages ("message_insert"); the row of each by its id, and none for what is taken.

        With `together` the database may fail them all instead, at this statement or a later one.
        """
        return {uid: row for row, uid in self.returning("message_insert", rows)}

    def put(self, name: str, args: Args = ()) -> None:
        """A writing statement of which nobody asks how many rows it changed: it may be carried out together with what comes next."""
        self.run(name, args)

    def put_all(self, name: str, rows: Sequence[Args]) -> None:
        """The same for several rows."""
        self.many(name, rows)

    def one(self, name: str, args: Args = ()) -> Row | None:
        """The first row of a reading statement."""
        rows = self.all(name, args)
        return rows[0] if rows else None

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
