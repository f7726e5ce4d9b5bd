"""Fixtures that every folder of tests uses. Not here: anything that one folder alone needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from callboard.storage.store import Store, open_store


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A running store, on each database that the contract suite is run on."""
    url = "sqlite:///:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with open_store(url) as opened, trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store of this test's own: a SQLite file in `tmp_path`, then a PostgreSQL database. A test that takes it runs on both."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/callboard.db"
        return
    from callboard.tests.contract.postgres_server import session_server

    with session_server().database() as url:
        yield url
