"""The route of the cache report: what the next call of a session's model would send. Not here: making it (`session.prompt.report`).

Invariant: it shows all that a session's model is told, so it is the operator's alone.
"""

from __future__ import annotations

from starlette.responses import Response

from ....storage.model.errors import NotFound
from ..edge import Ask
from ..views import JsonResponse


async def show(ask: Ask) -> Response:
    """200 {session, agent, turn, request_hash, bytes, parts, diff}; 409 for a session whose agent asks no model here."""
    ask.query()
    if ask.edge.operations is None:
        raise NotFound("this server was started without it")
    session = await ask.desk.store.reads.session(ask.scope, ask.id)
    return JsonResponse(await ask.edge.operations.prompt(session))
