"""Routes of messages: post, receipt, and the inbox that operators look after.

Invariant: 202 follows the commit (INB-1). A message is named by our id (`msg_…`) or by the id that its sender gave it.
"""

from __future__ import annotations

from datetime import datetime

import attrs
from starlette.responses import Response

from ....storage.model.errors import InvalidField
from ....storage.model.ids import keyed_id
from ....storage.model.states import Status
from ..edge import KEY, Ask, limit
from ..views import JsonResponse, history_view, inbox_view, message_view, receipt_view, steered_view

_STATUSES = frozenset(map(str, Status))


@attrs.frozen
class Post:
    """Body of `POST /v1/sessions/{id}/messages`."""

    content: str
    message_id: str | None = None


@attrs.frozen
class Nothing:
    """A body without fields."""


async def post(ask: Ask) -> Response:
    """202 {message_id, created, status, seq}; a repeat has `created` false. The Idempotency-Key is the message id."""
    ask.query()
    given = await ask.body(Post)
    key = ask.key
    if key is not None and given.message_id is not None and key != given.message_id:
        raise InvalidField("differs from message_id", path=KEY)
    message_id = key if given.message_id is None else given.message_id
    receipt = await ask.desk.send(ask.scope, ask.id, given.content, ask.principal.sender, message_id=message_id)
    return JsonResponse(receipt_view(receipt), 202)


async def show(ask: Ask) -> Response:
    """200 and the message with the history of its attempts, and after which round of another one's turn it was taken into that."""
    ask.query()
    message = await ask.desk.receipt(ask.scope, ask.id, principal=ask.principal.sender.principal)
    attempts = await ask.desk.store.reads.attempts(ask.scope, message.id)
    steered = await ask.desk.steered_round(ask.scope, message)
    return JsonResponse({**message_view(message), "history": history_view(attempts), **steered_view(steered)})


async def inbox(ask: Ask) -> Response:
    """{messages, has_more, next}, newest first, by target (a session's id), status, peer and age (`before`, a time)."""
    query = ask.query("target", "status", "peer", "before", "limit", "cursor")
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise InvalidField(f"must be one of {', '.join(sorted(_STATUSES))}", path="status")
    page = await ask.desk.store.reads.inbox(
        ask.scope,
        target=query.get("target"),
        status=status,
        peer=query.get("peer"),
        before=_time(query.get("before")),
        limit=limit(query.get("limit"), 50),
        cursor=query.get("cursor"),
    )
    return JsonResponse(
        {"messages": [inbox_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}
    )


async def requeue(ask: Ask) -> Response:
    """202 {message_id, created, status, seq} of the new row; 409 while the message is open."""
    ask.query()
    await ask.body_if_any(Nothing)
    key, principal = ask.key, ask.principal.sender.principal
    new_id = None if key is None else keyed_id("msg", ask.scope.tenant, ask.scope.project, principal, "requeue", key)
    receipt = await ask.desk.requeue(ask.scope, ask.id, principal=principal, new_id=new_id)
    return JsonResponse(receipt_view(receipt), 202)


async def cancel(ask: Ask) -> Response:
    """200 and the message, which has failed with reason `cancelled`; 409 if it is part of a running turn, or final."""
    ask.query()
    await ask.body_if_any(Nothing)
    ask.check_key()
    message = await ask.desk.cancel(ask.scope, ask.id, principal=ask.principal.sender.principal)
    return JsonResponse(message_view(message))


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("no offset")
        return at.timestamp()
    except (ValueError, OverflowError):
        raise InvalidField("must be a time as RFC 3339 has it", path="before") from None
