"""The databases that the explorer's days are lived on: a new one for each run, a copy of one that has only its sessions.

Here: what the explorer must know of a database, and the clock that a server has for a day (`worker_postgres` puts it forward). Not here:
the product's own drivers. Another database is one more class and its line in `STORES`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from callboard.tests.contract.postgres_server import Server, session_server
from callboard.tests.crash.pg_rows import PgRows
from callboard.tests.crash.rows import Rows

CLEAN = "clean"
"""The name of the database that has only its sessions."""
LEFT_SECONDS = 20.0
CLOCK = (
    "CREATE SCHEMA warp",
    "CREATE SEQUENCE warp.ahead",
    *(
        f"CREATE FUNCTION warp.{name}() RETURNS timestamptz LANGUAGE sql {kind} AS"
        f" $$ SELECT pg_catalog.{name}() + make_interval(secs => last_value / 1e6) FROM warp.ahead $$"
        for name, kind in (("clock_timestamp", "VOLATILE"), ("statement_timestamp", "STABLE"), ("now", "STABLE"))
    ),
)
"""What the server's clock is ahead, in microseconds; a sequence, because it is put forward outside of all transactions."""


class Stores(Protocol):
    """Databases by name, made in `folder` or for it. `exact`: only the worker itself takes time, so that point n is the same in every run."""

    exact: bool

    def __init__(self, folder: Path) -> None: ...

    def url(self, name: str) -> str:
        """How a worker opens it."""
        ...

    def rows(self, name: str) -> AbstractContextManager[Rows]:
        """How a test reads it behind everybody's back."""
        ...

    def left(self, name: str) -> None:
        """Wait until all is done that workers which have ended had asked of it."""
        ...

    def side(self, name: str) -> Path:
        """Where the tools of that day's agents write what they do."""
        ...

    def copy(self, name: str) -> None:
        """Make a copy of the clean one; the workers that had that have ended."""
        ...

    def drop(self, name: str) -> None:
        """Remove it and its side file; nobody uses it any more."""
        ...

    def close(self) -> None:
        """Remove what is not in the folder; what failed is kept as long as its server lives."""
        ...


class SqliteStores:
    """One file each."""

    exact = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, name: str) -> str:
        return f"sqlite:///{self._file(name)}"

    @contextmanager
    def rows(self, name: str) -> Iterator[Rows]:
        yield Rows(self._file(name))

    def left(self, name: str) -> None:
        """Nothing: a process does its work itself."""

    def side(self, name: str) -> Path:
        return Path(f"{self._file(name)}.side")

    def copy(self, name: str) -> None:
        shutil.copy(self._file(CLEAN), self._file(name))

    def drop(self, name: str) -> None:
        for file in self._folder.glob(f"{self._file(name).name}*"):
            file.unlink()

    def close(self) -> None:
        """Nothing."""

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.db"


class PgStores:
    """One database each on one server. Its clock is put forward by workers, who do not wait for time to pass."""

    exact = False
    _numbers = count(1)

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self._folder = folder
        self._server = server or session_server()
        self._prefix = f"day{os.getpid()}_{next(self._numbers)}_"
        self._server.execute(f'CREATE DATABASE "{self._prefix}{CLEAN}"')
        for statement in CLOCK:
            self._server.execute(statement, database=self._prefix + CLEAN)

    def url(self, name: str) -> str:
        # What the product calls without a schema is found in `warp` before the server's own.
        return self._server.url(self._prefix + name) + "&options=-csearch_path%3Dpublic,warp,pg_catalog"

    @contextmanager
    def rows(self, name: str) -> Iterator[Rows]:
        with PgRows(self.url(name), self._folder / name).held() as rows:
            yield rows

    def left(self, name: str) -> None:
        # The server's processes find out by themselves that nobody is there any more, and tell nobody.
        end = time.monotonic() + LEFT_SECONDS
        sql = "SELECT FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        while self._server.execute(sql, self._prefix + name):
            assert time.monotonic() < end, f"somebody still uses {name}"

    def side(self, name: str) -> Path:
        return self._folder / f"{name}.side"

    def copy(self, name: str) -> None:
        self.left(CLEAN)
        self._server.execute(
            f'CREATE DATABASE "{self._prefix}{name}" TEMPLATE "{self._prefix}{CLEAN}" STRATEGY file_copy'
        )

    def drop(self, name: str) -> None:
        self._server.execute(f'DROP DATABASE "{self._prefix}{name}" WITH (FORCE)')
        self.side(name).unlink(missing_ok=True)

    def close(self) -> None:
        self.drop(CLEAN)


STORES: dict[str, type[Stores]] = {"sqlite": SqliteStores, "postgresql": PgStores}
"""By the scheme of their URLs."""
