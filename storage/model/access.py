"""Who may come in: members, and what a credential stands for; values and rules only.

Lives here: kinds of principals, grants, the grammar of members' names, making a secret and its digest. Not here: which route is open to
whom (the edges), rows.

Invariant: a secret leaves the function that makes it once, towards the person it is for; what is kept is its digest.
"""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum
from typing import Final

import attrs

from .addresses import SEGMENT, Scope, clean_label
from .errors import InvalidField
from .limits import LABEL_CHARS

SECRET_BYTES: Final = 32
_RESERVED: Final = frozenset({"operator", "system"})
"""Names that senders of our own have: a member of that name would sign as one of them."""


class Kind(StrEnum):
    """Whom a credential stands for: who runs the installation, a program in one project, or a person."""

    OPERATOR = "operator"
    PROJECT = "project"
    MEMBER = "member"


class Carrier(StrEnum):
    """How a credential is presented: one that was made for one way is not good for the other."""

    BEARER = "bearer"
    COOKIE = "cookie"


class Purpose(StrEnum):
    """What a ticket opens, once: a websocket, or the console in a browser."""

    WEBSOCKET = "ws"
    CONSOLE = "console"


@attrs.frozen
class Grant:
    """What a credential is good for: `member` names the person of kind member; `bound`: only for the project it was made in."""

    kind: Kind
    member: str | None = None
    bound: bool = False


@attrs.frozen
class Member:
    """A person and the projects that are theirs. Times are store time in seconds."""

    name: str
    projects: tuple[str, ...]
    created: float
    suspended: float | None


@attrs.frozen
class Credential:
    """A token or a browser's cookie, as people may see it: without its secret."""

    id: str
    carrier: Carrier
    grant: Grant
    home: Scope
    label: str
    created: float
    used: float | None
    expires: float | None
    revoked: float | None


@attrs.frozen
class Standing:
    """What a valid credential may do at this moment. `projects` None: any; `parent`: the token that a cookie came from."""

    id: str
    carrier: Carrier
    grant: Grant
    home: Scope
    label: str
    used: float | None
    parent: str | None
    projects: tuple[str, ...] | None


@attrs.frozen
class Redeemed:
    """What a used ticket opens: it acts as the credential `maker` (None: the operator's own token) in `home`."""

    grant: Grant
    home: Scope
    maker: str | None
    label: str


def new_secret() -> str:
    """32 random bytes as text of 43 letters, digits, - and _."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: str) -> bytes:
    """What is kept of a secret. A look-up by it takes the same time for every wrong secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def check_member_name(value: str, path: str = "name") -> str:
    """Return `value` if a member may be called so; else raise `InvalidField`."""
    if not SEGMENT.match(value):
        raise InvalidField("must be [a-z0-9][a-z0-9._-]{0,62}", path=path)
    if value in _RESERVED:
        raise InvalidField("is a name of Callboard's own", path=path)
    return value


def check_project(value: str, path: str = "project") -> str:
    """Return `value` if a project may be called so; else raise `InvalidField`."""
    if not SEGMENT.match(value):
        raise InvalidField("must be [a-z0-9][a-z0-9._-]{0,62}", path=path)
    return value


def check_label(value: str, path: str = "label") -> str:
    """Return `value` if it is empty or one clean line of at most 80 characters; else raise `InvalidField`."""
    if value != clean_label(value):
        raise InvalidField(f"must be one line of at most {LABEL_CHARS} printable characters without [ and ]", path=path)
    return value
