"""Every bound of the HTTP front, as one value.

Lives here: figures with their units and what enforces each. Not here: bounds of the store, of mailboxes or of one client's subscriptions.

Invariant: whatever a client does or leaves undone, it holds no more than these bytes and no longer than these seconds; nothing in the
front waits for a client without one of them.
"""

from __future__ import annotations

from typing import Any

import attrs

KIB = 1024
MIB = 1024 * KIB


def _positive(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} must be greater than 0, not {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one server. Names end in their unit; all must be positive."""

    connections: int = attrs.field(default=2_000, validator=_positive)
    """Open connections; one more is answered 503 and closed."""
    refusals: int = attrs.field(default=64, validator=_positive)
    """Connections over the bound that are being told so at one time; those beyond are closed without a word."""

    head_bytes: int = attrs.field(default=16 * KIB, validator=_positive)
    """Request line and fields together; also what a client may send ahead of the answer to its last request (pipelining)."""
    head_seconds: float = attrs.field(default=10.0, validator=_positive)
    """From the first byte of a head to its last, so that a byte now and then does not hold a connection."""
    idle_seconds: float = attrs.field(default=75.0, validator=_positive)
    """Without a byte between two requests, and before the first."""
    tls_seconds: float = attrs.field(default=10.0, validator=_positive)
    """The TLS handshake."""

    body_bytes: int = attrs.field(default=MIB, validator=_positive)
    """A request's body once decoded, chunked or not."""
    framing_bytes: int = attrs.field(default=256 * KIB, validator=_positive)
    """What chunked framing may cost beside the body: without it one byte a chunk buys seconds of our processor."""
    body_seconds: float = attrs.field(default=30.0, validator=_positive)
    """Spent waiting for a body's bytes in all; the application's own time does not count."""

    send_seconds: float = attrs.field(default=30.0, validator=_positive)
    """Without progress of one send of at most 64 KiB: a client that does not read is cut off."""
    linger_seconds: float = attrs.field(default=2.0, validator=_positive)
    """After our last word, while the client still sends: closing at once would destroy that word on its way."""
    grace_seconds: float = attrs.field(default=10.0, validator=_positive)
    """From a stop until requests still in flight are cancelled."""

    message_bytes: int = attrs.field(default=MIB, validator=_positive)
    """A websocket frame, and a message of several frames: more is closed with 1009, on the announcement alone."""
    message_queue: int = attrs.field(default=16, validator=_positive)
    """Messages received and not yet taken by the handler; then the socket is read no further."""
    handshake_seconds: float = attrs.field(default=10.0, validator=_positive)
    """For the handler to accept or reject a websocket."""
    close_seconds: float = attrs.field(default=5.0, validator=_positive)
    """For the closing handshake of a websocket."""
