"""One process owns an SQLite file: an exclusive flock on `<file>.lock`, held until released or until the process is gone.

Here: taking, announcing and releasing the lock, and reading who holds it. Not here: SQLite's own locks, which protect single
transactions only. Invariant: the kernel's lock decides; the JSON inside only tells people whose it is, so what a killed process left
there is harmless. The lock lies beside the database, never on it: closing a descriptor of the database would drop SQLite's locks.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import attrs

from ..model.errors import StoreError, StoreLocked, bounded
from .faults import is_a_folder, map_os_error, shown

SUFFIX = ".lock"
CONTENT_LIMIT = 4096
FIELD_LIMIT = 200


@attrs.frozen
class LockOwner:
    """Who holds the file: `since` is RFC 3339 UTC, `url` where its server listens, if it serves."""

    pid: int
    host: str
    since: str
    url: str | None = None

    def __str__(self) -> str:
        serving = f", serving {self.url}" if self.url else ""
        return f"pid {self.pid} on host {self.host}, since {self.since}{serving}"


class FileLock:
    """A held lock. Leaving its `with` block releases it."""

    def __init__(self, descriptor: int, path: Path, owner: LockOwner) -> None:
        self.path = path
        self.owner = owner
        self._descriptor: int | None = descriptor
        self._write()

    def announce(self, url: str) -> None:
        """Tell whoever is refused where this process serves."""
        self.owner = attrs.evolve(self.owner, url=url)
        self._write()

    def release(self) -> None:
        """Give the file up. A second call does nothing. The lock file stays: unlinking it would let two processes lock two inodes."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            # A program that is being started has a copy until its exec, so closing alone would not unlock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _write(self) -> None:
        if self._descriptor is None:
            return
        content = json.dumps(attrs.asdict(self.owner, filter=lambda _, value: value is not None)).encode() + b"\n"
        # Written before it is cut, so a reader in between finds the new JSON and a tail that it ignores.
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))


def acquire_lock(database: str | os.PathLike[str]) -> FileLock:
    """Lock the file at once or fail; every spelling of a file (relative, through symlinks) is the same lock. Not for `:memory:`.

    The descriptor is not inherited by programs started from here. Raises StoreLocked with `owner` if any open in any process holds it,
    also one in this process; StoreReadOnly, StoreError or StoreDown if the lock file can't be made.
    """
    file, path = _files(database)
    with suppress(OSError):
        if file.is_file() and file.stat().st_nlink > 1:
            raise StoreError(
                "has several names (hard links), and SQLite would keep a log for each: use a copy",
                path=shown(str(file)),
            )
    if file.is_dir():
        raise is_a_folder(str(file))
    try:
        # A lock file that is a link could point at anybody's file, which announcing would overwrite.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise map_os_error(exc, str(path)) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return FileLock(descriptor, path, _ourselves())
    except OSError as exc:
        os.close(descriptor)
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _locked(file, read_owner(file)) from exc
        raise map_os_error(exc, str(path)) from exc


def held(database: str | os.PathLike[str]) -> bool:
    """Whether a process holds the lock at this moment. Nothing is made, and for that moment nobody else gets it."""
    try:
        descriptor = os.open(_files(database)[1], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def in_use(database: str | os.PathLike[str]) -> StoreLocked:
    """The refusal that names who holds the lock."""
    file = _files(database)[0]
    return _locked(file, read_owner(file))


def read_owner(database: str | os.PathLike[str]) -> LockOwner | None:
    """What the lock file says, None if nothing readable. Not whether the lock is held: a killed owner's words stay."""
    try:
        text = _files(database)[1].read_bytes()[:CONTENT_LIMIT].decode("utf-8", "replace")
        found: object = json.JSONDecoder().raw_decode(text)[0]
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    match cast("dict[str, Any]", found):
        case {"pid": int(pid), "host": str(host), "since": str(since), **rest}:
            url = rest.get("url")
            printable = bounded(url, FIELD_LIMIT) if isinstance(url, str) else None
            return LockOwner(pid, bounded(host, FIELD_LIMIT), bounded(since, FIELD_LIMIT), printable)
        case _:
            return None


def _files(database: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The database's one true path, and its lock's."""
    file = Path(database).resolve()
    return file, file.with_name(file.name + SUFFIX)


def _ourselves() -> LockOwner:
    return LockOwner(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="milliseconds"))


def _locked(file: Path, owner: LockOwner | None) -> StoreLocked:
    name = "an unknown process" if owner is None else str(owner)
    message = (
        f"is in use by {name}; stop that process, or reach it through its server, as one process owns an SQLite file"
    )
    return StoreLocked(message, path=shown(str(file)), owner=name)
