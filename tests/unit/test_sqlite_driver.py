"""The SQLite driver where it differs from any other: durability on the file, a full disk, scopes that were rolled back."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import StoreFull, UnknownTarget
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import Claim, CommitTurn
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.sqlite.driver import SqliteDriver, open_sqlite
from callboard.storage.store import Store, open_store

ANN = Sender("ann", "member", "Ann")


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


@pytest.fixture
async def driver() -> AsyncIterator[SqliteDriver]:
    opened = await open_sqlite(":memory:", executor="inline")
    yield opened
    await opened.aclose()


async def value(driver: SqliteDriver, statement: str) -> object:
    return await driver._writer.run(lambda conn: conn.execute(statement).fetchone()[0])


@pytest.mark.spec("INB-1")
async def test_the_writer_waits_for_the_disk(tmp_path: Path) -> None:
    driver = await open_sqlite(str(tmp_path / "store.db"))
    try:
        assert await value(driver, "PRAGMA synchronous") == 2
        assert await value(driver, "PRAGMA journal_mode") == "wal"
        assert await value(driver, "PRAGMA foreign_keys") == 1
    finally:
        await driver.aclose()


@pytest.mark.spec("INB-1")
async def test_what_was_answered_is_on_the_file_at_that_moment(tmp_path: Path) -> None:
    """A copy of the files as they are right after each answer is what a killed process would have left."""
    file = tmp_path / "store.db"
    scope = Scope()

    def image(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for part in tmp_path.glob("store.db*"):
            if not part.name.endswith((".lock", "-shm")):
                shutil.copy(part, folder / part.name)
        return f"sqlite:///{folder}/store.db"

    async with running(f"sqlite:///{file}") as store:
        session = (await store.apply(open_session(scope, "echo"))).session
        receipt = await store.apply(enqueue(scope, session_address(session.id), ANN, "hello", message_id="m-1"))
        accepted = image("accepted")
        claims = await store.apply(Claim("worker", "n-1", 10, 30, frozenset({"echo"})))
        claimed = image("claimed")
        (turn,) = claims.claimed
        await store.apply(CommitTurn(turn.lease, Outcome.ANSWERED, "hi", (turn.head.row,)))
        committed = image("committed")

    async with running(accepted) as store:
        assert (await store.reads.message(scope, receipt.id)).status is Status.PENDING
        assert not (
            await store.apply(enqueue(scope, session_address(session.id), ANN, "hello", message_id="m-1"))
        ).created
    async with running(claimed) as store:
        # The owner is gone: its lease is void at once, and the next claim counts a takeover.
        assert (await store.reads.message(scope, receipt.id)).status is Status.PROCESSING
        (again,) = (await store.apply(Claim("other", "n-1", 10, 30, frozenset({"echo"})))).claimed
        assert (again.head.id, again.takeovers, again.attempts) == (receipt.id, 1, 0)
    async with running(committed) as store:
        assert (await store.reads.message(scope, receipt.id)).status is Status.DELIVERED
        assert [entry.content for entry in await store.reads.transcript(scope, session.id)] == ["hello", "hi"]
        assert (await store.apply(Claim("other", "n-1", 10, 30, frozenset({"echo"})))).claimed == ()


async def test_a_full_disk_fails_the_batch_and_what_fits_goes_on(driver: SqliteDriver) -> None:
    opened = await driver.apply([open_session(Scope(), "echo")])
    session = opened.outcomes[0].session
    pages = await value(driver, "PRAGMA page_count")
    await value(driver, f"PRAGMA max_page_count={pages}")
    ops = [enqueue(Scope(), session_address(session.id), ANN, "x" * 20_000) for _ in range(20)]
    with pytest.raises(StoreFull):
        await driver.apply(ops)
    assert await value(driver, "SELECT count(*) FROM message") == 0
    await value(driver, "PRAGMA max_page_count=100000")
    assert all(receipt.created for receipt in (await driver.apply(ops)).outcomes)


@pytest.mark.spec("NS-5")
async def test_a_project_whose_making_was_rolled_back_is_not_taken_for_the_next_one(driver: SqliteDriver) -> None:
    """Its number is given to the next project, so to remember it would open that one's sessions to strangers."""
    lost, next_one = Scope("default", "lost"), Scope("default", "next")
    pages = await value(driver, "PRAGMA page_count")
    await value(driver, f"PRAGMA max_page_count={pages}")
    opening = open_session(lost, "echo")
    posts = [enqueue(lost, session_address(opening.id), ANN, "x" * 20_000) for _ in range(20)]
    with pytest.raises(StoreFull):
        await driver.apply([opening, *posts])
    await value(driver, "PRAGMA max_page_count=100000")
    session = (await driver.apply([open_session(next_one, "echo", title="secret")])).outcomes[0].session
    refused = (await driver.apply([enqueue(lost, session_address(session.id), ANN, "let me in")])).outcomes[0]
    assert isinstance(refused.error, UnknownTarget)


async def test_the_database_judges_itself(driver: SqliteDriver) -> None:
    assert await driver.read(("integrity", {})) == [[("ok",)]]
