"""Identifiers. Lives here: making and checking ids; text only, time-ordered so that an index grows at its right edge.

Not here: paths and addresses (`addresses`). Invariant: an id of ours is a prefix, `_` and 32 hex digits, and is never reused.
"""

from __future__ import annotations

import hashlib
import os
import re
import time

from .errors import InvalidField
from .limits import MESSAGE_ID_CHARS

_MESSAGE_ID = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MESSAGE_ID_CHARS}}}\Z")
_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


def new_id(prefix: str) -> str:
    """A fresh `prefix_` id: 48 bits of wall-clock milliseconds, then 80 random bits."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{_random.take().hex()}"


class _Random:
    """Random bytes from the system, fetched many at a time: a call of the system for each id costs more than the rest of it."""

    def __init__(self) -> None:
        self._stock: list[bytes] = []

    def take(self) -> bytes:
        """Ten bytes that nobody else gets; `list.pop` is atomic, so threads may share."""
        try:
            return self._stock.pop()
        except IndexError:
            fresh = os.urandom(10 * 256)
            self._stock.extend(fresh[start : start + 10] for start in range(10, len(fresh), 10))
            return fresh[:10]

    def forget(self) -> None:
        """A forked child must not give out what its parent will."""
        self._stock.clear()


_random = _Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.forget)


def keyed_id(prefix: str, *key: str) -> str:
    """The id that stands for `key`: the same key gives the same id, so what it names can be asked for twice."""
    text = "".join(f"{len(part)}:{part}" for part in key)
    return f"{prefix}_{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def turn_id(message: str) -> str:
    """The id of the turn whose head is message `msg_…`: the same over every attempt (RT-10)."""
    return "turn_" + message.removeprefix("msg_")


def message_of_turn(turn: str) -> str:
    """The inverse of `turn_id`."""
    return "msg_" + turn.removeprefix("turn_")


def check_message_id(value: str, path: str = "message_id") -> str:
    """Return `value` if it is 1–128 of letters, digits and `_ . : -`; else raise `InvalidField`."""
    if not _MESSAGE_ID.match(value):
        raise InvalidField("must be 1 to 128 of letters, digits and _ . : -", path=path)
    return value


def check_client_id(value: str, path: str = "client") -> str:
    """Return `value` if it is 1–64 of a message id's letters; else raise `InvalidField`."""
    if not _CLIENT_ID.match(value):
        raise InvalidField("must be 1 to 64 of letters, digits and _ . : -", path=path)
    return value
