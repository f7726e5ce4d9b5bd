"""What a client keeps between two runs, so that the second one is a reload of the first: where it was, and what it has acted upon.

Lives here: the shape, the protocol for whoever embeds a client, and a file. Not here: what it is good for (`handoffs`, `front`).

Invariant: it is saved whole, in the moment it changes: the open session and the handoff that led there are never apart.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, Protocol

import attrs

from ...storage.model.errors import CallboardError
from ...storage.model.ids import check_client_id
from ...storage.wire import parse_object, structure
from .handoffs import Key

TRAIL_MOST: Final = 50


@attrs.frozen
class Kept:
    """Of one client: its id, the open session, handled event ids (oldest first), the sessions to go back to (newest last).

    `going`: the user went to `open` and the server has not said yet that it noted so.
    """

    client: str
    open: str | None = None
    handled: tuple[Key, ...] = ()
    trail: tuple[str, ...] = ()
    going: bool = False


class Remembered(Protocol):
    """Where a front keeps it. Called in the front's own task, so it must not take long."""

    def load(self) -> Kept | None:
        """What was kept; None if nothing was, or it can't be read."""
        ...

    def save(self, kept: Kept) -> None:
        """Keep this instead."""
        ...


@attrs.define
class InMemory:
    """For a client that is new each time it is started."""

    kept: Kept | None = None

    def load(self) -> Kept | None:
        """See `Remembered`."""
        return self.kept

    def save(self, kept: Kept) -> None:
        """See `Remembered`."""
        self.kept = kept


@attrs.frozen
class FileMemory:
    """A file for one client, readable by its user alone: a terminal's, for instance. Two at a time need two files."""

    file: Path

    def load(self) -> Kept | None:
        """See `Remembered`."""
        try:
            kept = structure(parse_object(self.file.read_bytes()), Kept)
            check_client_id(kept.client)
        except (OSError, CallboardError):
            return None
        return kept

    def save(self, kept: Kept) -> None:
        """See `Remembered`. A file that can't be written is left: the next run then begins anew."""
        fresh = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as out:
                json.dump(attrs.asdict(kept), out)
            fresh.replace(self.file)
        except OSError:
            fresh.unlink(missing_ok=True)
