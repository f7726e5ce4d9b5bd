"""What header fields say about who is asking and from where.

Lives here: a field that may stand there once, a bearer token, a cookie, the rule for Origin. Not here: whether a credential is good (auth).

Invariant: what stands there twice is refused, not chosen from: another reader of the same request might choose otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from ...storage.model.errors import Forbidden, InvalidField, Unauthorized

_PORTS: Final = {"http": 80, "https": 443}

Fields = Iterable[tuple[bytes, bytes]]


def one_field(headers: Fields, name: bytes) -> str | None:
    """The value of a field that may stand there once. Raises `InvalidField` if there are several."""
    values = [value for field, value in headers if field.lower() == name]
    if len(values) > 1:
        raise InvalidField("may be given once", path=name.decode("ascii").title())
    return values[0].decode("latin-1") if values else None


def bearer_token(fields: Fields) -> str | None:
    """The bearer token; None if no credential is given so. Raises `Unauthorized` for any other kind."""
    given = one_field(fields, b"authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a bearer token is needed")
    return token.strip()


def cookie(fields: Fields, name: str) -> str | None:
    """The value of the first cookie of that name; None if there is none."""
    for field, value in fields:
        if field.lower() == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, _, text = pair.strip().partition("=")
                if found == name:
                    return text
    return None


def check_origin(headers: Fields, hosts: Collection[str], *, required: bool = False) -> None:
    """Refuse what a page of another origin sends in a browser; a program sends no Origin and may pass, unless it is `required`.

    An origin is ours if it is what the Host field names, or one of the configured `hosts` (names in lower case) on its scheme's own port.
    Raises `Forbidden`.
    """
    fields = list(headers)
    origin = one_field(fields, b"origin")
    if origin is None:
        if required:
            raise Forbidden("a request with a cookie must name its origin", path="Origin")
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
