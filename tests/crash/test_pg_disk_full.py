"""A PostgreSQL server says that its disk is full: what was accepted stays, what finds no room is refused, and goes on when there is some.

The server is real and so is its answer (SQLSTATE 53100, given where a table would be extended); no disk is filled, as that needs rights
that not everybody has. Not here: SQLite's (`test_faults`, `test_disk_full`), a server that ends for want of room: that is a restart
(`test_explorer`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callboard.storage.model.errors import StoreFull
from callboard.storage.model.messages import Receipt
from callboard.storage.ops.deliveries import Ended
from callboard.tests.contract.pg_kit import Process, commit, processes
from callboard.tests.contract.postgres_server import session_server

DISK = """
CREATE TABLE ballast (there int);
CREATE FUNCTION extend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT FROM ballast) THEN
        RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file "base/1/2": No space left on device';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER extend BEFORE INSERT ON entry FOR EACH ROW EXECUTE FUNCTION extend();
"""


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    """A process on a database whose disk is full while `ballast` has a row."""
    with session_server().database() as url:
        async with processes(url, 1) as (process,):
            connection = await process.third()
            await connection.script(DISK)
            connection.close()
            yield process


@pytest.mark.spec("INB-1", "RT-9")
async def test_a_full_disk_refuses_and_loses_nothing(process: Process) -> None:
    session = await process.open()
    for n in range(3):
        assert isinstance(await process.post(session, f"text {n}", message_id=f"m-{n}"), Receipt)
    (claimed,) = await process.claim()
    end = commit(claimed, "an answer")
    await process.rows("INSERT INTO ballast VALUES (1) RETURNING there")
    with pytest.raises(StoreFull, match="free some"):
        await process.post(session, "too much", message_id="m-3")
    with pytest.raises(StoreFull):
        await process.batch(end)
    assert await process.rows("SELECT message_id, status FROM message ORDER BY id") == [
        ("m-0", "processing"),
        ("m-1", "pending"),
        ("m-2", "pending"),
    ]
    assert await process.rows("SELECT count(*) FROM marker") == [(0,)]

    await process.rows("DELETE FROM ballast RETURNING there")
    assert isinstance(await process.apply(end), Ended)
    again = await process.post(session, "too much", message_id="m-3")
    assert again.created, "what was refused was there"
    assert await process.rows("SELECT count(*) FROM marker") == [(1,)]
    assert await process.rows("SELECT count(*), max(seq) FROM entry") == [(5, 5)]
