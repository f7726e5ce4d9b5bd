"""PostgreSQL's floor: the same schema, the same rows and the same group commit, and no runtime around it.

Lives here: what the server allows one connection: a batch is a few statements over arrays, sent together and committed once. Not here:
anything of Callboard but its schema.

A batch begins with the lock phase that the product can't do without (all its mailboxes, in one order), and `due` is computed in a
statement after the one that delivers. Claims skip what others hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from callboard.tests.bench.databases import EVENT, TEXT, Taken

SCHEMA = Path(__file__).parents[2] / "storage/postgres/migrations"

_NOW = "extract(epoch FROM statement_timestamp())::double precision"
_HEAD = """SELECT h.{column} FROM message AS h WHERE h.mailbox = m.id AND h.wakes = 1
    AND h.status IN ('pending', 'processing') ORDER BY h.id LIMIT 1"""
LOCK = "SELECT id FROM mailbox WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE"
ACCEPT = f"""
WITH given AS (
    SELECT mailbox, uid, row_number() OVER (PARTITION BY mailbox ORDER BY n) AS k
    FROM unnest(%(mailboxes)s::bigint[], %(uids)s::text[]) WITH ORDINALITY AS g (mailbox, uid, n)
), box AS (
    UPDATE mailbox AS m SET last_seq = last_seq + c.more, last_event = last_event + c.more, depth = depth + c.more,
        due = coalesce(due, {_NOW}), updated_at = {_NOW}
    FROM (SELECT mailbox, count(*) AS more FROM given GROUP BY mailbox) AS c WHERE m.id = c.mailbox
    RETURNING m.id, last_seq - c.more AS seq, last_event - c.more AS event
), put AS (
    INSERT INTO message (scope, mailbox, uid, principal, digest, transport, sender, sender_kind, sender_label, kind,
        wakes, steers, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops)
    SELECT 1, box.id, given.uid, 'p', '\\x00112233445566778899aabbccddeeff', 'local', 'operator', 'member', 'op',
        'member_message', 1, 1, 'pending', box.seq + given.k, 5, {_NOW}, {_NOW}, {_NOW}, given.uid, 0
    FROM given JOIN box ON box.id = given.mailbox ORDER BY given.k ON CONFLICT DO NOTHING RETURNING id, mailbox, seq
), said AS (
    INSERT INTO entry (scope, mailbox, seq, role, content, message, at)
    SELECT 1, mailbox, seq, 'user', %(text)s, id, {_NOW} FROM put
)
INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at)
SELECT 1, box.id, box.event + given.k, 'message.created', NULL, box.seq + given.k, %(event)s, {_NOW}
FROM given JOIN box ON box.id = given.mailbox"""
CLAIM = f"""
WITH found AS (
    SELECT id FROM mailbox WHERE due <= {_NOW} ORDER BY due LIMIT %(most)s FOR UPDATE SKIP LOCKED
), box AS (
    UPDATE mailbox AS m SET due = {_NOW} + 30, epoch = epoch + 1, holder = 'floor', last_event = last_event + 2,
        updated_at = {_NOW}
    FROM found WHERE m.id = found.id RETURNING m.id, m.epoch, m.last_event, ({_HEAD.format(column="id")}) AS head
), head AS (
    UPDATE message AS h SET status = 'processing', claims = claims + 1, leased_at = {_NOW}, updated_at = {_NOW}
    FROM box WHERE h.id = box.head RETURNING box.id, box.epoch, box.last_event, h.id AS message, h.uid
), told AS (
    INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at)
    SELECT 1, head.id, head.last_event - e.back, e.kind, head.uid, NULL, %(event)s, {_NOW}
    FROM head, (VALUES (1, 'turn.started'), (0, 'attempt.claimed')) AS e (back, kind)
)
SELECT id, epoch, message, uid FROM head"""
DELIVER = f"""UPDATE message SET status = 'delivered', outcome = 'answered', delivered_at = {_NOW}, updated_at = {_NOW}
    WHERE id = ANY(%s::bigint[])"""
RELEASE = f"""
WITH given AS (
    SELECT * FROM unnest(%(mailboxes)s::bigint[], %(epochs)s::bigint[], %(messages)s::bigint[], %(uids)s::text[])
        AS g (mailbox, epoch, message, uid)
), box AS (
    UPDATE mailbox AS m SET holder = NULL, last_seq = last_seq + 1, last_event = last_event + 1, depth = depth - 1,
        due = ({_HEAD.format(column="available_at")}), updated_at = {_NOW}
    FROM given AS g WHERE m.id = g.mailbox AND m.epoch = g.epoch
    RETURNING m.id, m.last_seq, m.last_event, g.epoch, g.message, g.uid
), marked AS (
    INSERT INTO marker (scope, mailbox, message, turn, epoch, attempt, seq)
    SELECT 1, id, message, uid, epoch, 1, last_seq FROM box
), said AS (
    INSERT INTO entry (scope, mailbox, seq, role, content, message, at)
    SELECT 1, id, last_seq, 'assistant', %(text)s, message, {_NOW} FROM box
)
INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at)
SELECT 1, id, last_event, 'turn.completed', uid, last_seq, %(event)s, {_NOW} FROM box"""
VOID = "UPDATE mailbox SET due = 0, holder = NULL WHERE holder IS NOT NULL"


class PostgresFloor:
    """One connection, group commits, one way to the server and back for each; see `databases.Floor`."""

    def __init__(self, url: str, sessions: int) -> None:
        self._url = url
        self._conn = _connect(url)
        for part in sorted(SCHEMA.glob("*.sql")):
            self._conn.execute(part.read_bytes(), prepare=False)
        self._sessions = sessions
        self._conn.execute("INSERT INTO scope (id, tenant, project) VALUES (1, 'default', 'default')")
        self._conn.execute(
            """INSERT INTO mailbox (id, scope, recipient, updated_at)
            SELECT n, 1, 'session:' || n, 0 FROM generate_series(1, %s) AS n""",
            (sessions,),
        )
        self._next = 0

    def accept(self, count: int, *, batch: int) -> None:
        for done in range(0, count, batch):
            size = min(batch, count - done)
            mailboxes = [number % self._sessions + 1 for number in range(self._next, self._next + size)]
            self._next += size
            now = int(time.time() * 1000)
            uids = [f"msg_{now:012x}{os.urandom(10).hex()}" for _ in range(size)]
            given = {"mailboxes": mailboxes, "uids": uids, "text": TEXT, "event": EVENT}
            with self._commit():
                self._conn.execute(LOCK, (mailboxes,))
                self._conn.execute(ACCEPT, given)

    def claim(self, most: int) -> list[Taken]:
        return self._conn.execute(CLAIM, {"most": most, "event": EVENT}).fetchall()

    def finish(self, taken: list[Taken]) -> None:
        mailboxes, epochs, messages, uids = ([*column] for column in zip(*taken, strict=True))
        given = {"mailboxes": mailboxes, "epochs": epochs, "messages": messages, "uids": uids}
        with self._commit():
            self._conn.execute(LOCK, (mailboxes,))
            self._conn.execute(DELIVER, (messages,))
            self._conn.execute(RELEASE, {**given, "text": TEXT, "event": EVENT})

    def recover(self) -> list[Taken]:
        self._conn.close()
        self._conn = _connect(self._url)
        self._conn.execute(VOID)
        return self.claim(self._sessions)

    def close(self) -> None:
        self._conn.close()

    @contextmanager
    def _commit(self) -> Iterator[None]:
        # Said by hand: the library's own transaction waits for the answer to each end of it.
        with self._conn.pipeline():
            self._conn.execute("BEGIN")
            yield
            self._conn.execute("COMMIT")


def fill(url: str, sessions: int, rows: int) -> None:
    """Put `sessions` sessions and `rows` pending messages, equally many for each, into a store that nobody has open."""
    given = {"sessions": sessions, "rows": rows, "each": rows // sessions, "text": TEXT}
    with _connect(url) as conn, conn.transaction():
        conn.execute("INSERT INTO scope (id, tenant, project) VALUES (1, 'default', 'default') ON CONFLICT DO NOTHING")
        for statement in FILL:
            conn.execute(statement, given)
    with _connect(url) as conn:
        conn.execute("VACUUM ANALYZE")


FILL = (
    """INSERT INTO mailbox (id, scope, recipient, due, last_seq, depth, updated_at)
    SELECT n, 1, 'session:ses_' || n, 1000 + n / 1e6, %(each)s, %(each)s, 0 FROM generate_series(1, %(sessions)s) AS n""",
    """INSERT INTO session (id, scope, mailbox, kind, agent, created_at)
    SELECT 'ses_' || n, 1, n, 'interactive', 'echo', 0 FROM generate_series(1, %(sessions)s) AS n""",
    """INSERT INTO message (id, scope, mailbox, uid, principal, digest, transport, sender, sender_kind, sender_label, kind, wakes,
        steers, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops)
    SELECT i + 1, 1, i %% %(sessions)s + 1, 'msg_' || lpad(to_hex(i), 32, '0'), 'p', '\\x00', 'local', 'operator', 'member', 'op',
        'member_message', 1, 1, 'pending', i / %(sessions)s + 1, 5, 1000, 1000, 1000, 'c', 0
    FROM generate_series(0, %(rows)s - 1) AS i""",
    """INSERT INTO entry (scope, mailbox, seq, role, content, message, at)
    SELECT 1, i %% %(sessions)s + 1, i / %(sessions)s + 1, 'user', %(text)s, i + 1, 1000
    FROM generate_series(0, %(rows)s - 1) AS i""",
)


def lease_end(url: str) -> float | None:
    """When the one lease that is held ends, in seconds since the epoch."""
    with _connect(url) as conn:
        (due,) = conn.execute("SELECT due FROM mailbox WHERE holder IS NOT NULL").fetchone() or (None,)
    return due


def _connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, prepare_threshold=0)
