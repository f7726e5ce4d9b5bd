"""Statements of a transaction on SQLite. Not here: what a handler may ask for (`handlers/tx`).

A statement with `:rows` is written for several rows: `VALUES :rows` becomes as many tuples of marks. One such statement costs a third of
one for each row, as most of a small statement's time is spent between Python and SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from ..handlers.tx import Args, Tx
from ..model.addresses import Scope
from ..rows import Row

SIZES: Final = (64, 32, 16, 8, 4, 2, 1)
"""How many rows a statement is written for: few texts, so that all of them stay prepared."""
_texts: dict[tuple[str, int, int], str] = {}


class SqliteTx(Tx):
    """One transaction of the writing connection."""

    __slots__ = ("_execute", "_many", "_sql")

    def __init__(self, conn: sqlite3.Connection, sql: Mapping[str, str], scopes: dict[Scope, int], now: float) -> None:
        super().__init__(scopes, now)
        self._execute = conn.execute
        self._many = conn.executemany
        self._sql = sql

    def all(self, name: str, args: Args | Mapping[str, Any] = ()) -> list[Row]:
        return self._execute(self._sql[name], args).fetchall()

    def run(self, name: str, args: Args = ()) -> int:
        self.wrote = True
        return self._execute(row_text(self._sql[name], 1, len(args)), args).rowcount

    def each(self, name: str, rows: Sequence[Args]) -> list[Row]:
        return list(chain.from_iterable(self._portions(name, rows)))

    def many(self, name: str, rows: Sequence[Args]) -> int:
        self.wrote = True
        if ":rows" not in self._sql[name]:
            return self._many(self._sql[name], rows).rowcount
        return sum(cursor.rowcount for cursor in self._portions(name, rows))

    def returning(self, name: str, rows: Sequence[Args]) -> list[Row]:
        self.wrote = True
        return list(chain.from_iterable(self._portions(name, rows)))

    def _portions(self, name: str, rows: Sequence[Args]) -> Iterator[sqlite3.Cursor]:
        sql, start = self._sql[name], 0
        for size in SIZES:
            while len(rows) - start >= size:
                portion = rows[start : start + size]
                start += size
                yield self._execute(row_text(sql, size, len(portion[0])), tuple(chain.from_iterable(portion)))


def row_text(sql: str, size: int, width: int) -> str:
    """The statement for `size` rows of `width` columns."""
    if ":rows" not in sql:
        return sql
    key = (sql, size, width)
    text = _texts.get(key)
    if text is None:
        row = f"({', '.join('?' * width)})"
        text = _texts[key] = sql.replace(":rows", ", ".join([row] * size))
    return text
