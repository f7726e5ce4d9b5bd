"""The databases that the explorer's days are lived on: a new one for each run, a copy of one that has only its sessions.

Here: what the explorer must know of a database. Not here: the product's own drivers. Another database is one more class and its line
in `STORES`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from callboard.tests.crash.rows import Rows

CLEAN = "clean"
"""The name of the database that has only its sessions."""


class Stores(Protocol):
    """Databases by name, made in `folder` or for it. `jumps`: only the worker itself takes time, so its clock may jump."""

    jumps: bool

    def __init__(self, folder: Path) -> None: ...

    def url(self, name: str) -> str:
        """How a worker opens it."""
        ...

    def rows(self, name: str) -> Rows:
        """How a test reads it behind everybody's back."""
        ...

    def side(self, name: str) -> Path:
        """Where the tools of that day's agents write what they do."""
        ...

    def copy(self, name: str) -> None:
        """Make a copy of the clean one; the workers that had that have ended."""
        ...

    def drop(self, name: str) -> None:
        """Remove it and its side file; nobody uses it any more."""
        ...


class SqliteStores:
    """One file each."""

    jumps = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, name: str) -> str:
        return f"sqlite:///{self._file(name)}"

    def rows(self, name: str) -> Rows:
        return Rows(self._file(name))

    def side(self, name: str) -> Path:
        return Path(f"{self._file(name)}.side")

    def copy(self, name: str) -> None:
        shutil.copy(self._file(CLEAN), self._file(name))

    def drop(self, name: str) -> None:
        for file in self._folder.glob(f"{self._file(name).name}*"):
            file.unlink()

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.db"


STORES: dict[str, type[Stores]] = {"sqlite": SqliteStores}
"""By the scheme of their URLs."""
