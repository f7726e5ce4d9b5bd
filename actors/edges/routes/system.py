"""Routes about the process itself: health and readiness, the supervision tree. Not here: metrics.

Invariant: what needs no token tells nothing but names of parts and ids of stuck sessions.
"""

from __future__ import annotations

from typing import Final

import trio
from starlette.responses import Response

from ....storage.model.errors import CallboardError
from ..edge import Ask, Edge
from ..views import JsonResponse, tree_view

_RETRY: Final = {"Retry-After": "1"}


async def healthz(ask: Ask) -> Response:
    """200 {status: ok, failing: [], stuck} while work can be taken: every part of the tree runs and the store answers; else 503.

    `stuck` are sessions whose agent survived its cancel (RT-6); they keep nobody else from working.
    """
    ask.query()
    failing, stuck = await _look(ask.edge)
    value = {"status": "failing" if failing else "ok", "failing": failing, "stuck": stuck}
    return JsonResponse(value, 503 if failing else 200, _RETRY if failing else None)


async def readyz(ask: Ask) -> Response:
    """200 {status: ready} if requests should be sent here; 503 also while the process ends."""
    ask.query()
    failing, _ = await _look(ask.edge)
    if failing or ask.stopping.is_set() or not ask.edge.taking():
        return JsonResponse({"status": "not_ready"}, 503, _RETRY)
    return JsonResponse({"status": "ready"})


async def tree(ask: Ask) -> Response:
    """The supervision tree at this moment."""
    ask.query()
    return JsonResponse(tree_view(ask.edge.tree.snapshot()))


async def _look(edge: Edge) -> tuple[list[str], list[str]]:
    failing = [node.name for node in edge.tree.snapshot().children if node.state not in ("running", "stopping")]
    if edge.desk.store.failing is not None:
        failing.append(edge.desk.store.failing)
    stuck: list[str] = []
    with trio.move_on_after(edge.pace.health) as waiting:
        try:
            stuck = [recipient.removeprefix("session:") for recipient, _ in await edge.desk.store.reads.stuck()]
        except CallboardError as error:
            failing.append(error.code)
    if waiting.cancelled_caught:
        failing.append("store_slow")
    return failing, stuck
