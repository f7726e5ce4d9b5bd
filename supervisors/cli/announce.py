"""How client commands find the server of a folder: `DIR/server.json`, {"url", "pid"} and, with TLS, {"certificate"}.

Lives here: writing, removing and reading that file, and the lock `DIR/server.lock`. Not here: asking the server.

Invariant: a folder has one server, which holds the lock for its whole life, and the file counts only while the lock is held. So what a
killed server left is recognised as such, whoever has its process id or its address by now: a stranger there is never told the token.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from ...storage.model.errors import CallboardError, Rejected, StoreLocked
from ...storage.sqlite.lock import SUFFIX, FileLock, LockOwner, acquire_lock, held, read_owner
from ...storage.wire import parse_object, structure
from ..settings import Settings

FILE: Final = "server.json"
_LOCK: Final = "server"
LOCK_FILE: Final = _LOCK + SUFFIX
_LOOKERS_SECONDS: Final = 1.0
_LOOKERS_PAUSE: Final = 0.02
_BYTES: Final = 64 * 1024


@attrs.frozen
class Server:
    """A server as it announced itself. `certificate` is the PEM file that it serves with."""

    url: str
    pid: int
    certificate: str | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Trust in exactly the certificate that was announced: it may be for another name than the loopback's, and by no known authority."""
        if self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.certificate)
        except OSError as error:
            raise Rejected("the server's certificate can't be read", path=self.certificate) from error
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    @property
    def alive(self) -> bool:
        """Whether its process lives. Not whether that process is a server."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass
        return True


async def take_folder(folder: Path) -> FileLock:
    """Become the server of `folder`, until the lock is released; what an earlier one left there is removed. Raises `Rejected` if one runs."""
    deadline = trio.current_time() + _LOOKERS_SECONDS
    while True:
        try:
            lock = acquire_lock(folder / _LOCK)
            break
        except StoreLocked as error:
            # A client that looks whether we run holds the lock for a moment, and the kernel tells nobody when it lets go.
            if trio.current_time() > deadline:
                raise _has_one(folder, error.owner) from None
            await trio.sleep(_LOOKERS_PAUSE)
    with suppress(OSError):
        (folder / FILE).unlink()
    return lock


def refuse_second(folder: Path) -> None:
    """Raise `Rejected` if `folder` has a server; nothing is made there."""
    if _taken(folder):
        raise _has_one(folder, read_owner(folder / _LOCK))


@contextmanager
def announced(settings: Settings, url: str) -> Iterator[Path]:
    """The file, while the block lasts."""
    file = settings.data / FILE
    certificate = {"certificate": str(settings.tls_cert)} if settings.tls_cert is not None else {}
    _write(file, json.dumps({"url": url, "pid": os.getpid(), **certificate}) + "\n")
    try:
        yield file
    finally:
        withdraw(file)


def withdraw(file: Path) -> None:
    """Remove the file, if it is ours: another server may have announced itself there meanwhile."""
    found = _read(file)
    if found is not None and found.pid == os.getpid():
        with suppress(OSError):
            file.unlink()


def find_server(folder: Path) -> Server | None:
    """The server that announced itself in `folder` and still runs."""
    found = _read(folder / FILE)
    return found if found is not None and found.alive and _taken(folder) else None


def _has_one(folder: Path, owner: LockOwner | str | None) -> Rejected:
    return Rejected(f"has a server already: {owner or 'an unknown process'}", path=str(folder))


def _taken(folder: Path) -> bool:
    """Whether a server holds the lock of `folder` at this moment."""
    return held(folder / _LOCK)


def _read(file: Path) -> Server | None:
    try:
        with file.open("rb") as opened:
            found = structure(parse_object(opened.read(_BYTES)), Server)
    except (OSError, CallboardError):
        return None
    return found if _is_address(found.url) else None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return url.isprintable() and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text)
        draft.replace(file)
    except OSError as error:
        raise Rejected(f"can't be written: {error.strerror}", path=str(file)) from error
    finally:
        draft.unlink(missing_ok=True)
