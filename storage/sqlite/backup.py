"""A backup of a store that runs, as a stream of bytes: a copy is made beside the database, then read.

Lives here: `Copy`, making one off the Trio thread. Not here: how a copy is made and what is in it (`copying`), where it goes.

Invariant: the copy has no name while it is read, and is gone when the block ends, or the process. A cancel ends the copying at its next step.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from ..drafts import Draft
from .copying import copy_in_use

CHUNK_BYTES: Final = 256 * 1024
CLOSE_SECONDS: Final = 10.0


@attrs.frozen
class Copy:
    """A copy of the database, of `size` bytes. `made_at` is store time in seconds."""

    size: int
    made_at: float
    _draft: Draft
    _threads: trio.CapacityLimiter

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """All of it, in order."""
        for start in range(0, self.size, CHUNK_BYTES):
            # In a thread: what is no longer in memory is read from the disk.
            yield await trio.to_thread.run_sync(
                os.pread, self._draft.descriptor, CHUNK_BYTES, start, limiter=self._threads
            )


@asynccontextmanager
async def open_copy(file: Path, now: float) -> AsyncIterator[Copy]:
    """A copy of the database that this process has open. `now` is store time. Raises `StoreFull`, and kinds of `StoreError`."""
    threads = trio.CapacityLimiter(1)  # its own: agents that block may have taken all of Trio's
    draft = await trio.to_thread.run_sync(partial(_make, file, now), limiter=threads)
    try:
        yield Copy(draft.size, now, draft, threads)
    finally:
        # In the thread as well: freeing 200 MB has been seen to take half a second.
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await trio.to_thread.run_sync(draft.close, limiter=threads, abandon_on_cancel=True)


def _make(file: Path, now: float) -> Draft:
    draft = Draft(file.with_name(f"{file.name}.backup"))
    try:
        copy_in_use(file, draft, now, _go_on)
        draft.hide()
    except BaseException:
        draft.close()
        raise
    return draft


def _go_on(_: str, __: int, ___: int) -> None:
    trio.from_thread.check_cancelled()
