"""Messages. Lives here: kinds, wake modes, the row as readers see it, the rules of text.

Not here: the moves (`states`) and the writes (`ops`). Invariant: what reaches a row has passed `check_text`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from .addresses import Sender
from .errors import InvalidField
from .limits import CONTENT_CHARS, PAYLOAD_BYTES
from .states import Outcome, Reason, Status


class Kind(StrEnum):
    """What a message is; it alone decides the wake mode (INB-10)."""

    MEMBER_MESSAGE = "member_message"
    URGENT = "urgent"
    AGENT_MESSAGE = "agent_message"
    PEER_MESSAGE = "peer_message"
    SUBAGENT_RESULT = "subagent_result"
    NOTICE = "notice"
    SIGNAL = "signal"


class Wake(StrEnum):
    """What a message does to its target."""

    STEER = "steer"
    """Joins a running turn that takes part, else wakes."""
    WAKE = "wake"
    NEXT = "next"
    """Wakes nobody; the next turn carries it."""
    SIGNAL = "signal"
    """Wakes; no visible reply is expected."""


WAKE: Final[dict[Kind, Wake]] = {
    Kind.MEMBER_MESSAGE: Wake.STEER,
    Kind.URGENT: Wake.STEER,
    Kind.AGENT_MESSAGE: Wake.WAKE,
    Kind.PEER_MESSAGE: Wake.WAKE,
    Kind.SUBAGENT_RESULT: Wake.WAKE,
    Kind.NOTICE: Wake.NEXT,
    Kind.SIGNAL: Wake.SIGNAL,
}

NOTICES: Final = frozenset({Kind.SUBAGENT_RESULT, Kind.NOTICE, Kind.SIGNAL})
"""Kinds whose entry has the role `notice`; the others have `user`."""

LOCAL: Final = "local"
PEER: Final = "suzent_peer"
TRANSPORTS: Final = frozenset({LOCAL, PEER})


def role_of(kind: Kind) -> str:
    """The role of the entry that a message of this kind gets."""
    return "notice" if kind in NOTICES else "user"


def check_text(value: str, path: str = "content", limit: int = CONTENT_CHARS) -> str:
    """Return `value` if it has 1 to `limit` characters, no NUL and no lone surrogate; else raise `InvalidField` (INB-5)."""
    if not isinstance(value, str):
        raise InvalidField(f"must be text, not {type(value).__name__}", path=path)
    if not value or value.isspace():
        raise InvalidField("must not be empty", path=path)
    if len(value) > limit:
        raise InvalidField(f"has {len(value)} characters, {limit} are allowed", path=path)
    if "\0" in value:
        raise InvalidField("must not contain NUL", path=path)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidField("must not contain a lone surrogate", path=path) from None
    return value


def dump_payload(payload: Mapping[str, Any] | None) -> str | None:
    """Canonical JSON of a payload (sorted keys), or None for none; `InvalidField` if it is not JSON or too big."""
    if payload is None:
        return None
    try:
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise InvalidField("is nested too deeply", path="payload") from None
    except (TypeError, ValueError) as error:
        raise InvalidField(f"is not JSON: {error}", path="payload") from None
    if len(text) > PAYLOAD_BYTES:
        raise InvalidField(f"is larger than {PAYLOAD_BYTES} bytes", path="payload")
    return text


def digest(target: str, kind: str, content: str, payload: str | None) -> bytes:
    """16 bytes that are equal exactly when two sends under one message id are the same send (INB-4)."""
    data = payload or ""
    text = f"{len(target)}:{target}\0{len(kind)}:{kind}\0{len(data)}:{data}\0{len(content)}:{content}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@attrs.frozen
class Receipt:
    """What a send returns once its row is committed. `seq` is the entry's number in the target's transcript."""

    id: str
    message_id: str
    session: str
    created: bool
    status: Status
    seq: int


@attrs.frozen
class MessageView:
    """A message as its sender and operators read it. Times are seconds since the epoch.

    `stages` maps accepted, leased, surfaced and committed to their times; `attempt` is the ordinal of the newest claim. `turn_id` is the
    turn that it heads, or the one that has taken it in.
    """

    id: str
    message_id: str
    session: str
    sender: Sender
    kind: str
    status: Status
    outcome: Outcome | None
    reason: Reason | None
    turn_id: str
    seq: int
    stages: dict[str, float]
    attempt: int
    attempts: int
    max_attempts: int
    takeovers: int
    available_at: float | None
    created_at: float
    updated_at: float
    content: str
    chain: str
    hops: int
    transport: str = LOCAL
    destination_peer: str | None = None
    payload: dict[str, Any] | None = None
    last_error: str | None = None
    reply_to: str | None = None
    requeued_from: str | None = None
    lease_holder: str | None = None
    lease_until: float | None = None
    lease_epoch: int | None = None
    pruned_at: float | None = None
    """When its body was taken by retention: content, payload and errors are gone."""
