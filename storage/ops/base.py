"""What every op is. Lives here: lanes, the base class, the type of its result. Not here: any op."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Lane(IntEnum):
    """The order in which a batch is filled: who holds a lease must never wait behind newcomers (RT-14)."""

    HOLDERS = 0
    CLAIMS = 1
    ENQUEUES = 2


class Op(Generic[R_co]):
    """A write as a value. `repeat` says in one sentence why applying it twice is the same as once.

    `size` is the op's weight in bytes for the commit queue's limit.
    """

    __slots__ = ()
    lane: ClassVar[Lane] = Lane.ENQUEUES
    repeat: ClassVar[str] = ""

    @property
    def size(self) -> int:
        return 256
