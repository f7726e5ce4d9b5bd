"""Change hints: "something changed for X", given after the commit. Hints only, never data: a lost one is a delay of one poll.

Invariant: a callback is called in the Trio thread, must not block and must not raise.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

Callback = Callable[[int], None]
Each = Callable[["str | None"], None]


class Aspect:
    """What about a recipient has changed, as bits: its next look, its events, or what a running turn must be told.

    Plain numbers: a flag enumeration costs more than the rest of a hint, and every message gives three.
    """

    DUE: Final = 1
    EVENTS: Final = 2
    CONTROL: Final = 4


class Changes:
    """Who wants to be told about which recipient. Take the subscription before the read, or a commit between the two is missed."""

    def __init__(self) -> None:
        # Lists: a callback that was added twice is there until it was dropped twice.
        self._by_recipient: dict[str, list[Callback]] = {}
        self._everywhere: list[Callback] = []
        self._each: list[tuple[int, Each]] = []

    @contextmanager
    def watch(self, recipient: str | None, callback: Callback) -> Generator[None]:
        """Call `callback` with what changed for `recipient` (None: for anybody) while the block lasts."""
        self.add(recipient, callback)
        try:
            yield
        finally:
            self.drop(recipient, callback)

    @contextmanager
    def watch_each(self, aspect: int, callback: Each) -> Generator[None]:
        """Call `callback` with each recipient of which `aspect` has changed, or None if it may be anybody's, while the block lasts.

        For one who looks after many that come and go: a watcher for each of them would cost more than it is ever told.
        """
        watcher = (aspect, callback)
        self._each.append(watcher)
        try:
            yield
        finally:
            self._each.remove(watcher)

    def add(self, recipient: str | None, callback: Callback) -> None:
        """Begin to call `callback`; whoever adds it must drop it."""
        if recipient is None:
            self._everywhere.append(callback)
        else:
            self._by_recipient.setdefault(recipient, []).append(callback)

    def publish(self, touched: Mapping[str, int]) -> None:
        """Tell the watchers of every recipient that a batch has touched."""
        together = 0
        for recipient, aspect in touched.items():
            together |= aspect
            for callback in tuple(self._by_recipient.get(recipient, ())):
                callback(aspect)
        if together:
            for callback in tuple(self._everywhere):
                callback(together)
            for wanted, tell in tuple(self._each):
                if together & wanted:
                    for recipient, aspect in touched.items():
                        if aspect & wanted:
                            tell(recipient)

    def publish_all(self) -> None:
        """Tell everybody of everything: hints may have been missed, and nobody knows whose."""
        for callback in [each for watchers in (*self._by_recipient.values(), self._everywhere) for each in watchers]:
            callback(Aspect.DUE | Aspect.EVENTS | Aspect.CONTROL)
        for _, tell in tuple(self._each):
            tell(None)

    def drop(self, recipient: str | None, callback: Callback) -> None:
        """Call `callback` no more."""
        if recipient is None:
            self._everywhere.remove(callback)
            return
        watchers = self._by_recipient[recipient]
        watchers.remove(callback)
        if not watchers:
            del self._by_recipient[recipient]
