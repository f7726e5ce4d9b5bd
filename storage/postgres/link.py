"""A connection that is opened when it is needed, and anew after it was lost.

Here: `Link` and its one rule for repeating. Not here: the protocol (`bridge.py`), what is done on it. Invariant: work is done again only
if surely nothing of it was written (`StoreDown`), and only while its time lasts; an unknown outcome is never repeated here.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from ..model.errors import StoreDown
from .bridge import ROLLBACK, Connection
from .connect import CONNECT_SECONDS, Target, connect
from .faults import BatchesMet

T = TypeVar("T")
FIRST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 2.0
"""The pause before a server that is down is asked again: it doubles from the first to the last. The first time there is none, as a
connection may have been lost long ago."""
MET_SECONDS: Final = 0.005
"""The pause of two batches that met; it doubles too."""
MET_MOST: Final = 8

# Plans are made once, maybe while the tables are empty, and kept. So that they are right when the tables are large, each statement says
# itself how its rows are found: joins go in the order in which they are written, and along indexes.
SETTINGS: Final = """
SET join_collapse_limit = 1;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan;
"""


class Link:
    """One connection to `target`, used by one task at a time. `settings` are sent first when it is opened."""

    def __init__(self, target: Target, settings: str = "") -> None:
        self._target = target
        self._settings = settings
        self._connection: Connection | None = None

    async def use(self, work: Callable[[Connection], Awaitable[T]], *, seconds: float) -> T:
        """Do `work`, which is given a connection in no transaction; again for `seconds` if it surely wrote nothing.

        How long it may take each time is for `work` to say. Raises what the last time raised.
        """
        until = trio.current_time() + seconds
        pause, met = 0.0, 0
        while True:
            try:
                return await self._once(work, until)
            except BatchesMet:
                met += 1
                wait = MET_SECONDS * 2**met
                if met >= MET_MOST or trio.current_time() + wait > until:
                    raise
            except StoreDown:
                self.close()
                wait, pause = pause, min(max(pause * 2, FIRST_SECONDS), MOST_SECONDS)
                if trio.current_time() + wait > until:
                    raise
            await trio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311

    async def open(self, seconds: float = CONNECT_SECONDS) -> Connection:
        """The connection, opened if there is none. Raises `StoreDown` and kinds of `StoreError`."""
        if self._connection is None or self._connection.closed:
            connection = await connect(self._target, seconds=seconds)
            try:
                if self._settings:
                    await connection.script(self._settings)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close it; the next use opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _once(self, work: Callable[[Connection], Awaitable[T]], until: float) -> T:
        connection = await self.open(max(until - trio.current_time(), FIRST_SECONDS))
        try:
            return await work(connection)
        except BaseException:
            # A transaction that failed ends; a connection on which that fails too is of no use.
            if not connection.closed and connection.in_transaction:
                try:
                    await connection.execute(ROLLBACK)
                except BaseException:
                    connection.close()
                    raise
            raise
