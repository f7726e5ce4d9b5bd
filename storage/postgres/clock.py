"""Store time on PostgreSQL is the server's (RT-18): what this process knows of it between two questions.

The offset to Trio's clock, which only goes forward, is taken where the question was half answered, from the quickest of a few.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from .bridge import Connection
from .tx import CLOCK

EVERY_SECONDS: Final = 60.0
QUESTIONS: Final = 4


class ServerClock:
    """The server's time, as far as it is known."""

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return trio.current_time() + self._offset

    async def measure(self, connection: Connection) -> None:
        """Ask the server for its time. Raises what a connection raises."""
        quickest = math.inf
        for _ in range(QUESTIONS):
            asked = trio.current_time()
            answer = await connection.execute(CLOCK)
            took = trio.current_time() - asked
            if took < quickest:
                quickest, self._offset = took, answer.rows[0][0] - (asked + took / 2)
