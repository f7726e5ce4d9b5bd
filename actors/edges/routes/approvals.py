"""The route of approvals: a person allows or denies a call that waits for it (EVT-6)."""

from __future__ import annotations

import attrs
from starlette.responses import Response

from ..edge import Ask
from ..views import JsonResponse


@attrs.frozen
class Answer:
    """Body of `POST /v1/approvals/{id}`."""

    approve: bool


async def answer(ask: Ask) -> Response:
    """200 {id, session, state}; the same answer again is the same; 409 if it was answered otherwise, or too late."""
    ask.query()
    given = await ask.body(Answer)
    approval = await ask.desk.answer(ask.scope, ask.id, approve=given.approve, by=ask.principal.sender.principal)
    return JsonResponse({"id": approval.id, "session": approval.session, "state": approval.state})
