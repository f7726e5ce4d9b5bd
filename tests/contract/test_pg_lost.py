"""Connections that are lost, servers that restart: what surely wrote nothing is sent again, and what may have is said to be unknown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

from callboard.storage.changes import Aspect
from callboard.storage.model.errors import CallboardError, OutcomeUnknown, StoreDown
from callboard.storage.model.messages import Receipt
from callboard.storage.ops.deliveries import Ended
from callboard.storage.postgres import batch as batches
from callboard.storage.postgres.bridge import Answer, Statement
from callboard.storage.store import Store, open_store, unapplied
from callboard.tests.contract.pg_kit import LIMIT, Process, before, commit, commits, post, processes
from callboard.tests.contract.postgres_server import Server, session_server

Lend = Callable[[], AbstractContextManager[str]]


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop."""
    server = Server.launch(Path(f"/tmp/cb-pg-{os.getuid()}-own-{os.getpid()}"))
    yield server
    server.stop("immediate")


@pytest.mark.spec("RT-9", "INB-13")
@pytest.mark.parametrize("how", ["cut by the server", "closed here"])
async def test_a_connection_that_is_lost_before_commit_costs_nothing(one: Process, how: str) -> None:
    session = await one.open()
    await one.post(session, "warm")  # its statements are prepared, so that only the batch's own exchanges are counted
    counted = await one.counted()
    await one.post(session)
    one.driver._writer.close()
    stages = counted.ways
    assert stages >= 3
    for stage in range(stages - 1):
        connection = await one.driver._writer.open()
        left = count(stage, -1)

        async def lose(_: Sequence[Statement], connection: Any = connection, left: Any = left) -> None:
            if next(left):
                return
            if how == "closed here":
                connection.close()
            else:
                await one.rows(f"SELECT pg_terminate_backend({connection.backend}, 1000)")

        before(connection, lose)
        receipt = await one.post(session, f"{stage}")
        assert isinstance(receipt, Receipt), stage
        assert receipt.created
    rows = await one.rows("SELECT content FROM entry ORDER BY seq")
    assert [content for (content,) in rows[2:]] == [f"{stage}" for stage in range(stages - 1)]


async def lose_answer(one: Process, *, written: bool) -> None:
    """Lose the connection in the exchange that commits, with or without the server having done it."""
    connection = await one.driver._writer.open()
    ask_all = connection.ask_all

    async def losing(statements: Sequence[Statement]) -> list[Answer]:
        if not commits(statements):
            return await ask_all(statements)
        if written:
            await ask_all(statements)
        connection._committing = True
        connection.close()
        raise psycopg.OperationalError("the connection was lost")

    connection.ask_all = losing  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.spec("INB-13")
@pytest.mark.parametrize("written", [True, False])
async def test_a_commit_without_an_answer_is_unknown_and_its_repeat_is_right(one: Process, written: bool) -> None:
    session = await one.open()
    await lose_answer(one, written=written)
    op = post(session, message_id="m-1")
    with pytest.raises(OutcomeUnknown):
        await one.driver.apply([op])
    receipt = await one.apply(op)
    assert receipt.created is not written
    (claimed,) = await one.claim()
    await lose_answer(one, written=written)
    end = commit(claimed)
    with pytest.raises(OutcomeUnknown):
        await one.driver.apply([end])
    assert isinstance(await one.apply(end), Ended)
    assert await one.rows("SELECT count(*) FROM message") == await one.rows("SELECT count(*) FROM marker") == [(1,)]


@pytest.mark.spec("INB-13")
async def test_a_claim_in_an_unknown_batch_is_asked_for_again_under_its_nonce(one: Process) -> None:
    session, other = await one.open(), await one.open()
    await one.post(session)
    await lose_answer(one, written=True)
    claim = one.claim_op()
    with pytest.raises(OutcomeUnknown):
        await one.driver.apply([post(other, "beside"), claim])
    again = (await one.apply(claim)).claimed
    assert session.id in {claimed.session for claimed in again}
    assert await one.rows("SELECT count(*) FROM mailbox WHERE holder = 'a'") == [(len(again),)]


@pytest.mark.parametrize("stage", ["before", "at"])
async def test_a_server_that_stands_still_is_given_up_in_time(
    one: Process, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await one.open()
    monkeypatch.setattr(batches, "COMMIT_SECONDS", 0.2)
    gate = await one.gate(when=commits if stage == "at" else lambda statements: "BEGIN" in statements[0][0])
    with pytest.raises(CallboardError) as caught:
        await one.driver._writer.use(batches.Batch([post(session)], "p", {}).commit, seconds=0)
    assert gate.reached.is_set()
    assert type(caught.value) is (OutcomeUnknown if stage == "at" else StoreDown)
    assert (await one.post(session)).seq == 1


@pytest.mark.spec("RT-17")
async def test_what_one_process_commits_wakes_the_others(postgres: Lend) -> None:
    with postgres() as url:
        async with open_store(url) as store, processes(url, 1) as (other,), trio.open_nursery() as nursery:
            told, heard = trio.open_memory_channel[int](100)
            await nursery.start(store.run)
            session = await other.open()
            with store.changes.watch(f"session:{session.id}", told.send_nowait):
                await other.post(session)
                with trio.fail_after(LIMIT):
                    assert await heard.receive() == Aspect.DUE | Aspect.EVENTS
                # After a connection was lost nobody knows what was missed.
                await other.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
                with trio.fail_after(LIMIT):
                    assert await heard.receive() == Aspect.DUE | Aspect.EVENTS | Aspect.CONTROL
            nursery.cancel_scope.cancel()


@pytest.mark.spec("RT-9", "INB-1")
async def test_a_restart_under_load_loses_nothing_and_doubles_nothing(own_server: Server) -> None:
    with own_server.database() as url:
        async with open_store(url) as store, trio.open_nursery() as nursery:
            await nursery.start(store.run)
            async with processes(url, 1) as (other,):
                sessions = [await other.open() for _ in range(8)]
                accepted: list[Receipt] = []
                numbers = iter(range(2_000))
                marks = {500: trio.Event(), 1_000: trio.Event()}

                async def produce(store: Store) -> None:
                    for number in numbers:
                        op = post(sessions[number % 8], f"{number}", message_id=f"m-{number}")
                        while True:
                            try:
                                accepted.append(await store.apply(op))
                            except (OutcomeUnknown, StoreDown):
                                continue
                            if len(accepted) in marks:
                                marks[len(accepted)].set()
                            break

                async with trio.open_nursery() as producers:
                    for _ in range(16):
                        producers.start_soon(partial(produce, store))
                    for mark, mode in zip(marks.values(), ("immediate", "fast"), strict=True):
                        with trio.fail_after(LIMIT):
                            await mark.wait()
                        await trio.to_thread.run_sync(own_server.restart, mode)
                assert len(accepted) == 2_000
                assert len({receipt.id for receipt in accepted}) == 2_000
                rows = await other.rows("SELECT uid FROM message")
                assert {uid for (uid,) in rows} == {receipt.id for receipt in accepted}
                found = await other.rows(
                    "SELECT count(*) = max(seq), count(DISTINCT seq) = max(seq) FROM entry GROUP BY mailbox"
                )
                assert found == [(1, 1)] * 8
            nursery.cancel_scope.cancel()


@pytest.mark.spec("OPS-5")
async def test_what_opening_would_apply_is_told_and_not_done() -> None:
    with session_server().database() as url:
        waiting = unapplied(url)
        assert waiting == unapplied(url) != ()
        async with open_store(url) as store:
            assert store.migrated == waiting
        assert unapplied(url) == ()
