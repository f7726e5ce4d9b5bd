"""Who answers a client command: the running server of the folder, else the store itself.

Not here: the questions (`board`), the two who answer (`remote`, `local`). Invariant: a store is opened only where no server answers, and
none is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from ...storage.model.errors import NotFound
from ...storage.store import unapplied
from ..settings import Settings, load_settings
from .announce import find_server
from .arguments import Asked, Place
from .board import Found
from .output import progress

T = TypeVar("T")


def ask(asked: Asked, question: Callable[[Found], Awaitable[T]]) -> T:
    """Find out who answers at the place that is asked, and ask. Raises what `load_settings` and the answer raise."""
    settings = load_settings(asked.settings)

    async def run() -> T:
        async with open_board(settings, asked) as found:
            return await question(found)

    with progress("asking"):
        return trio.run(run)


def wants_json(asked: Asked) -> bool:
    """Whether the answer is for a program: by `--json`, or by the setting."""
    return load_settings(asked.settings).json


@asynccontextmanager
async def open_board(settings: Settings, place: Place) -> AsyncIterator[Found]:
    """The running server, else the store. Raises `NotFound` if there is neither, `StoreLocked` if a store is in use by no server of this folder."""
    server = find_server(settings.data)
    if server is not None:
        from .remote import open_remote

        async with open_remote(server, settings.data) as remote:
            if remote is not None:
                yield Found(remote, server)
                return
    _check_store(settings, place)
    from .local import open_local

    async with open_local(settings) as local:
        yield Found(local, None)


def _check_store(settings: Settings, place: Place) -> None:
    """Raise `NotFound` unless there is a store. On a server it must be up to date too: others may use it at this moment."""
    file = settings.store_file
    if settings.on_server:
        waiting = unapplied(settings.store)
        if waiting:
            advice = f"run {place.command('migrate')} (serve does the same)"
            raise NotFound(f"{settings.store_shown} lacks {', '.join(waiting)}; {advice}")
    elif file is None or not file.exists():
        start = place.command("serve")
        raise NotFound(
            f"no server runs for {settings.data}, and there is no store {file or settings.store}; start one: {start}"
        )
