"""SQLite's floor: the same schema, the same rows and the same group commit in raw SQL, and no runtime around it.

Lives here: what the machine and SQLite allow, and stores filled for the scenarios of size. Not here: anything of Callboard but its schema.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from callboard.tests.bench.databases import EVENT, TEXT, Taken

SCHEMA = Path(__file__).parents[2] / "storage/sqlite/migrations"
LEASE_SECONDS = 30.0

INSERT_MESSAGE = """INSERT INTO message (scope, mailbox, uid, principal, digest, transport, sender, sender_kind, sender_label, kind,
    wakes, steers, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops)
    VALUES (1, ?, ?, 'p', x'00112233445566778899aabbccddeeff', 'local', 'operator', 'member', 'op', 'member_message',
    1, 1, 'pending', ?, 5, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"""
INSERT_ENTRY = "INSERT INTO entry (scope, mailbox, seq, role, content, message, at) VALUES (1, ?, ?, ?, ?, ?, ?)"
INSERT_EVENT = "INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at) VALUES (1, ?, ?, ?, ?, ?, ?, ?)"
ACCEPT_MAILBOX = """UPDATE mailbox SET last_seq = last_seq + 1, last_event = last_event + 1, depth = depth + 1,
    due = coalesce(due, ?), updated_at = ? WHERE id = ? RETURNING last_seq, last_event"""
CLAIM = """UPDATE mailbox SET due = ?, epoch = epoch + 1, holder = 'floor', last_event = last_event + 2, updated_at = ?
    WHERE id IN (SELECT id FROM mailbox WHERE due <= ? ORDER BY due LIMIT ?) RETURNING id, epoch, last_event"""
HEAD = """UPDATE message SET status = 'processing', claims = claims + 1, leased_at = ?, updated_at = ? WHERE id = (
    SELECT id FROM message WHERE mailbox = ? AND wakes = 1 AND status IN ('pending', 'processing') ORDER BY id LIMIT 1)
    RETURNING id, uid"""
DELIVER = "UPDATE message SET status = 'delivered', outcome = 'answered', delivered_at = ?, updated_at = ? WHERE id = ?"
MARKER = "INSERT INTO marker (scope, mailbox, message, turn, epoch, attempt, seq) VALUES (1, ?, ?, ?, ?, 1, ?)"
RELEASE = """UPDATE mailbox SET holder = NULL, last_seq = last_seq + 1, last_event = last_event + 1, depth = depth - 1,
    updated_at = ?, due = (SELECT available_at FROM message WHERE mailbox = mailbox.id AND wakes = 1
    AND status IN ('pending', 'processing') ORDER BY id LIMIT 1) WHERE id = ? AND epoch = ? RETURNING last_seq, last_event"""

VOID = "UPDATE mailbox SET due = 0, holder = NULL WHERE holder IS NOT NULL"


class SqliteFloor:
    """One thread, one connection, group commits; see `databases.Floor`."""

    def __init__(self, file: Path, sessions: int) -> None:
        self._file = file
        self._conn = _connect(file)
        for part in sorted(SCHEMA.glob("*.sql")):
            self._conn.executescript(part.read_text(encoding="utf-8"))
        self._sessions = sessions
        self._conn.execute("BEGIN")
        self._conn.execute("INSERT INTO scope (id, tenant, project) VALUES (1, 'default', 'default')")
        self._conn.executemany(
            "INSERT INTO mailbox (id, scope, recipient, updated_at) VALUES (?, 1, ?, 0)",
            ((number, f"session:{number}") for number in range(1, sessions + 1)),
        )
        self._conn.execute("COMMIT")
        self._next = 0

    def accept(self, count: int, *, batch: int) -> None:
        execute = self._conn.execute
        done = 0
        while done < count:
            execute("BEGIN IMMEDIATE")
            for _ in range(min(batch, count - done)):
                now = time.time()
                mailbox = self._next % self._sessions + 1
                self._next += 1
                uid = f"msg_{int(now * 1000):012x}{os.urandom(10).hex()}"
                seq, event = execute(ACCEPT_MAILBOX, (now, now, mailbox)).fetchone()
                row = execute(INSERT_MESSAGE, (mailbox, uid, seq, now, now, now, uid)).lastrowid
                execute(INSERT_ENTRY, (mailbox, seq, "user", TEXT, row, now))
                execute(INSERT_EVENT, (mailbox, event, "message.created", None, seq, EVENT, now))
                done += 1
            execute("COMMIT")

    def claim(self, most: int) -> list[Taken]:
        execute = self._conn.execute
        now = time.time()
        execute("BEGIN IMMEDIATE")
        taken: list[Taken] = []
        for mailbox, epoch, event in execute(CLAIM, (now + LEASE_SECONDS, now, now, most)).fetchall():
            row, uid = execute(HEAD, (now, now, mailbox)).fetchone()
            for offset, kind in ((1, "turn.started"), (0, "attempt.claimed")):
                execute(INSERT_EVENT, (mailbox, event - offset, kind, uid, None, EVENT, now))
            taken.append((mailbox, epoch, row, uid))
        execute("COMMIT")
        return taken

    def finish(self, taken: list[Taken]) -> None:
        execute = self._conn.execute
        execute("BEGIN IMMEDIATE")
        for mailbox, epoch, row, uid in taken:
            now = time.time()
            execute(DELIVER, (now, now, row))
            seq, event = execute(RELEASE, (now, mailbox, epoch)).fetchone()
            execute(MARKER, (mailbox, row, uid, epoch, seq))
            execute(INSERT_ENTRY, (mailbox, seq, "assistant", TEXT, row, now))
            execute(INSERT_EVENT, (mailbox, event, "turn.completed", uid, seq, EVENT, now))
        execute("COMMIT")

    def recover(self) -> list[Taken]:
        self._conn.close()
        self._conn = _connect(self._file)
        self._conn.execute("BEGIN IMMEDIATE")
        self._conn.execute(VOID)
        self._conn.execute("COMMIT")
        return self.claim(self._sessions)

    def close(self) -> None:
        self._conn.close()


def fill(file: Path, sessions: int, rows: int) -> None:
    """Put `sessions` sessions and `rows` pending messages, equally many for each, into a store's file that nobody has open."""
    each = rows // sessions
    conn = _connect(file)
    conn.execute("BEGIN")
    conn.execute("INSERT OR IGNORE INTO scope (id, tenant, project) VALUES (1, 'default', 'default')")
    conn.executemany(
        "INSERT INTO mailbox (id, scope, recipient, due, last_seq, depth, updated_at) VALUES (?, 1, ?, ?, ?, ?, 0)",
        ((n, f"session:ses_{n}", 1000.0 + n / 1e6, each, each) for n in range(1, sessions + 1)),
    )
    conn.executemany(
        "INSERT INTO session (id, scope, mailbox, kind, agent, created_at) VALUES (?, 1, ?, 'interactive', 'echo', 0)",
        ((f"ses_{n}", n) for n in range(1, sessions + 1)),
    )
    conn.executemany(
        """INSERT INTO message (id, scope, mailbox, uid, principal, digest, transport, sender, sender_kind, sender_label, kind, wakes,
        steers, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops) VALUES (?, 1, ?, ?, 'p', x'00', 'local',
        'operator', 'member', 'op', 'member_message', 1, 1, 'pending', ?, 5, 1000, 1000, 1000, 'c', 0)""",
        ((i + 1, i % sessions + 1, f"msg_{i:032x}", i // sessions + 1) for i in range(rows)),
    )
    conn.executemany(
        "INSERT INTO entry (scope, mailbox, seq, role, content, message, at) VALUES (1, ?, ?, 'user', ?, ?, 1000)",
        ((i % sessions + 1, i // sessions + 1, TEXT, i + 1) for i in range(rows)),
    )
    conn.execute("COMMIT")
    conn.close()


def _connect(file: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(file, isolation_level=None, cached_statements=512)
    # As the product's writer is set: with less cache the floor would be slower than what it is to bound.
    conn.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536;"
    )
    return conn
