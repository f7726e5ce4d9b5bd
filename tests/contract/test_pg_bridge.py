"""PostgreSQL as Trio sees it, on a real server: statements, cancellation, lost connections, greenlets, and what errors mean."""

from __future__ import annotations

import contextvars
import enum
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import trio

from callboard.storage.model.errors import (
    OutcomeUnknown,
    StoreDown,
)
from callboard.storage.postgres.bridge import BEGIN, COMMIT, ROLLBACK, Ask, Connection, in_greenlet
from callboard.storage.postgres.connect import Target, connect
from callboard.storage.postgres.faults import BatchesMet
from callboard.tests.contract.postgres_server import Server

LIMIT = 10.0
var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="none")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.fixture
async def other(url: str) -> AsyncIterator[Connection]:
    opened = await connect(Target.parse(url))
    yield opened
    opened.close()


async def until(asked: Connection, sql: str) -> None:
    """Ask the server until `sql` gives a row: what it waits for happens in the server and tells nobody."""
    with trio.fail_after(LIMIT):
        while not (await asked.execute(sql)).rows:
            pass


async def test_values_come_back_as_sqlite_would_give_them(conn: Connection) -> None:
    values = ("a'\\\"é\u2028", 2**62, -1, True, False, 0.1, 1e300, b"\0\xff'", None, Colour.RED)
    types = ("text", "bigint", "integer", "integer", "boolean", *["double precision"] * 2, "bytea", "text", "text")
    sql = "SELECT " + ", ".join(f"${n}::{kind}" for n, kind in enumerate(types, start=1))
    (row,) = (await conn.execute(sql, values)).rows
    assert row == ("a'\\\"é\u2028", 2**62, -1, 1, 0, 0.1, 1e300, b"\0\xff'", None, "red")
    assert [type(value) for value in row[2:5]] == [int, int, int]
    (row,) = (await conn.execute("SELECT sum(n), avg(n), count(*) FROM unnest($1::bigint[]) n", ([2**60, 2**60],))).rows
    assert row == (2**61, float(2**60), 2)
    assert type(row[0]) is int
    texts = ['a"b', "c\\d", "", "NULL", "{x,y}", None]
    rows = (await conn.execute("SELECT * FROM unnest($1::text[], $2::bytea[])", (texts, [b"\\", b'"', b"", None]))).rows
    assert [row[0] for row in rows] == texts
    assert [row[1] for row in rows] == [b"\\", b'"', b"", None, None, None]


async def test_what_a_parameter_cannot_be_is_refused_and_the_connection_goes_on(conn: Connection) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        await conn.execute("SELECT $1::text", ("a\0b",))
    with pytest.raises(UnicodeEncodeError):
        await conn.execute("SELECT $1::text", ("\ud800",))
    for wrong in (object(), [[1]]):
        with pytest.raises(TypeError):
            await conn.execute("SELECT $1::text", (wrong,))
    for sql, args, kind in (
        ("SELECT 1 / $1::integer", (0,), psycopg.errors.DivisionByZero),
        ("SELECT $1::bigint", (2**63,), psycopg.errors.NumericValueOutOfRange),
        ("SELECT nothing", (), psycopg.errors.UndefinedColumn),
    ):
        with pytest.raises(kind):
            await conn.execute(sql, args)
        assert await conn.execute("SELECT 1") == ([(1,)], 1)


async def test_a_statement_is_prepared_once_and_counts_its_rows(conn: Connection) -> None:
    await conn.script("CREATE TABLE t (a integer); CREATE TABLE u (b text)")
    for n in range(3):
        assert (await conn.execute("INSERT INTO t VALUES ($1)", (n,))).rowcount == 1
    assert await conn.execute("UPDATE t SET a = a + $1", (1,)) == ([], 3)
    assert await conn.execute("DELETE FROM t WHERE a > $1 RETURNING a", (2,)) == ([(3,)], 1)
    sql = (
        "SELECT count(*), max(generic_plans + custom_plans) FROM pg_prepared_statements WHERE statement LIKE 'INSERT%'"
    )
    assert (await conn.execute(sql)).rows == [(1, 3)]


async def test_several_statements_in_one_exchange_are_all_or_none(conn: Connection) -> None:
    await conn.script("CREATE TABLE t (a integer PRIMARY KEY)")
    insert = "INSERT INTO t VALUES ($1) RETURNING a"
    answers = await conn.executes([(insert, (1,)), ("SELECT 7", ()), (insert, (2,))])
    assert [answer.rows for answer in answers] == [[(1,)], [(7,)], [(2,)]]
    with pytest.raises(psycopg.errors.UniqueViolation):
        await conn.executes([(insert, (3,)), (insert, (1,)), (insert, (4,))])
    assert (await conn.execute("SELECT a FROM t ORDER BY a")).rows == [(1,), (2,)]
    assert await conn.executes([]) == []


async def test_more_than_the_socket_holds_goes_both_ways(conn: Connection) -> None:
    much = "x" * (3 << 20)
    answers = await conn.executes([("SELECT $1::text", (much,))] * 3)
    assert [len(answer.rows[0][0]) for answer in answers] == [len(much)] * 3


async def test_two_tasks_at_once_are_refused(conn: Connection) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conn.execute, "SELECT pg_sleep(0.05)")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await conn.execute("SELECT 1")
    assert (await conn.execute("SELECT 1")).rows == [(1,)]


async def test_a_cancelled_statement_closes_the_connection_and_the_server_gives_up_too(
    conn: Connection, other: Connection
) -> None:
    await other.script("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)")
    await conn.execute(BEGIN)
    await conn.execute("UPDATE t SET a = 2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conn.execute, "SELECT pg_sleep(60)")
        await until(other, f"SELECT 1 FROM pg_stat_activity WHERE pid = {conn.backend} AND wait_event = 'PgSleep'")
        nursery.cancel_scope.cancel()
    assert conn.closed
    assert not conn.in_transaction
    with pytest.raises(StoreDown, match="closed"):
        await conn.execute("SELECT 1")
    # Its row is free again: it did not go on holding it until its sleep was over.
    with trio.fail_after(LIMIT):
        await other.execute("UPDATE t SET a = 3 WHERE a = 1")
    assert (await other.execute("SELECT a FROM t")).rows == [(3,)]


async def test_what_is_cancelled_before_it_is_sent_never_runs(conn: Connection) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await conn.execute("SELECT nothing")
    assert scope.cancelled_caught
    assert (await conn.execute("SELECT 1")).rows == [(1,)]


async def test_closing_wakes_who_waits(conn: Connection) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _() -> None:
            with pytest.raises(StoreDown):
                await conn.execute("SELECT pg_sleep(60)")

        await trio.testing.wait_all_tasks_blocked()
        conn.close()
        conn.close()


async def test_a_connection_lost_before_commit_has_written_nothing(
    server: Server, conn: Connection, other: Connection
) -> None:
    await other.script("CREATE TABLE t (a integer)")
    await conn.execute(BEGIN)
    await conn.execute("INSERT INTO t VALUES (1)")
    await other.execute("SELECT pg_terminate_backend($1)", (conn.backend,))
    with pytest.raises(StoreDown) as caught:
        await conn.execute("INSERT INTO t VALUES (2)")
    assert not isinstance(caught.value, OutcomeUnknown)
    assert conn.closed
    assert (await other.execute("SELECT a FROM t")).rows == []


@pytest.mark.parametrize("pipelined", [False, True])
async def test_a_connection_lost_during_commit_leaves_the_outcome_unknown(
    conn: Connection, other: Connection, pipelined: bool
) -> None:
    await conn.script("""CREATE TABLE t (a integer);
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()""")
    await conn.execute(BEGIN)
    if not pipelined:
        await conn.execute("INSERT INTO t VALUES (1)")
    caught: list[BaseException] = []

    async def commit() -> None:
        try:
            if pipelined:
                await conn.executes([("INSERT INTO t VALUES (1)", ()), (COMMIT, ())])
            else:
                await conn.execute(COMMIT)
        except OutcomeUnknown as unknown:
            caught.append(unknown)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        await until(other, f"SELECT 1 FROM pg_stat_activity WHERE pid = {conn.backend} AND wait_event = 'PgSleep'")
        await other.execute("SELECT pg_terminate_backend($1)", (conn.backend,))
    assert caught
    assert conn.closed


async def test_batches_that_wait_for_each_other_are_to_be_repeated(conn: Connection, other: Connection) -> None:
    await conn.script("CREATE TABLE t (a integer); INSERT INTO t VALUES (1), (2)")
    update = "UPDATE t SET a = a WHERE a = $1"
    for connection, row in ((conn, 1), (other, 2)):
        await connection.execute(BEGIN)
        await connection.execute(update, (row,))
    met: list[Connection] = []

    async def cross(connection: Connection, row: int) -> None:
        try:
            await connection.execute(update, (row,))
        except BatchesMet:
            met.append(connection)
        await connection.execute(ROLLBACK)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cross, conn, 2)
        nursery.start_soon(cross, other, 1)
    assert len(met) == 1
    assert not met[0].closed
    assert (await met[0].execute("SELECT 1")).rows == [(1,)]


# -- greenlets ----------------------------------------------------------------------------------------------------------


async def test_a_function_asks_within_its_own_task_and_context(conn: Connection) -> None:
    var.set("outer")
    task = trio.lowlevel.current_task()

    def fn(ask: Ask) -> list[Any]:
        assert trio.lowlevel.current_task() is task
        assert var.get() == "outer"
        (one,) = ask("SELECT $1::integer", (1,)).rows
        var.set("inner")
        two, three = ask.all([("SELECT 2", ()), ("SELECT 3", ())])
        assert ask.all([]) == []
        assert var.get() == "inner"
        assert trio.lowlevel.current_task() is task
        return [one, *two.rows, *three.rows]

    assert await in_greenlet(conn, fn) == [(1,), (2,), (3,)]
    assert var.get() == "inner", "it is one context, as with a plain call"
    assert await in_greenlet(conn, lambda _: "nothing asked") == "nothing asked"


async def test_greenlets_of_several_tasks_do_not_mix(conn: Connection, other: Connection) -> None:
    seen: dict[str, list[str]] = {}

    def fn(ask: Ask) -> None:
        name = var.get()
        for n in range(20):
            (row,) = ask("SELECT $1::text", (f"{name}{n}",)).rows
            assert var.get() == name
            seen.setdefault(name, []).append(row[0])

    async def one(name: str, connection: Connection) -> None:
        var.set(name)
        await in_greenlet(connection, fn)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "a", conn)
        nursery.start_soon(one, "b", other)
    assert seen == {name: [f"{name}{n}" for n in range(20)] for name in "ab"}


async def test_errors_pass_through_a_greenlet_both_ways(conn: Connection) -> None:
    await conn.script("CREATE TABLE t (a integer PRIMARY KEY)")

    def saves(ask: Ask) -> str:
        for sql in (BEGIN, "INSERT INTO t VALUES (1)", "SAVEPOINT op"):
            ask(sql)
        try:
            ask("INSERT INTO t VALUES (1)")
        except psycopg.errors.UniqueViolation:
            ask("ROLLBACK TO op")
        ask(COMMIT)
        return "saved"

    assert await in_greenlet(conn, saves) == "saved"
    assert (await conn.execute("SELECT a FROM t")).rows == [(1,)]

    def fails(ask: Ask) -> None:
        ask("SELECT 1")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await in_greenlet(conn, fails)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await in_greenlet(conn, lambda ask: ask("INSERT INTO t VALUES (1)"))

    def loses(ask: Ask) -> None:
        with pytest.raises(psycopg.Error) as caught:
            ask("SELECT pg_terminate_backend(pg_backend_pid())")
        raise caught.value

    with pytest.raises(StoreDown):
        await in_greenlet(conn, loses)


async def test_a_cancellation_is_raised_where_the_function_waits(conn: Connection) -> None:
    ended: list[str] = []

    def fn(ask: Ask) -> None:
        try:
            ask("SELECT pg_sleep(60)")
        except trio.Cancelled:
            ended.append("cancelled")
            with pytest.raises(psycopg.OperationalError, match="closed"):
                ask("SELECT 1")
            raise
        finally:
            ended.append("finally")

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_greenlet, conn, fn)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert ended == ["cancelled", "finally"]
    assert conn.closed
