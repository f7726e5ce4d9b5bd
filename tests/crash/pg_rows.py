"""The rows of a PostgreSQL database as the crash tests read them: with psycopg alone, without any code of the product.

Here: the same words as for a file (`rows`), so that what must hold is asked of both in one way (`invariants`). All of it blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import BaseRowFactory

from callboard.tests.crash.rows import Rows


class Named(tuple[Any, ...]):
    """A row whose columns can be had by number and by name."""

    names: Sequence[str]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.names.index(key) if isinstance(key, str) else key)


def _named(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Named]:
    names = [column.name for column in cursor.description or ()]

    def make(values: Sequence[Any]) -> Named:
        row = Named(values)
        row.names = names
        return row

    return make


class PgRows(Rows):
    """The database at `url`; `side` is where the tools of its agents write what they do."""

    def __init__(self, url: str, side: Path) -> None:
        super().__init__(side)
        self._url = url

    def all(self, sql: str, *values: Any) -> list[Any]:
        factory: BaseRowFactory[Named] = _named
        with psycopg.connect(self._url, row_factory=factory, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = on")
            statement = sql.replace("%", "%%").replace("?", "%s")
            return connection.execute(statement.encode(), values).fetchall()

    def change(self, sql: str, *values: Any) -> int:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.execute(sql.replace("?", "%s").encode(), values).rowcount

    def damage(self) -> list[str]:
        """Nothing: a server that finds a damaged page says so when it is read, and its foreign keys always hold."""
        return []
