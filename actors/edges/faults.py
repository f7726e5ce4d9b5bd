"""What to think of an exception that reaches the edge of a connection.

Lives here: which exceptions are only a client's departure, and how the rest is logged. Not here: catching them.

Invariant: a log line names types and places, never an exception's text: h11's texts quote whole header lines, credentials included.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import cast

import trio
import trio_websocket

FRAMES = 6
"""Innermost stack frames named for each exception."""

DEPARTURES = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
)
"""Raised when the client went, or when we have cut it off: an outcome, not a fault."""


def log_fault(log: logging.Logger, what: str, fault: BaseException) -> None:
    """One error line for `fault`, groups flattened; departures inside a group are left out."""
    log.error("%s failed: %s", what, "; ".join(_describe(leaf) for leaf in _leaves(fault)))


def _leaves(fault: BaseException) -> Iterator[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", fault).exceptions:
            yield from _leaves(member)
    elif not isinstance(fault, (*DEPARTURES, trio.Cancelled)):
        yield fault


def _describe(fault: BaseException) -> str:
    frames = traceback.extract_tb(fault.__traceback__)[-FRAMES:]
    places = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    return f"{type(fault).__module__}.{type(fault).__qualname__} in {places or 'an unknown place'}"
