"""The floor: raw SQLite with the same schema, the same rows and the same group commit, and no runtime around it.

Lives here: what the machine and SQLite allow for each scenario. Not here: anything of Callboard but its schema file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

SCHEMA = Path(__file__).parents[2] / "storage/sqlite/migrations/0001_initial.sql"
TEXT = "x" * 200
EVENT = '{"turn_id":"turn_0123456789abcdef0123456789abcdef","message_id":"m","attempt":1,"outcome":"answered"}'

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


class Floor:
    """One thread, one connection, group commits."""

    def __init__(self, file: Path, sessions: int) -> None:
        self.conn = sqlite3.connect(file, isolation_level=None, cached_statements=512)
        self.conn.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
        self.conn.executescript(SCHEMA.read_text(encoding="utf-8"))
        self.conn.execute("INSERT INTO scope (id, tenant, project) VALUES (1, 'default', 'default')")
        self.sessions = sessions
        self.conn.execute("BEGIN")
        for number in range(1, sessions + 1):
            self.conn.execute(
                "INSERT INTO mailbox (id, scope, recipient, updated_at) VALUES (?, 1, ?, 0)",
                (number, f"session:{number}"),
            )
        self.conn.execute("COMMIT")
        self._next = 0

    def accept(self, count: int, *, batch: int) -> None:
        """Accept `count` messages, `batch` to a commit: message, entry, event, mailbox."""
        execute = self.conn.execute
        done = 0
        while done < count:
            execute("BEGIN IMMEDIATE")
            for _ in range(min(batch, count - done)):
                now = time.time()
                mailbox = self._next % self.sessions + 1
                self._next += 1
                uid = f"msg_{int(now * 1000):012x}{os.urandom(10).hex()}"
                seq, event = execute(ACCEPT_MAILBOX, (now, now, mailbox)).fetchone()
                row = execute(INSERT_MESSAGE, (mailbox, uid, seq, now, now, now, uid)).lastrowid
                execute(INSERT_ENTRY, (mailbox, seq, "user", TEXT, row, now))
                execute(INSERT_EVENT, (mailbox, event, "message.created", None, seq, EVENT, now))
                done += 1
            execute("COMMIT")

    def claim(self, most: int) -> list[tuple[int, int, int, str]]:
        """Claim up to `most` mailboxes and their heads in one commit: (mailbox, epoch, message, turn)."""
        execute = self.conn.execute
        now = time.time()
        execute("BEGIN IMMEDIATE")
        taken: list[tuple[int, int, int, str]] = []
        for mailbox, epoch, event in execute(CLAIM, (now + 30, now, now, most)).fetchall():
            row, uid = execute(HEAD, (now, now, mailbox)).fetchone()
            for offset, kind in ((1, "turn.started"), (0, "attempt.claimed")):
                execute(INSERT_EVENT, (mailbox, event - offset, kind, uid, None, EVENT, now))
            taken.append((mailbox, epoch, row, uid))
        execute("COMMIT")
        return taken

    def finish(self, taken: list[tuple[int, int, int, str]]) -> None:
        """Commit the turns of claimed mailboxes in one commit: answer, delivered, marker, event, mailbox."""
        execute = self.conn.execute
        execute("BEGIN IMMEDIATE")
        for mailbox, epoch, row, uid in taken:
            now = time.time()
            execute(DELIVER, (now, now, row))
            seq, event = execute(RELEASE, (now, mailbox, epoch)).fetchone()
            execute(MARKER, (mailbox, row, uid, epoch, seq))
            execute(INSERT_ENTRY, (mailbox, seq, "assistant", TEXT, row, now))
            execute(INSERT_EVENT, (mailbox, event, "turn.completed", uid, seq, EVENT, now))
        execute("COMMIT")

    def close(self) -> None:
        self.conn.close()
