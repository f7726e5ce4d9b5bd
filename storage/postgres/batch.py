"""One batch on one connection: BEGIN, locks, the handlers, the hint for other processes, COMMIT.

Not here: what is locked (`locks.py`), what an op does (`handlers`), repeating a batch (`driver.py`).

Invariants: nothing is read before the locks are held, and store time is read after them; a batch that fails on data is carried out op by
op under savepoints, so that the offender fails alone (INB-13). Way to the server and back: one for BEGIN, locks, clock and what is
sure to be asked first (`ahead.py`), one for each further statement that a handler asks something, one for what is left, the hint and COMMIT.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import psycopg
import trio

from ..commit import Applied, Failure
from ..handlers.table import HANDLERS, carry_out
from ..model.addresses import Scope
from ..model.errors import CallboardError, OutcomeUnknown, Rejected, StoreDown
from ..model.limits import COMMIT_SECONDS
from ..ops.base import Op
from .ahead import Answered, Question, ahead, behind
from .bridge import BEGIN, COMMIT, ROLLBACK, Ask, Connection, Statement, in_greenlet
from .listen import NOTIFY, payload_of
from .locks import keys_of
from .statements import written
from .tx import CLOCK, PgTx

UNIQUE_TRIES: Final = 4
"""How often an op is carried out that meets what another process has just written: its next look finds it."""


@attrs.frozen
class _Begun:
    """A transaction that has its locks: what it holds, and the store time at which it got them."""

    held: set[str]
    now: float
    answered: Answered


@attrs.frozen
class _Done:
    """What the handlers have answered, and statements of theirs that still wait to be carried out."""

    applied: Applied
    waiting: Sequence[Statement] = ()


class Batch:
    """Ops to be committed in one transaction by the process `process`. `scopes`: rows of scopes that its connection knows.

    `meanwhile` is called each time that COMMIT is on its way.
    """

    def __init__(
        self,
        ops: Sequence[Op[Any]],
        process: str,
        scopes: dict[Scope, int],
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.ops = ops
        self._process = process
        self._scopes = scopes
        self._meanwhile = meanwhile
        self._keys = keys_of(ops)
        self._ending = False

    async def commit(self, connection: Connection) -> Applied:
        """Carry all of it out and commit, within `COMMIT_SECONDS`. If it raises, the transaction may still be open.

        Raises `StoreDown` if surely nothing was written (`BatchesMet`: because of another batch), `OutcomeUnknown`, kinds of `StoreError`.
        """
        self._ending = False
        with trio.move_on_after(COMMIT_SECONDS):
            return await self._commit(connection)
        connection.close()
        took = f"the database has not answered within {COMMIT_SECONDS:g} s"
        if self._ending:
            raise OutcomeUnknown(f"{took}, and COMMIT was under way", path=connection.shown)
        raise StoreDown(f"{took}; nothing was written", path=connection.shown)

    async def _commit(self, connection: Connection) -> Applied:
        try:
            try:
                # What is asked ahead may be what no row can be called, as all that an op brings.
                begun = await self._begin(connection, ahead(self.ops, self._scopes))
                done = await in_greenlet(connection, lambda ask: self._together(ask, begun))
                await self._end(connection, done)
            except CallboardError:
                raise
            except Exception:
                # Whatever an op's data makes Python or the database raise: carried out alone, it is found.
                self._scopes.clear()
                self._ending = False
                if connection.in_transaction:
                    await connection.execute(ROLLBACK)
                begun = await self._begin(connection, ())
                done = await in_greenlet(connection, lambda ask: self._one_by_one(ask, connection, begun))
                await self._end(connection, done)
        except BaseException:
            self._scopes.clear()  # a scope that this transaction made is not there
            raise
        return done.applied

    async def _begin(self, connection: Connection, questions: Sequence[Question]) -> _Begun:
        locks = self._keys.statements()
        asked = [written(name, given) for name, given in questions]
        answers = await connection.executes([(BEGIN, ()), *locks, (CLOCK, ()), *asked])
        locked = answers[len(locks)].rows if locks else []
        now: float = answers[len(locks) + 1].rows[0][0]
        rows = [answer.rows for answer in answers[len(locks) + 2 :]]
        answered = {name: (given, found) for (name, given), found in zip(questions, rows, strict=True)}
        return _Begun({row[1] for row in locked if len(row) > 1}, now, answered)

    async def _end(self, connection: Connection, done: _Done) -> None:
        statements = [*done.waiting]
        if done.applied.touched:
            statements.append((NOTIFY, (payload_of(self._process, done.applied.touched),)))
        self._ending = True
        if self._meanwhile is not None:
            self._meanwhile()  # whoever it wakes runs when this waits for the answer
        await connection.executes([*statements, (COMMIT, ())])

    def _together(self, ask: Ask, begun: _Begun) -> _Done:
        tx = PgTx(ask, self._scopes, begun.now, begun.held, begun.answered, behind(self.ops, self._scopes))
        outcomes = carry_out(tx, self.ops)
        return _Done(Applied(outcomes, tx.touched, tx.tally), tx.rest())

    def _one_by_one(self, ask: Ask, connection: Connection, begun: _Begun) -> _Done:
        outcomes: list[Any] = []
        touched: dict[str, int] = {}
        tally: Counter[tuple[str, str]] = Counter()
        for op in self.ops:
            tx, outcome = self._alone(ask, connection, op, begun)
            outcomes.append(outcome)
            if tx is not None:
                for recipient, aspect in tx.touched.items():
                    touched[recipient] = touched.get(recipient, 0) | aspect
                tally.update(tx.tally)
        return _Done(Applied(outcomes, touched, tally))

    def _alone(self, ask: Ask, connection: Connection, op: Op[Any], begun: _Begun) -> tuple[PgTx | None, Any]:
        """One op under a savepoint: what it did and its answer, or nothing and its failure."""
        for left in reversed(range(UNIQUE_TRIES)):
            ask("SAVEPOINT op")
            tx = PgTx(ask, {}, begun.now, set(begun.held))
            try:
                outcome = HANDLERS[type(op)](tx, op)
                tx.flush()
            except CallboardError as refusal:
                failure: CallboardError = refusal
            except Exception as exc:
                if isinstance(exc, psycopg.Error) and connection.mapped(exc) is not None:
                    raise
                failure = Rejected(f"the store could not carry out {type(op).__name__}: {exc}")
                failure.__cause__ = exc
                if left and isinstance(exc, psycopg.errors.UniqueViolation):
                    ask("ROLLBACK TO SAVEPOINT op")
                    continue
            else:
                ask("RELEASE SAVEPOINT op")
                return tx, outcome
            ask("ROLLBACK TO SAVEPOINT op")
            return None, Failure(failure)
        raise AssertionError("the last try answers")
