"""Files that get their name only when they are whole: made beside it under another one, private, and gone if anything fails.

Lives here: the name, the lock that tells a draft in use from one that a killed process left, writing, giving it its name. Not here: what is
written. Invariant: whoever looks at the name finds what was there before or all of the new file, also after a power cut.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .model.errors import CallboardError, Rejected, StoreFull, bounded

SYNC_BYTES: Final = 4 * 1024 * 1024
"""Written at most without waiting for the disk. At the end of 200 MB, one fsync kept every commit on that disk waiting for 0.1 to 0.2 s;
this way the longest is about what it is without a backup."""
END: Final = ".draft"
_SIDES: Final = ("", "-journal", "-wal", "-shm")
_SHOWN: Final = 300


class Draft:
    """What is to become `file`. Leaving its block without `publish` leaves nothing. Blocks for the disk.

    Raises `Rejected` or `StoreFull`, naming `file`, where it can't be made, written or named.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._unsynced = 0
        with _failures(file):
            _sweep(file)
            self.path, self.descriptor = _begin(file)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self.descriptor).st_size

    def append(self, data: bytes) -> None:
        """Write on."""
        with _failures(self.file):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
            self.written(len(data))

    def written(self, size: int) -> None:
        """So many bytes were written to it, by whomever: wait for the disk now and then."""
        self._unsynced += size
        if self._unsynced >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        """Wait until all of it is on disk."""
        self._unsynced = 0
        with _failures(self.file):
            os.fsync(self.descriptor)

    def publish(self, *, replace: bool) -> None:
        """Give it its name. Raises `Rejected` if something has that name, and it is not to be replaced."""
        self.sync()
        with _failures(self.file):
            if replace:
                self.path.replace(self.file)
            else:
                _rename_new(self.path, self.file)
            sync_folder(self.file.parent)

    def hide(self) -> None:
        """Take its own name away already: only the descriptor is left, and nothing remains even if this process is killed."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Be done with it."""
        for end in _SIDES:
            with suppress(OSError):
                Path(f"{self.path}{end}").unlink(missing_ok=True)
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_failed(error: OSError, file: Path) -> CallboardError:
    """Why `file` can't be written, in one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull("there is no room for it on the disk", path=bounded(str(file), _SHOWN))
    return Rejected(f"can't be written: {error.strerror}", path=bounded(str(file), _SHOWN))


@contextmanager
def _failures(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_failed(error, file) from error


def _begin(file: Path) -> tuple[Path, int]:
    while True:
        path = file.with_name(f".{file.name}.{secrets.token_hex(4)}{END}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # swept away by another process before it was locked


def _sweep(file: Path) -> None:
    """Remove the drafts of killed processes: nobody holds their lock."""
    for left in file.parent.glob(f".{glob.escape(file.name)}.*{END}"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for end in _SIDES:
                    Path(f"{left}{end}").unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _rename_new(path: Path, file: Path) -> None:
    """Rename, but never over something: a link is refused where the name is taken, which a rename is not."""
    try:
        file.hardlink_to(path)
    except FileExistsError:
        raise Rejected("exists already; --force replaces it", path=bounded(str(file), _SHOWN)) from None
    except OSError:
        # This file system has no links. The name was free a moment ago.
        if os.path.lexists(file):
            raise Rejected("exists already; --force replaces it", path=bounded(str(file), _SHOWN)) from None
        path.rename(file)
    else:
        path.unlink()
