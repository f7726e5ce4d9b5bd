"""The rows of a database file as the crash tests read them: with SQLite alone, without any code of the product.

Not here: what must hold of them (`invariants`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


class Rows:
    """A database file as it lies there, read without any code of the product."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"{self.file.as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._connected("ro") as connection:
            return connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row:
        (row,) = self.all(sql, *values)
        return row

    def values(self, sql: str, *values: Any) -> list[Any]:
        """The first column."""
        return [row[0] for row in self.all(sql, *values)]

    def change(self, sql: str, *values: Any) -> int:
        """Write behind everybody's back; only while no worker has the file. Returns how many rows."""
        with self._connected("rw") as connection:
            return connection.execute(sql, values).rowcount

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its file."""
        found = self.values("PRAGMA integrity_check")
        wrong = [] if found == ["ok"] else [f"integrity: {line}" for line in found]
        return wrong + [f"orphan: {tuple(row)}" for row in self.all("PRAGMA foreign_key_check")]

    def message(self, message_id: str) -> sqlite3.Row:
        return self.one("SELECT * FROM message WHERE message_id = ?", message_id)

    def answers(self, message_id: str) -> list[str]:
        """What was answered to a message."""
        return self.values(
            "SELECT e.content FROM entry AS e JOIN message AS m ON m.id = e.message WHERE m.message_id = ?"
            " AND e.role = 'assistant' ORDER BY e.seq",
            message_id,
        )

    def kinds(self, message_id: str) -> list[str]:
        """The kinds of the events of a message's turn."""
        return self.values(
            "SELECT e.kind FROM event AS e JOIN message AS m ON e.turn = 'turn_' || substr(m.uid, 5)"
            " WHERE m.message_id = ? ORDER BY e.n",
            message_id,
        )

    def side(self) -> list[dict[str, Any]]:
        """What the tools of the agents have really done."""
        file = Path(f"{self.file}.side")
        return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
