"""Statements of a transaction on PostgreSQL. Not here: what a handler may ask for (`handlers/tx`), how a statement is written for its
rows (`statements.py`), BEGIN, locks and COMMIT (`batch.py`).

A statement takes all its rows at once, so a batch is one statement and one way to the server. What a handler writes without asking how
much it changed waits for the next statement that it asks something, and goes with it. What is sure to be asked was asked with the locks,
or is with the last of what is before it (`ahead.py`).

Invariants: what a handler reads of a mailbox it may write by, because the batch has locked it. A mailbox that the lock phase could not
know of (a sender whose message came in since, one that is due) is locked here, by a statement before the one that reads it. An answer
that was got ahead is forgotten when something is written that it may depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..handlers.tx import Args, Clash, Tx
from ..model.addresses import Scope
from ..rows import Row
from .ahead import Answered, Question
from .bridge import Answer, Ask
from .statements import statements, written

CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
LOCK_DUE: Final = """SELECT set_config('callboard.locked', coalesce(array_agg(id), '{}')::text, true) FROM (
    SELECT id FROM mailbox WHERE due <= extract(epoch FROM statement_timestamp())::float8
    ORDER BY due LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
) AS m"""
CLOCK_DUE: Final = """SELECT set_config('callboard.now', greatest(
    $1::float8, extract(epoch FROM clock_timestamp())::float8
)::text, true)::float8"""
"""What a claim's next statements go by, kept at the server: the mailboxes that it has locked, and the time from then on. Others may have
written to them since the batch began, and what comes is not older."""
LOCK_RECIPIENTS: Final = "SELECT id FROM mailbox WHERE recipient = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE"
LOCK_OF_MESSAGE: Final = """SELECT id FROM mailbox WHERE id = (SELECT mailbox FROM message WHERE uid = $1)
FOR NO KEY UPDATE"""
UID: Final = 2
"""Where a new message has its id."""
_DUE: Final = ("due_mailboxes", "due_after")


class PgTx(Tx):
    """One transaction. `held`: recipients whose mailboxes it has locked; `answered`, `behind`: what is asked ahead."""

    __slots__ = ("_answered", "_ask", "_behind", "_known", "_must", "_waiting", "held")

    def __init__(
        self,
        ask: Ask,
        scopes: dict[Scope, int],
        now: float,
        held: set[str],
        answered: Answered | None = None,
        behind: Question | None = None,
    ) -> None:
        super().__init__(scopes, now)
        self._answered = answered or {}
        self._behind = behind
        self.held = held
        self._ask = ask
        self._known = statements()
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._must: list[tuple[int, int]] = []
        """Of statements that wait: the place, and how many rows it must change."""

    def all(self, name: str, args: Args | Mapping[str, Any] = ()) -> list[Row]:
        if isinstance(args, Mapping) and (
            name == "due_mailboxes" or (name == "due_after" and name not in self._answered)
        ):
            self._ask_due(args)
        if name == "message_for_change":
            self._waiting.append((LOCK_OF_MESSAGE, list(args)[:1]))
        text, given = self._statement(name, args)
        known = self._answered.pop(name, None)
        return known[1] if known is not None and [*known[0]] == given else self._answer(text, given).rows

    def run(self, name: str, args: Args = ()) -> int:
        self._write(name)
        statement = self._known[name]
        return self._answer(*(statement.asked((args,)) if statement.rows else (statement.text, args))).rowcount

    def each(self, name: str, rows: Sequence[Args]) -> list[Row]:
        if not rows:
            return []
        known = self._answered.pop(name, None)
        if name == "targets_for_enqueue" and (late := {row[0] for row in rows} - self.held):
            self._hold(late)
        elif known is not None and known[0] == rows:
            return known[1]
        return self._answer(*self._known[name].asked(rows)).rows

    def many(self, name: str, rows: Sequence[Args]) -> int:
        if not rows:
            return 0
        self._write(name)
        statement = self._known[name]
        if statement.rows:
            return self._answer(*statement.asked(rows)).rowcount
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
        self._write(name)
        asked = self._known[name].asked(rows)
        if name != "mailbox_release" or self._behind is None:
            return self._answer(*asked).rows
        (question, given), self._behind = self._behind, None
        released, found = self._ask_with_waiting([asked, written(question, given)])
        self._answered[question] = (given, found.rows)
        return released.rows

    def new_messages(self, rows: Sequence[Args], *, together: bool) -> dict[str, int]:
        _, taken = self._answered.pop("message_ids", ((), []))
        if together and len(taken) >= len(rows):
            numbered = [(*taken[place], *row) for place, row in enumerate(rows)]
            self.put_all("messages_put", numbered)
            return {row[UID + 1]: row[0] for row in numbered}
        # Those that were taken ahead are not used any more: what comes after these must not come before them (INB-6).
        return super().new_messages(rows, together=together)

    def put(self, name: str, args: Args = ()) -> None:
        self.put_all(name, (args,))

    def put_all(self, name: str, rows: Sequence[Args]) -> None:
        if not rows:
            return
        self._write(name)
        statement = self._known[name]
        if statement.rows:
            self._waiting.append(statement.asked(rows))
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

    def _write(self, name: str) -> None:
        self.wrote = True
        if name.startswith("mailbox_"):
            self._answered.pop("targets_for_enqueue", None)

    def _ask_due(self, args: Mapping[str, Any]) -> None:
        """Lock what is due, and ask all that a claim asks of it: what is there, and when more will be."""
        asked = [self._statement(name, args) for name in _DUE]
        locking = [(LOCK_DUE, (args["limit"],)), (CLOCK_DUE, (self.now,))]
        _, clock, *found = self._ask_with_waiting([*locking, *asked])
        self.now = clock.rows[0][0]
        for name, (_, given), answer in zip(_DUE, asked, found, strict=True):
            self._answered[name] = (given, answer.rows)

    def _statement(self, name: str, args: Args | Mapping[str, Any]) -> tuple[str, list[Any]]:
        statement = self._known[name]
        if isinstance(args, Mapping):
            return statement.text, [args[parameter] for parameter in statement.names]
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
        # Others may have accepted messages there behind the rows that were taken ahead.
        self._answered.pop("message_ids", None)
