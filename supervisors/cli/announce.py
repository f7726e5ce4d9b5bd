"""How client commands find the server of a folder: `DIR/server.json`, {"url", "pid"} and, with TLS, {"certificate"}.

Lives here: writing, removing and reading that file. Not here: asking the server.

Invariant: the file is a hint. It is written whole and removed at a clean stop; one that a killed server left is recognised as such, as its
process is gone, or nobody answers at its address.
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

import attrs

from ...storage.model.errors import CallboardError, Rejected
from ...storage.wire import parse_object, structure
from ..settings import Settings

FILE: Final = "server.json"
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
        """Whether its process lives."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass
        return True


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
    """The server that announced itself in `folder`, unless its process is gone."""
    found = _read(folder / FILE)
    return found if found is not None and found.alive else None


def _read(file: Path) -> Server | None:
    try:
        with file.open("rb") as opened:
            return structure(parse_object(opened.read(_BYTES)), Server)
    except (OSError, CallboardError):
        return None


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text)
        draft.replace(file)
    except OSError as error:
        raise Rejected(f"can't be written: {error.strerror}", path=str(file)) from error
    finally:
        draft.unlink(missing_ok=True)
