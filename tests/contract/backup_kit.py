"""What the tests of backup and restore share: a store on a file, a backup of it, a database made from that. SQLite only. No judgement here."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import trio

from callboard.storage.sqlite.restoring import Restored, restore
from callboard.storage.store import Store, open_store
from callboard.tests.contract.conftest import Kit


def quiet(doing: str, done: int, total: int) -> None:
    """Nobody is told anything."""


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[Kit]:
    """A store on `file` that runs."""
    async with open_store(f"sqlite:///{file}") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield Kit(store)
        nursery.cancel_scope.cancel()


async def back_up(store: Store, file: Path) -> Path:
    """Write a backup of a store that runs."""
    async with store.backup() as copy, await trio.open_file(file, "wb") as written:
        async for chunk in copy.chunks():
            await written.write(chunk)
        assert await written.tell() == copy.size
    return file


def restored(file: Path, database: Path, *, replace: bool = False) -> Restored:
    return restore(file, database, replace=replace, tell=quiet)


def rows(file: Path, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """What a database holds that nobody has open."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query, arguments).fetchall()


def left_over(folder: Path) -> list[str]:
    """What is neither a database nor a lock: drafts, above all."""
    return sorted(item.name for item in folder.iterdir() if ".draft" in item.name)
