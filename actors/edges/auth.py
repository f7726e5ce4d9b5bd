"""Who is asking: credentials and what they stand for.

Lives here: the operator's token (its file, its check), principals, the project that a request acts in, the rule for Origin. Not here: which
route is open to whom (app); members, tickets and cookies, which are rows.

Invariant: a token is never kept, logged or shown; only its digest is, and digests are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import attrs

from ...storage.model.addresses import SEGMENT, Scope, Sender
from ...storage.model.errors import Forbidden, InvalidField, Rejected, Unauthorized

TOKEN_FILE: Final = "operator.token"  # noqa: S105 (a file's name)
_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_PORTS: Final = {"http": 80, "https": 443}


class TokenFileRefused(Rejected):
    """The file with the operator's token can't be trusted or used; `path` is the file."""

    code: ClassVar[str] = "token_file"


@attrs.frozen
class Principal:
    """Who a credential stands for: how its messages are signed, and where it acts."""

    sender: Sender
    scope: Scope


class Auth:
    """Checks credentials. Today there is one: the operator's token."""

    def __init__(self, token: str, operator: Principal) -> None:
        self._digest = _digest(token)
        self._operator = operator

    def __repr__(self) -> str:
        return "<Auth>"

    def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """The principal of a request with these fields, in the project that it acts in (AUTH-2).

        Raises `Unauthorized`; `InvalidField` for a project that is none.
        """
        fields = list(headers)
        if not hmac.compare_digest(_digest(_bearer(fields)), self._digest):
            raise Unauthorized("the bearer token is not valid")
        project = one_field(fields, b"callboard-project")
        if project is None:
            return self._operator
        if not SEGMENT.match(project):
            raise InvalidField("must be [a-z0-9][a-z0-9._-]{0,62}", path="Callboard-Project")
        return attrs.evolve(self._operator, scope=Scope(self._operator.scope.tenant, project))


def load_or_create_token(folder: Path) -> str:
    """The operator's token in `folder`/operator.token, made on first use; blocks for the file. The folder is made if it is missing.

    Raises `TokenFileRefused` if others may read the file, or if it is not what this function writes.
    """
    file = folder / TOKEN_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _read(file)
        if found is None:
            _create(file)
            found = _read(file)
    except OSError as error:
        raise TokenFileRefused(f"can't be used: {error.strerror}", path=str(file)) from error
    if found is None or not _TOKEN.match(found):
        raise TokenFileRefused("does not hold a token; remove it and a new one is made", path=str(file))
    return found


def check_origin(headers: Iterable[tuple[bytes, bytes]], hosts: Collection[str]) -> None:
    """Refuse what a page of another origin sends in a browser; a program sends no Origin and may pass.

    An origin is ours if it is what the Host field names, or one of the configured `hosts` (names in lower case) on its scheme's own port.
    Raises `Forbidden`.
    """
    fields = list(headers)
    origin = one_field(fields, b"origin")
    if origin is None:
        return
    ours = one_field(fields, b"host") or ""
    try:
        parts = urlsplit(origin)
        port = parts.port or _PORTS[parts.scheme]
        host = urlsplit(f"{parts.scheme}://{ours}")
        if parts.hostname == host.hostname and port == (host.port or _PORTS[parts.scheme]):
            return
        if parts.hostname in hosts and port == _PORTS[parts.scheme]:
            return
    except (ValueError, KeyError):
        pass  # no origin that a browser sends for a page of ours
    raise Forbidden("a page of another origin may not do this", path="Origin")


def one_field(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The value of a field that may stand there once. Raises `InvalidField` if there are several."""
    values = [value for field, value in headers if field.lower() == name]
    if len(values) > 1:
        raise InvalidField("may be given once", path=name.decode("ascii").title())
    return values[0].decode("latin-1") if values else None


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    scheme, _, token = (one_field(headers, b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a bearer token is needed")
    return token.strip()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read(file: Path) -> str | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        # Of the open file, not of its name: the name may lead elsewhere a moment later.
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TokenFileRefused("is not a regular file", path=str(file))
        if os.name != "nt" and status.st_mode & 0o077:
            raise TokenFileRefused(
                f"has mode {stat.S_IMODE(status.st_mode):04o}: others may have read it; remove it and a new one is made",
                path=str(file),
            )
        return opened.read(1024).decode("ascii", "replace").removesuffix("\n")


def _create(file: Path) -> None:
    draft = file.with_name(f".{TOKEN_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        # A link and not a rename: of two processes that start at once the first one's token stands.
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
