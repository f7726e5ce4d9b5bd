"""What a failure of PostgreSQL means: the table, the words of refused connections, and both on a real server."""

from __future__ import annotations

import os
import re
import socket
import traceback
from pathlib import Path

import psycopg
import pytest
import trio

from callboard.storage.model.errors import (
    CallboardError,
    InvalidField,
    OutcomeUnknown,
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from callboard.storage.postgres.bridge import BEGIN, Connection
from callboard.storage.postgres.connect import Target, connect
from callboard.storage.postgres.faults import BatchesMet, map_postgres_error
from callboard.tests.contract.postgres_server import Server

LIMIT = 10.0
STATES = {
    "22001": None, "22021": None, "23505": None, "42601": None, "54000": None, "P0001": None,
    "40001": BatchesMet, "40P01": BatchesMet,
    "08006": StoreDown, "53300": StoreDown, "55P03": StoreDown, "57014": StoreDown, "57P01": StoreDown,
    "57P02": StoreDown, "57P03": StoreDown, "58030": StoreDown, "25P03": StoreDown, "53200": StoreDown,
    "53100": StoreFull, "25006": StoreReadOnly, "XX001": StoreCorrupt,
    "28P01": StoreError, "28000": StoreError, "3D000": StoreError, "42501": StoreError, "57P04": StoreError,
}  # fmt: skip


@pytest.mark.parametrize(("state", "kind"), STATES.items())
def test_the_table_of_states(state: str, kind: type[CallboardError] | None) -> None:
    found = map_postgres_error(psycopg.errors.lookup(state)("the server's\nwords " + "x" * 900), "postgresql://h/d")
    assert (None if found is None else type(found)) is kind
    if found is not None:
        assert found.path == "postgresql://h/d"
        assert f"({state}: the server's words xxx" in found.message
        assert len(found.message) < 500
        assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("consuming input failed: server closed the connection unexpectedly", StoreDown),
        ('connection failed: FATAL:  password authentication failed for user "u"', StoreError),
        ("connection failed: fe_sendauth: no password supplied", StoreError),
        ('connection failed: FATAL:  no pg_hba.conf entry for host "::1", user "u"', StoreError),
        ("connection failed: FATAL:  sorry, too many clients already", StoreDown),
        ("connection failed: FATAL:  the database system is starting up", StoreDown),
        ("connection failed: session is read-only", StoreReadOnly),
    ],
)
def test_the_words_of_a_refused_connection(words: str, kind: type[CallboardError]) -> None:
    assert type(map_postgres_error(psycopg.OperationalError(words), "x")) is kind
    assert type(map_postgres_error(psycopg.OperationalError(words), "x", committing=True)) is OutcomeUnknown


async def test_a_session_is_durable_and_its_server_ends_it_if_it_stands_still(conn: Connection) -> None:
    await conn.execute("SET idle_in_transaction_session_timeout = 1")
    names = ("synchronous_commit", "lock_timeout", "jit", "client_encoding", "client_connection_check_interval")
    found = [(await conn.execute(f"SHOW {name}")).rows[0][0] for name in names]
    assert found == ["on", "10s", "off", "UTF8", "1s"]
    backend = os.pidfd_open(conn.backend)
    try:
        await conn.execute(BEGIN)
        # The server ends it of its own accord. Asked in the moment before its process is gone, it may go without having said why.
        with trio.fail_after(LIMIT):
            await trio.lowlevel.wait_readable(backend)
    finally:
        os.close(backend)
    with pytest.raises(StoreDown, match="stood still"):
        await conn.execute("SELECT 1")


async def test_a_connection_that_cannot_be_opened_says_why_and_shows_no_password(
    server: Server, tmp_path: Path
) -> None:
    base = f"host={server.sockets}"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for url, kind, words in (
            (f"postgresql://postgres:s3cret@/nothing?{base}", StoreError, "createdb"),
            (f"postgresql://nobody:s3cret@/postgres?{base}", StoreError, "does not let this user in"),
            (f"postgresql://u:s3cret@/d?host={tmp_path}", StoreDown, "check the server"),
            ("postgresql://u:s3cret@127.0.0.1:1/d", StoreDown, "check the server"),
            (f"postgresql://u:s3cret@localhost:{port}/d", StoreDown, "does not answer within 0.5 s"),
            (f"postgresql://u@127.0.0.1:{port}/d?password=s3cret", StoreDown, "does not answer within 0.5 s"),
        ):
            target = Target.parse(url)
            with pytest.raises(kind, match=words) as caught, trio.fail_after(LIMIT):
                await connect(target, seconds=0.5)
            told = "".join(traceback.format_exception(caught.value))
            assert "s3cret" not in told + repr(target) + target.shown
            assert caught.value.path == target.shown
            assert re.fullmatch(r"postgresql://[\w.:]*/\w+(\?host=/[\w./-]+)?", target.shown)
    for wrong in ("postgresql://u:s3cret%zz@h/d", "postgresql://u:s3cret@h:port:/d?x=y", "mysql://u:s3cret@h/d"):
        with pytest.raises(InvalidField) as refused:
            Target.parse(wrong)
        assert "s3cret" not in "".join(traceback.format_exception(refused.value))


async def test_one_of_several_hosts_is_enough(server: Server, url: str) -> None:
    opened = await connect(Target.parse(url.replace("?host=", "?host=127.0.0.1,") + "&port=1,5432"))
    assert (await opened.execute("SELECT 1")).rows == [(1,)]
    opened.close()
