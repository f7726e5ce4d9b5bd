"""Statements of a transaction on PostgreSQL. Not here: what a handler may ask for (`handlers/tx`), BEGIN, locks and COMMIT (`batch.py`).

A statement for several rows takes an array for each column (`unnest`), so a batch is one statement and one way to the server. What a
handler writes without asking how much it changed waits for the next statement that it asks something, and goes with it.

What is sure to be asked first was asked with the locks (`ahead.py`).

Invariant: what a handler reads of a mailbox it may write by, because the batch has locked it. A mailbox that the lock phase could not
know of (a sender whose message came in since) is locked here, by a statement before the one that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import attrs

from ..handlers.tx import Args, Clash, Tx
from ..model.addresses import Scope
from ..queries import load, numbered
from ..rows import Row
from .ahead import Answered
from .bridge import Answer, Ask

CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
LOCK_DUE: Final = """SELECT id FROM mailbox WHERE due <= extract(epoch FROM statement_timestamp())::float8
ORDER BY due LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED"""
LOCK_RECIPIENTS: Final = "SELECT id FROM mailbox WHERE recipient = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE"
LOCK_OF_MESSAGE: Final = """SELECT id FROM mailbox WHERE id = (SELECT mailbox FROM message WHERE uid = $1)
FOR NO KEY UPDATE"""
_ROWS: Final = re.compile(r"\bunnest\(\s*\$1")


@attrs.frozen
class Statement:
    """A named statement. `names` are those of its parameters in their order, if it has names; `rows`: it takes an array for each column."""

    text: str
    names: tuple[str, ...]
    rows: bool


@cache
def statements() -> Mapping[str, Statement]:
    """All statements of PostgreSQL by name."""
    found: dict[str, Statement] = {}
    for name, sql in load("postgres").items():
        text, names = numbered(sql)
        found[name] = Statement(text, names, not names and _ROWS.search(text) is not None)
    return MappingProxyType(found)


def written(name: str, given: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """A statement with its arguments, or with an array for each column of the rows that it takes."""
    statement = statements()[name]
    return statement.text, _columns(given) if statement.rows else given


class PgTx(Tx):
    """One transaction. `held`: recipients whose mailboxes it has locked; `due`: the due mailboxes it has locked, None if a claim must do it."""

    __slots__ = ("_answered", "_ask", "_known", "_locked", "_must", "_waiting", "due", "held")

    def __init__(
        self,
        ask: Ask,
        scopes: dict[Scope, int],
        now: float,
        held: set[str],
        due: Sequence[int] | None = None,
        answered: Answered | None = None,
    ) -> None:
        super().__init__(scopes, now)
        self._answered = answered or {}
        self.held = held
        self.due = due
        self._ask = ask
        self._known = statements()
        self._locked: Sequence[int] = due or ()
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._must: list[tuple[int, int]] = []
        """Of statements that wait: the place, and how many rows it must change."""

    def all(self, name: str, args: Args | Mapping[str, Any] = ()) -> list[Row]:
        if name == "due_mailboxes" and isinstance(args, Mapping):
            return self._due(args)
        if name == "message_for_change":
            self._waiting.append((LOCK_OF_MESSAGE, list(args)[:1]))
        text, given = self._statement(name, args)
        known = self._answered.pop(name, None)
        return known[1] if known is not None and [*known[0]] == given else self._answer(text, given).rows

    def run(self, name: str, args: Args = ()) -> int:
        self.wrote = True
        statement = self._known[name]
        return self._answer(statement.text, _columns((args,)) if statement.rows else args).rowcount

    def each(self, name: str, rows: Sequence[Args]) -> list[Row]:
        if not rows:
            return []
        known = self._answered.pop(name, None)
        if name == "targets_for_enqueue" and (late := {row[0] for row in rows} - self.held):
            self._hold(late)
        elif known is not None and known[0] == rows:
            return known[1]
        return self._answer(self._known[name].text, _columns(rows)).rows

    def many(self, name: str, rows: Sequence[Args]) -> int:
        if not rows:
            return 0
        self.wrote = True
        statement = self._known[name]
        if statement.rows:
            return self._answer(statement.text, _columns(rows)).rowcount
        self.flush()
        return sum(answer.rowcount for answer in self._ask.all([(statement.text, row) for row in rows]))

    def must(self, name: str, rows: Sequence[Args]) -> None:
        if not self._known[name].rows:
            super().must(name, rows)
        elif rows:
            self._must.append((len(self._waiting), len(rows)))
            self.put_all(name, rows)

    def returning(self, name: str, rows: Sequence[Args]) -> list[Row]:
        if not rows:
            return []
        self.wrote = True
        return self._answer(self._known[name].text, _columns(rows)).rows

    def put(self, name: str, args: Args = ()) -> None:
        self.put_all(name, (args,))

    def put_all(self, name: str, rows: Sequence[Args]) -> None:
        if not rows:
            return
        self.wrote = True
        statement = self._known[name]
        if statement.rows:
            self._waiting.append((statement.text, _columns(rows)))
        else:
            self._waiting.extend((statement.text, row) for row in rows)

    def rest(self) -> list[tuple[str, Sequence[Any]]]:
        """What still waits, for whoever ends the transaction."""
        if self._must:
            self.flush()
        waiting, self._waiting = self._waiting, []
        return waiting

    def flush(self) -> None:
        """Carry out what still waits."""
        if self._waiting:
            self._ask_with_waiting([])

    def _due(self, args: Mapping[str, Any]) -> list[Row]:
        """Mailboxes that are due. A claim asks when the next one is as well: its answer comes along."""
        if self.due is None:
            args = {**args, "now": self._lock_due(args["limit"])}
        after = self._statement("due_after", {"now": args["now"]})
        due, later = self._ask_with_waiting([self._statement("due_mailboxes", args), after])
        self._answered["due_after"] = (after[1], later.rows)
        return due.rows

    def _lock_due(self, limit: int) -> float:
        """Lock due mailboxes; the time from then on. Others may have written to them since this batch began: what comes is not older."""
        locked, clock = self._ask_with_waiting([(LOCK_DUE, (limit,)), (CLOCK, ())])
        self._locked = [row[0] for row in locked.rows]
        self.now = max(self.now, clock.rows[0][0])
        return self.now

    def _statement(self, name: str, args: Args | Mapping[str, Any]) -> tuple[str, list[Any]]:
        statement = self._known[name]
        if isinstance(args, Mapping):
            given = {"locked": self._locked, **args}
            return statement.text, [given[parameter] for parameter in statement.names]
        return statement.text, list(args)

    def _answer(self, sql: str, args: Args) -> Answer:
        if not self._waiting:
            return self._ask(sql, args)
        return self._ask_with_waiting([(sql, args)])[0]

    def _ask_with_waiting(self, asked: Sequence[tuple[str, Args]]) -> list[Answer]:
        """The answers to `asked`, behind what waits. Raises `Clash` if that has changed fewer rows than it must."""
        waiting, self._waiting = self._waiting, []
        must, self._must = self._must, []
        answers = self._ask.all([*waiting, *asked])
        if any(answers[place].rowcount != count for place, count in must):
            raise Clash
        return answers[len(waiting) :]

    def _hold(self, recipients: set[str]) -> None:
        """Lock mailboxes late. It is out of the order that keeps batches from waiting for each other, so it must stay the exception."""
        self._waiting.append((LOCK_RECIPIENTS, (sorted(recipients),)))
        self.held |= recipients


def _columns(rows: Sequence[Args]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
