"""The rows of a PostgreSQL database as the crash tests read them: with psycopg alone, without any code of the product.

Here: the same words as for a file (`rows`), so that what must hold is asked of both in one way (`invariants`). All of it blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from callboard.tests.crash.rows import Rows


class Named(tuple[Any, ...]):
    """A row whose columns can be had by number and by name."""

    names: Sequence[str]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)


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
        self._held: psycopg.Connection[Any] | None = None

    @contextmanager
    def held(self) -> Iterator[PgRows]:
        """Itself, with one connection for all that is asked within."""
        with self._opened() as self._held:
            self._held.execute("SET default_transaction_read_only = on")
            try:
                yield self
            finally:
                self._held = None

    @contextmanager
    def _opened(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._url, row_factory=_named, autocommit=True) as connection:
            yield connection

    def all(self, sql: str, *values: Any) -> list[Any]:
        if self._held is None:
            with self.held():
                return self.all(sql, *values)
        return self._held.execute(_statement(sql), values).fetchall()

    def change(self, sql: str, *values: Any) -> int:
        with self._opened() as connection:
            return connection.execute(_statement(sql), values).rowcount

    def damage(self) -> list[str]:
        """Nothing: a server that finds a damaged page says so when it is read, and its foreign keys always hold."""
        return []


def _statement(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
