"""Routes for who runs the process: metrics, the doctor's report, retention by hand, backup. Not here: health and readiness, which need no token.

Invariant: none of them shows what anybody wrote, but the backup, which is all of it.
"""

from __future__ import annotations

from typing import Final

import attrs
from starlette.responses import Response

from ....storage.model.errors import NotFound
from ...ports import Operations
from ..copies import CopyStream
from ..edge import Ask
from ..views import JsonResponse, pruned_view
from .messages import Nothing

_NOT_KEPT: Final = "this server was started without it"


@attrs.frozen
class Retention:
    """Body of `POST /v1/inbox/prune`."""

    older_than_seconds: float


async def metrics(ask: Ask) -> Response:
    """200 and all metrics, as text for Prometheus or, where the Accept field asks for it, OpenMetrics."""
    ask.query()
    text, content_type = await _operations(ask).metrics(ask.request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def doctor(ask: Ask) -> Response:
    """200 {state, checks, processes, settings}, whatever the doctor finds."""
    ask.query()
    return JsonResponse(await _operations(ask).doctor())


async def prune(ask: Ask) -> Response:
    """200 {blanked, deleted, more}: messages of this project that ended longer ago lose their body; `more`: ask again."""
    ask.query()
    asked = await ask.body(Retention)
    ask.check_key()
    return JsonResponse(pruned_view(await ask.desk.prune(ask.scope, asked.older_than_seconds)))


async def backup(ask: Ask) -> Response:
    """200 and a copy of the database; 409 where it is no file, 503 while another one is being made."""
    ask.query()
    await ask.body_if_any(Nothing)
    ask.check_key()
    return CopyStream(ask.desk.store, ask.refused)


def _operations(ask: Ask) -> Operations:
    if ask.edge.operations is None:
        raise NotFound(_NOT_KEPT)
    return ask.edge.operations
