"""Hints between processes over LISTEN and NOTIFY: the payload, and the connection that comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

from callboard.storage.model.errors import StoreDown
from callboard.storage.postgres.bridge import BEGIN, COMMIT, ROLLBACK, Connection, Notification
from callboard.storage.postgres.connect import Target, connect
from callboard.storage.postgres.listen import CHANNEL, NOTIFY, PAYLOAD_BYTES, hints_in, listen, payload_of
from callboard.tests.contract.postgres_server import Server

LIMIT = 10.0


class Heard:
    """What a listener was told, in order: (recipient, aspect), or "all"."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Any](100)

    def hint(self, recipient: str, aspect: int) -> None:
        self._send.send_nowait((recipient, aspect))

    def all(self) -> None:
        self._send.send_nowait("all")

    async def next(self) -> Any:
        with trio.fail_after(LIMIT):
            return await self._receive.receive()


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Heard]:
    heard = Heard()
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await listen(Target.parse(url), "me", on_hint=heard.hint, on_all=heard.all, task_status=task_status)

        await nursery.start(run)
        yield heard
        nursery.cancel_scope.cancel()


def test_a_payload_comes_back_as_it_was() -> None:
    touched = {"session:a": 3, "session:b": 1, "session:é": 3}
    payload = payload_of("p1", touched)
    assert payload == "p1\n3 session:a session:é\n1 session:b"
    assert hints_in(payload, "p2") == touched
    assert hints_in(payload, "p1") == {}, "one's own"


def test_what_is_too_long_or_not_understood_means_everywhere() -> None:
    exact = {"a" * (PAYLOAD_BYTES - len("p\n1 ")): 1}
    assert len(payload_of("p", exact)) == PAYLOAD_BYTES
    assert hints_in(payload_of("p", exact), "q") == exact
    assert payload_of("p", {"a" * (PAYLOAD_BYTES - len("p\n1 ") + 1): 1}) == "p\n*"
    assert payload_of("p", {f"session:{n}": 1 for n in range(5000)}) == "p\n*"
    assert payload_of("p", {"two words": 1}) == "p\n*"
    assert hints_in("p\n*", "q") is None
    assert hints_in("p\n*", "p") == {}
    for other in ("*", "", "p", "p\n1", "p\nx y", "p\n1 a\n*", '{"v": 2}'):
        assert hints_in(other, "q") is None


async def test_the_longest_payload_is_one_that_the_server_takes(conn: Connection) -> None:
    await conn.execute(NOTIFY, ("x" * PAYLOAD_BYTES,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="too long"):
        await conn.execute(NOTIFY, ("x" * (PAYLOAD_BYTES + 1),))


async def test_a_notification_crosses_with_its_commit_and_never_without(url: str, conn: Connection) -> None:
    other = await connect(Target.parse(url))
    await other.script(f"LISTEN {CHANNEL}")
    for end, payload in ((ROLLBACK, "never"), (COMMIT, "first")):
        await conn.execute(BEGIN)
        await conn.execute(NOTIFY, (payload,))
        assert (await other.execute("SELECT 1")).rows == [(1,)]
        await conn.execute(end)
    await conn.execute(NOTIFY, ("second",))
    with trio.fail_after(LIMIT):
        async with aclosing(other.notifies()) as heard:
            assert [await anext(heard) for _ in range(2)] == [
                Notification(CHANNEL, "first"),
                Notification(CHANNEL, "second"),
            ]
            with trio.move_on_after(0):
                await anext(heard)
    assert (await other.execute("SELECT 1")).rows == [(1,)], "who stops waiting for one may go on using it"
    await conn.execute("SELECT pg_terminate_backend($1)", (other.backend,))
    with pytest.raises(StoreDown), trio.fail_after(LIMIT):
        await anext(other.notifies())
    assert other.closed


@pytest.mark.spec("RT-17")
async def test_hints_of_others_come_in_and_ones_own_do_not(url: str, conn: Connection) -> None:
    async with listening(url) as heard:
        assert await heard.next() == "all", "what was committed before it listened"
        await conn.execute(NOTIFY, (payload_of("me", {"session:mine": 1}),))
        await conn.execute(NOTIFY, (payload_of("you", {"session:a": 3, "session:b": 1}),))
        assert [await heard.next(), await heard.next()] == [("session:a", 3), ("session:b", 1)]
        await conn.execute(NOTIFY, ("*",))
        assert await heard.next() == "all"


@pytest.mark.spec("RT-17")
async def test_a_listener_that_was_cut_comes_back_and_looks_everywhere(url: str, conn: Connection) -> None:
    async with listening(url) as heard:
        for _ in range(2):
            assert await heard.next() == "all"
            sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1 AND datname = current_database()"
            assert (await conn.execute(sql, (f"LISTEN {CHANNEL}",))).rowcount == 1
        assert await heard.next() == "all"
        await conn.execute(NOTIFY, (payload_of("you", {"session:a": 1}),))
        assert await heard.next() == ("session:a", 1)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_listener_outlives_a_restart_of_its_server(mode: Any) -> None:
    own = await trio.to_thread.run_sync(Server.launch)
    connection = await connect(Target.parse(own.url()))
    async with listening(own.url()) as heard:
        assert await heard.next() == "all"
        await trio.to_thread.run_sync(own.stop, mode)
        with pytest.raises(StoreDown):
            await connection.execute("SELECT 1")
        with pytest.raises(StoreDown):
            await connect(Target.parse(own.url()))
        await trio.to_thread.run_sync(own.start)
        assert await heard.next() == "all"
        connection = await connect(Target.parse(own.url()))
        await connection.execute(NOTIFY, (payload_of("you", {"session:a": 1}),))
        assert await heard.next() == ("session:a", 1)
        connection.close()
    await trio.to_thread.run_sync(own.stop)


async def test_a_listener_whose_server_is_away_has_started_and_goes_on_trying(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with listening(f"postgresql://u@/d?host={tmp_path}"):
            pass
