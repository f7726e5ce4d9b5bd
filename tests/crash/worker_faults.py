"""Faults of the system under a worker's feet: syncs that fail, a file that may not grow. Each is the kernel's own answer, not a made-up one.

Runs in the worker process only. Not here: a full disk as SQLite counts pages (the command `pragma`), files that others delete or lock
(those the test does itself).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from pathlib import Path

SYNCS = {"x86_64": (0xC000003E, 317, (74, 75)), "aarch64": (0xC00000B7, 277, (82, 83))}
"""By machine: its number as the kernel audits it, the call seccomp, and the calls fsync and fdatasync."""
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06


class Faults:
    """The faults of this process that can be mended."""

    def __init__(self) -> None:
        self._saved: tuple[int, int] | None = None

    def lose_log(self, database: Path) -> None:
        """What is written to the writer's log from now on is lost, and its syncs fail, as when a disk drops out: EINVAL from /dev/null."""
        log = min(
            int(entry.name)
            for entry in Path("/proc/self/fd").iterdir()
            if entry.is_symlink() and os.readlink(entry) == f"{database}-wal"
        )  # the writer is opened first
        self._saved = log, os.dup(log)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, log)
        os.close(null)

    def limit_growth(self, database: Path, more: int) -> None:
        """No file may get larger than the log is, by `more` bytes (EFBIG)."""
        size = os.stat(f"{database}-wal").st_size + more
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def mend(self) -> None:
        """All is well again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if self._saved is not None:
            log, saved = self._saved
            os.dup2(saved, log)
            os.close(saved)
            self._saved = None


def fail_syncs() -> None:
    """From now on each fsync and fdatasync of this process fails with EIO, though what was written stays. Not to be mended."""
    arch, seccomp, calls = SYNCS[platform.machine()]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 0, 1 + len(calls), arch), (_LOAD, 0, 0, 0)]
    program += [(_EQUAL, len(calls) - n, 0, call) for n, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _FAIL | errno.EIO)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filters = struct.pack("HL", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(seccomp, _SET_FILTER, _ALL_THREADS, filters) != 0:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")
