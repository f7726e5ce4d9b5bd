"""`callboard backup` and `callboard restore`. Not here: how a copy is made and examined, and what a restore changes in it (`storage`).

Invariant: a file gets its name only when it was read through and found whole, and whatever ends a command before that leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from ...storage.drafts import Draft
from ...storage.model.errors import NotFound, Rejected
from ...storage.sqlite.copying import Backup, copy_at_rest, examine
from ...storage.sqlite.restoring import Restored, restore
from ...storage.store import without_file
from ...storage.wire import rfc3339
from ..doctor import MIB
from ..settings import Settings, load_settings
from .announce import find_server, take_folder
from .arguments import Asked
from .output import as_json, line, note, progress

T = TypeVar("T")


@attrs.define
class Stage:
    """What is being done, for whoever waits: told by the thread that does it, read by the one that shows it."""

    doing: str
    done: int = 0
    total: int = 0

    def tell(self, doing: str, done: int, total: int) -> None:
        """The `Tell` of work in a thread of Trio's: Ctrl-C ends it here."""
        self.doing, self.done, self.total = doing, done, total
        trio.from_thread.check_cancelled()

    def got(self, done: int, total: int) -> None:
        """So much has come from the server."""
        self.doing, self.done, self.total = "fetching", done, total

    def __str__(self) -> str:
        return f"{self.doing} {100 * self.done // self.total} %" if self.total else self.doing


def backup_command(file: Path, force: bool, asked: Asked) -> int:
    """Make the backup `file`: from the running server, else from the store itself."""
    settings = load_settings(asked.settings)
    database, target = database_of(settings), Path(os.path.abspath(file))
    # Before the work is done, and once more when the name is given: that one decides.
    if os.path.lexists(target) and not force:
        raise Rejected("exists already; --force replaces it", path=str(target))
    if target.is_dir():
        raise Rejected("is a folder; name a file", path=str(target))
    stage = Stage("copying")

    async def run() -> Backup:
        with Draft(target) as draft:
            if not await _fetch(settings, draft, stage):
                if not database.exists():
                    start = asked.command("serve")
                    raise NotFound(
                        f"no server runs for {settings.data}, and there is no store {database}; start one: {start}"
                    )
                await _in_thread(partial(copy_at_rest, database, draft, stage.tell))
            made = await _in_thread(partial(examine, draft, stage.tell))
            draft.publish(replace=force)
            return made

    with progress(stage):
        made = trio.run(run)
    at = rfc3339(made.made_at)
    if settings.json:
        as_json({"file": str(target), "bytes": made.size, "made_at": at, "schema": made.schema})
    else:
        line(f"{target}: {made.size / MIB:.1f} MiB, as of {at}; read through, and whole")
    return 0


def restore_command(file: Path, force: bool, asked: Asked) -> int:
    """Make a backup the store of a folder in which no server runs."""
    settings = load_settings(asked.settings)
    database, source = database_of(settings), Path(os.path.abspath(file))
    stage = Stage("copying")

    if not source.exists():
        raise NotFound("does not exist", path=str(source))  # before a folder is made for it

    async def run() -> Restored:
        settings.make_folder()
        with await take_folder(settings.data):
            work = partial(restore, source, database, replace=force, tell=stage.tell)
            return await _in_thread(work)

    with progress(stage):
        done = trio.run(run)
    at, kept = rfc3339(done.backup.made_at), None if done.kept is None else str(done.kept)
    if settings.json:
        as_json({"store": settings.store, "made_at": at, "schema": done.backup.schema, "kept": kept})
    else:
        line(f"{database}: as of {at}" + (f"; what was there is {kept}" if kept else ""))
        note(f"Tokens revoked and members suspended since then are valid again: {asked.command('token list')}")
        note(f"Start it: {asked.command('serve')}")
    return 0


def database_of(settings: Settings) -> Path:
    """The store's file. Raises `Rejected` for a store that is none."""
    file = settings.store_file
    if file is None:
        raise Rejected(without_file(settings.store), path="store")
    return file


async def _fetch(settings: Settings, draft: Draft, stage: Stage) -> bool:
    """Have the running server's copy written into `draft`; False if none runs."""
    server = find_server(settings.data)
    if server is None:
        return False
    from .remote import open_remote

    async with open_remote(server, settings.data) as remote:
        if remote is None:
            return False
        await remote.backup(draft.append, stage.got)
        return True


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
