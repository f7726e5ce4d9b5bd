"""Routes of event streams (SSE): a session's, and one turn's.

Invariant: nothing is streamed before it is known that there is something to stream: an unknown session answers 404.
"""

from __future__ import annotations

from starlette.responses import Response

from ....storage.model.errors import NotFound
from ....storage.model.ids import message_of_turn
from ....storage.model.states import OPEN
from ..edge import Ask, number
from ..fields import one_field
from ..stream import EventStream


async def session(ask: Ask) -> Response:
    """The session's events above Last-Event-ID (or `after`), then live."""
    after = _cursor(ask)
    await ask.desk.store.reads.session(ask.scope, ask.id)
    return EventStream(ask.desk, ask.scope, ask.id, after, ask.stopping, ask.edge.pace, refused=ask.refused)


async def turn(ask: Ask) -> Response:
    """The same, of one turn: ends after its terminal event; 204 where nothing of it is left to tell."""
    after = _cursor(ask)
    head = message_of_turn(ask.id)
    message = await ask.desk.receipt(ask.scope, head)
    if not ask.id.startswith("turn_") or message.id != head:
        raise NotFound("there is no such turn here", path="id")
    goes_on = await ask.desk.store.reads.turn_goes_on(ask.scope, message.session, ask.id, after=after)
    if message.status not in OPEN and not goes_on:
        return Response(status_code=204)
    return EventStream(
        ask.desk, ask.scope, message.session, after, ask.stopping, ask.edge.pace, turn=ask.id, refused=ask.refused
    )


def _cursor(ask: Ask) -> int:
    query = ask.query("after")
    last = one_field(ask.request.scope["headers"], b"last-event-id")
    after = number(query.get("after"), "after")
    # A browser that reconnects repeats the address and adds the field, which is the newer of the two.
    return after if last is None else number(last, "Last-Event-ID")
