"""Ops on messages from outside a turn: accept, cancel, requeue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from ..model.addresses import Scope, Sender
from ..model.errors import InvalidField
from ..model.ids import check_message_id, new_id
from ..model.limits import MAILBOX_DEPTH, MAX_ATTEMPTS
from ..model.messages import LOCAL, PEER, TRANSPORTS, Kind, Receipt, check_text, digest, dump_payload
from ..model.policies import Edge
from .base import Op, text_size


@attrs.frozen
class Enqueue(Op[Receipt]):
    """Accept one message for the mailbox `recipient`: message, entry, `message.created` event and wake in one transaction.

    `depth_limit` None exempts results and notices (RT-14). `pair_limit` bounds agent messages a minute for this (sender, recipient)
    pair, 0 or None for off (RT-15). `max_hops` None exempts. `edge`: what holds where no rule of the project says whether sessions may write
    to each other; None exempts from the rules (NS-4). Build it with `enqueue`, which checks every field.

    Raises: `UnknownTarget`, `MessageConflict`, `MailboxFull`, `LimitReached`, `NotPermitted` by the rules.
    """

    repeat: ClassVar[str] = (
        "the row is found by (scope, sender, message id), or by id: it is returned with created=False"
    )

    scope: Scope
    recipient: str
    sender: Sender
    kind: Kind
    content: str
    payload: str | None
    id: str
    message_id: str | None
    digest: bytes
    chain: str
    hops: int = 0
    reply_to: str | None = None
    transport: str = LOCAL
    destination_peer: str | None = None
    max_attempts: int = MAX_ATTEMPTS
    depth_limit: int | None = MAILBOX_DEPTH
    pair_limit: int | None = None
    max_hops: int | None = None
    edge: Edge | None = None
    requeued_from: str | None = None

    @property
    def size(self) -> int:
        return 512 + 2 * text_size(self.content) + text_size(self.payload)

    @property
    def wakes(self) -> bool:
        return True


def enqueue(
    scope: Scope,
    recipient: str,
    sender: Sender,
    content: str,
    *,
    kind: Kind = Kind.MEMBER_MESSAGE,
    message_id: str | None = None,
    payload: Mapping[str, Any] | None = None,
    chain: str | None = None,
    hops: int = 0,
    reply_to: str | None = None,
    transport: str = LOCAL,
    destination_peer: str | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    depth_limit: int | None = MAILBOX_DEPTH,
    pair_limit: int | None = None,
    max_hops: int | None = None,
    edge: Edge | None = None,
) -> Enqueue:
    """Build an `Enqueue` from checked fields; raises `InvalidField` naming the first wrong one (INB-5)."""
    check_text(recipient, "target")
    if message_id is not None:
        check_message_id(message_id)
    check_text(content)
    if max_attempts < 1:
        raise InvalidField("must be at least 1", path="max_attempts")
    if transport not in TRANSPORTS:
        raise InvalidField(f"is not one of {', '.join(sorted(TRANSPORTS))}", path="transport")
    if transport == PEER and not destination_peer:
        raise InvalidField("is needed by the transport suzent_peer", path="destination_peer")
    text = dump_payload(payload)
    uid = new_id("msg")
    return Enqueue(
        scope=scope,
        recipient=recipient,
        sender=sender,
        kind=kind,
        content=content,
        payload=text,
        id=uid,
        message_id=message_id,
        digest=digest(recipient, kind, content, text),
        chain=chain or uid,
        hops=hops,
        reply_to=reply_to,
        transport=transport,
        destination_peer=destination_peer,
        max_attempts=max_attempts,
        depth_limit=depth_limit,
        pair_limit=pair_limit,
        max_hops=max_hops,
        edge=edge,
    )


@attrs.frozen
class Cancel(Op[None]):
    """Fail a pending message with reason `cancelled` and tell its sender. `id` is a `msg_…` id.

    Raises: `NotFound`; `IllegalMove` (processing: stop the turn instead; final: nothing to cancel).
    """

    repeat: ClassVar[str] = "a message that is already failed with reason cancelled stays so"

    scope: Scope
    id: str


@attrs.frozen
class Requeue(Op[Receipt]):
    """Accept a failed or delivered message again as a new row that names it in `requeued_from` (INB-2).

    `depth_limit` and `edge` as in `Enqueue`; a child's result or a notice is exempt again (RT-14).
    Raises: `NotFound`, `IllegalMove` (still open), `UnknownTarget` (its target is gone), `MailboxFull`, `NotPermitted`.
    """

    repeat: ClassVar[str] = "the new row's id is part of the op"

    scope: Scope
    id: str
    new_id: str = attrs.field(factory=lambda: new_id("msg"))
    depth_limit: int | None = MAILBOX_DEPTH
    edge: Edge | None = None
