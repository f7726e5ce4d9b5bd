"""What every op is. Lives here: lanes, the base class, the type of its result, what a value weighs. Not here: any op."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from ..model.limits import BATCH_BYTES

R_co = TypeVar("R_co", covariant=True)


class Lane(IntEnum):
    """The order in which a batch is filled: who holds a lease must never wait behind newcomers (RT-14)."""

    HOLDERS = 0
    CLAIMS = 1
    ENQUEUES = 2


class Op(Generic[R_co]):
    """A write as a value. `repeat` says in one sentence why applying it twice is the same as once.

    `size` is the op's weight in bytes for the commit queue's limit: of all that it carries, estimated and rather too large.
    """

    __slots__ = ()
    lane: ClassVar[Lane] = Lane.ENQUEUES
    repeat: ClassVar[str] = ""

    @property
    def size(self) -> int:
        return 256

    @property
    def wakes(self) -> bool:
        """Whether it may make a mailbox due at once: then a waiting claim goes with it."""
        return False


_OTHER: Final = 24
"""A number, a constant, and what stands around a value in JSON."""


def text_size(text: str | None) -> int:
    """What a text takes at most as UTF-8, without encoding it."""
    return 0 if text is None else len(text) if text.isascii() else 4 * len(text)


def json_size(value: Any) -> int:
    """About what a JSON value takes, without dumping it: that is done once, where it is written.

    Counting ends at what fills a batch: more makes no difference, and what is not JSON may have no end.
    """
    size, waiting = 0, [value]
    while waiting and size < BATCH_BYTES:
        item = waiting.pop()
        size += _OTHER
        if isinstance(item, str):
            size += text_size(item)
        elif isinstance(item, dict):
            for key, inner in cast("dict[Any, Any]", item).items():
                size += text_size(key) if isinstance(key, str) else _OTHER
                waiting.append(inner)
        elif isinstance(item, (list, tuple)):
            waiting.extend(cast("list[Any]", item))
    return size
