"""Addresses. Lives here: the scope that every row carries, actor addresses, the grammar of paths, senders.

Not here: resolving an address to a row (that is a read). Invariant: what is not canonical is refused with a reason, never repaired (NS-1).
"""

from __future__ import annotations

import re
from typing import Final, Literal

import attrs

from .errors import InvalidField
from .limits import LABEL_CHARS

SEGMENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
PATH_CHARS: Final = 256
PATH_DEPTH: Final = 8
PEER: Final = re.compile(r"peer:[0-9a-f]{12}\Z")


@attrs.frozen
class Scope:
    """The tenant and project that own a row. No read is done without both (NS-5)."""

    tenant: str = "default"
    project: str = "default"


SenderKind = Literal["member", "session", "system", "peer"]


@attrs.frozen
class Sender:
    """Who a message is from, stamped by us and never taken from input. `id` is a session id for kind session."""

    id: str
    kind: SenderKind
    label: str = ""

    @property
    def principal(self) -> str:
        """The namespace of this sender's message ids (INB-4)."""
        return f"{self.kind}:{self.id}"


SYSTEM: Final = Sender("system", "system", "Callboard")


def session_address(session: str) -> str:
    """The mailbox address of a session."""
    return f"session:{session}"


def session_at(address: str) -> str:
    """The inverse of `session_address`."""
    return address.removeprefix("session:")


def check_path(value: str, path: str = "path") -> str:
    """Return `value` if it is a canonical session path; else raise `InvalidField` with the reason."""
    if value == "/":
        return value
    reason = _path_fault(value)
    if reason:
        raise InvalidField(reason, path=path)
    return value


def _path_fault(value: str) -> str | None:
    if not value.startswith("/"):
        return "must start with /"
    if len(value) > PATH_CHARS:
        return f"is longer than {PATH_CHARS} characters"
    if value.endswith("/"):
        return "must not end with /"
    segments = value[1:].split("/")
    if len(segments) > PATH_DEPTH:
        return f"is deeper than {PATH_DEPTH} levels"
    for segment in segments:
        if not segment:
            return "has an empty segment"
        if segment in {".", ".."}:
            return "has a segment . or .."
        if not SEGMENT.match(segment):
            return f"has a segment that is not [a-z0-9][a-z0-9._-]{{0,62}}: {segment[:70]!r}"
    return None


def clean_label(text: str) -> str:
    """One printable line of at most 80 characters: labels stand in headers that content must not be able to forge (SES-9)."""
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * LABEL_CHARS])
    return " ".join(line.replace("[", "(").replace("]", ")").split())[:LABEL_CHARS]
