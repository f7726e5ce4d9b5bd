"""Fixtures that every folder of tests uses. Not here: anything that one folder alone needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
