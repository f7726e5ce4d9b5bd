"""Streamed text: committed in blocks, then seen (EVT-4). Lives here: when a block closes. Not here: who reads it.

A block closes at 200 bytes, or 50 ms after its first text (250 ms while the commit queue is long). At most one block is being committed;
text that comes meanwhile waits in the next one, which is bounded by making the writer wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count

import trio

from ...storage.model.errors import CallboardError
from ...storage.model.limits import TOKEN_BLOCK_BYTES, TOKEN_BLOCK_SECONDS, TOKEN_BLOCK_SECONDS_LOADED
from ...storage.model.turns import Lease
from ...storage.ops import EmitTokens
from ...storage.store import Store

Flush = Callable[[], Awaitable[None]]
Due = Callable[[], "Flush | None"]

WAITING_BYTES = 16 * 1024
LOADED_DEPTH = 256


class TokenStream:
    """The text that one attempt streams. `text` is all of it; `tail` is what no committed block holds yet."""

    __slots__ = ("_all", "_lease", "_lock", "_pulse", "_size", "_store", "_waiting", "block")

    def __init__(self, store: Store, lease: Lease, pulse: Pulse) -> None:
        self._store = store
        self._lease = lease
        self._pulse = pulse
        self._lock = trio.Lock()
        self._waiting: list[str] = []
        self._size = 0
        self._all: list[str] = []
        self.block = 0

    @property
    def text(self) -> str:
        return "".join(self._all)

    @property
    def tail(self) -> str:
        return "".join(self._waiting)

    async def write(self, text: str) -> None:
        """Add text. Waits only while more than 16 KiB are uncommitted. Raises `LeaseLost`, `StoreDown`."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            # Before anything is kept of it: the clock of all streams would meet it too.
            raise TypeError(f"an agent streams text, not {type(text).__name__}")
        if not text:
            await trio.lowlevel.checkpoint()
            return
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair, which no database takes
        self._all.append(text)
        if not self._waiting:
            loaded = self._store.statistics()["depth"] > LOADED_DEPTH
            self._pulse.at(
                TOKEN_BLOCK_SECONDS_LOADED if loaded else TOKEN_BLOCK_SECONDS, partial(self._due, self.block + 1)
            )
        self._waiting.append(text)
        self._size += len(text.encode())
        if self._size >= WAITING_BYTES or (self._size >= TOKEN_BLOCK_BYTES and not self._lock.locked()):
            await self.flush()
        else:
            await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        """Commit what waits as one block."""
        await self._close(self.block + 1)

    async def _close(self, block: int) -> None:
        """Commit `block` once the one before it is committed, unless somebody else has."""
        async with self._lock:
            if not self._waiting or block <= self.block:
                return
            text = self.tail
            self.block += 1
            # Taken out before the commit: if that is cancelled its outcome is unknown, and the same text must not go out twice.
            self._waiting.clear()
            self._size = 0
            await self._store.apply(EmitTokens(self._lease, self.block, text))

    def _due(self, block: int) -> Flush | None:
        # By number: a block that was closed by its size must not have the next one closed early by its clock.
        return partial(self._close, block) if self._waiting and block > self.block else None


class Pulse:
    """One clock for all streams of a process: a task per open block would cost more than the block."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._numbers = count()
        self._wake = trio.Event()

    def at(self, seconds: float, due: Due) -> None:
        """Ask `due` in `seconds` for what to run then, if anything."""
        heappush(self._heap, (trio.current_time() + seconds, next(self._numbers), due))
        if self._heap[0][2] is due:
            self._wake.set()

    async def run(self) -> None:
        """Run what is due. A flush that fails concerns its turn alone, which meets the same error at its own end."""
        async with trio.open_nursery() as nursery:
            while True:
                with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                    await self._wake.wait()
                self._wake = trio.Event()
                while self._heap and self._heap[0][0] <= trio.current_time():
                    flush = heappop(self._heap)[2]()
                    if flush is not None:
                        nursery.start_soon(_quietly, flush)


async def _quietly(flush: Flush) -> None:
    with suppress(CallboardError):
        await flush()
