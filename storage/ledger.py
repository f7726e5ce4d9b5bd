"""What the migrations of every database have in common: numbered files, and what was applied compared with them.

Here: reading `NNNN_name.sql`, and refusing a ledger that is not ours to go on from. Not here: running anything. Invariant: files are
numbered from 0001 without a gap, and the text of one that was applied never changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from .model.errors import SchemaTooNew, StoreCorrupt, StoreError, bounded

_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Applicable(Protocol):
    """A migration of any database."""

    @property
    def version(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def checksum(self) -> str: ...


M = TypeVar("M", bound=Applicable)


class File(NamedTuple):
    """One file: its number, the name after it, the SHA-256 (hex) of its text, and that text with `\\n` line ends."""

    version: int
    name: str
    checksum: str
    text: str


def numbered_files(folder: Traversable | Path) -> Iterator[File]:
    """The folder's `NNNN_name.sql` files by number; other files than `.sql` are ignored.

    Raises ValueError naming the file for a bad name, a gap, or a number used twice.
    """
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    for version, file in enumerate(files, start=1):
        match = _FILE_NAME.fullmatch(file.name)
        if match is None or int(match[1]) != version:
            raise ValueError(
                f"{bounded(file.name)}: expected {version:04}_<name>.sql, numbered without a gap or a repeat"
            )
        text = text_of(file)
        yield File(version, match[2], hashlib.sha256(text.encode()).hexdigest(), text)


def text_of(file: Traversable | Path) -> str:
    """The text of a file with `\\n` line ends."""
    return file.read_bytes().decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def still_to_apply(known: Sequence[M], ledger: Sequence[tuple[int, str, str]], path: str) -> list[M]:
    """What of `known` is not in `ledger`, which holds version, name and checksum of what was applied, in order.

    Raises SchemaTooNew, StoreCorrupt (a gap in the ledger), StoreError (an applied migration's file has changed since), naming `path`.
    """
    newest = len(known)
    if ledger and ledger[-1][0] > newest:
        message = (
            f"has schema version {ledger[-1][0]} of a newer Callboard, and this one knows {newest}; update Callboard"
        )
        raise SchemaTooNew(message, path=path)
    if [version for version, _, _ in ledger] != list(range(1, len(ledger) + 1)):
        raise StoreCorrupt("its list of applied migrations has a gap; restore a backup", path=path)
    for migration, (_, name, checksum) in zip(known, ledger, strict=False):
        if (migration.name, migration.checksum) != (name, checksum):
            message = (
                f"migration {migration} is not the one that was applied; install the Callboard that made this database"
            )
            raise StoreError(message, path=path)
    return list(known[len(ledger) :])
