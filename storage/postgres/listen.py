"""Hints of other processes (RT-17): what a batch has touched goes out with NOTIFY in its transaction and comes in over LISTEN.

Here: the payload, and the one listening connection, which opens itself anew for as long as it takes. Not here: who is told
(`changes.py`), polling at the next `due`. Invariant: hints only, never data. Whatever may have been missed (while the connection was
down, a payload too long, one that can't be read) is answered by looking everywhere, so a lost hint is a delay and never a message.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, NoReturn

import trio

from ..model.errors import CallboardError
from .connect import Target, connect

CHANNEL: Final = "callboard"
NOTIFY: Final = "SELECT pg_notify('callboard', $1)"
"""The statement that sends a payload; to be run within the batch's transaction, so that it goes out with the commit and never without."""
PAYLOAD_BYTES: Final = 7_999
"""The server refuses 8,000."""
EVERYWHERE: Final = "*"
FIRST_SECONDS: Final = 0.05
MOST_SECONDS: Final = 5.0
"""The pause before a connection is opened again: it doubles from the first to the last."""

log: Final = logging.getLogger("callboard.store")


def payload_of(process: str, touched: Mapping[str, int]) -> str:
    """What `process` says it has touched: recipients by their aspects, or "everywhere" if that is too long.

    A line names the process; each further one is an aspect and its recipients, with spaces between.
    """
    groups: dict[int, list[str]] = {}
    for recipient, aspect in touched.items():
        groups.setdefault(aspect, []).append(recipient)
    payload = "\n".join([process, *(f"{aspect} {' '.join(names)}" for aspect, names in groups.items())])
    whole = len(payload.encode()) <= PAYLOAD_BYTES and not any(" " in name or "\n" in name for name in touched)
    return payload if whole else f"{process}\n{EVERYWHERE}"


def hints_in(payload: str, process: str) -> dict[str, int] | None:
    """What another process has touched; nothing if it was `process` itself; None for "look everywhere"."""
    sender, *lines = payload.split("\n")
    if sender == process:
        return {}
    hints: dict[str, int] = {}
    for line in lines:
        aspect, _, names = line.partition(" ")
        if not aspect.isdecimal() or not names:
            return None  # "*", or what a newer version says
        hints.update(dict.fromkeys(names.split(" "), int(aspect)))
    return hints or None


async def listen(
    target: Target,
    process: str,
    *,
    on_hint: Callable[[str, int], object],
    on_all: Callable[[], object],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Call `on_hint(recipient, aspect)` for what others than `process` touch, and `on_all()` when anything may have been missed.

    It has started when the first connection listens or has failed. It ends by cancellation alone; the callbacks must not block or raise.
    """
    pause = FIRST_SECONDS
    failing = False
    while True:
        try:
            connection = await connect(target)
            try:
                await connection.script(f"LISTEN {CHANNEL}")
                if failing:
                    log.warning("hints of other processes come in again")
                pause, failing = FIRST_SECONDS, False
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                on_all()
                async with aclosing(connection.notifies()) as heard:
                    async for notification in heard:
                        _tell(hints_in(notification.payload, process), on_hint, on_all)
            finally:
                connection.close()
        except CallboardError as error:
            if not failing:
                log.warning("no hints of other processes come in, so rows are found by polling: %s", error)
            failing = True
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
        # All processes lose their connections at once when the server restarts: they must not all come back in the same moment.
        await trio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(pause * 2, MOST_SECONDS)


def _tell(hints: dict[str, int] | None, on_hint: Callable[[str, int], object], on_all: Callable[[], object]) -> None:
    if hints is None:
        on_all()
        return
    for recipient, aspect in hints.items():
        on_hint(recipient, aspect)
