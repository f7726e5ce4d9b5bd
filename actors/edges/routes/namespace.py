"""Routes of the namespace: the directory, the rules, and where a client went last.

Not here: opening and renaming (sessions), going somewhere, which is a command of the websocket (live).
"""

from __future__ import annotations

from typing import Literal

import attrs
from starlette.responses import Response

from ....storage.model.addresses import Scope, check_path
from ....storage.model.errors import InvalidField, NotFound
from ....storage.model.ids import check_client_id
from ....storage.model.limits import PAGE_LIMIT
from ....storage.model.policies import AgentsMay, Edge
from ....storage.ops import SetPolicy
from ....storage.ops.namespace import set_policy
from ....storage.wire import rfc3339
from ...namespace.directory import directory
from ..edge import Ask, limit
from ..views import JsonResponse, place_view, rules_view


@attrs.frozen
class NewRule:
    """Body of `PUT /v1/policy`: all that is said at `prefix`; what it leaves out comes from the prefix above."""

    prefix: str
    edge: Literal["collaborate", "handoff_only"] | None = None
    agents: Literal["none", "create", "rename"] | None = None
    handoff: bool | None = None
    confirm: bool | None = None

    def op(self, scope: Scope) -> SetPolicy:
        """The op that sets it. Raises `InvalidField` for a prefix that is no path."""
        return set_policy(
            scope,
            self.prefix,
            edge=None if self.edge is None else Edge(self.edge),
            agents=None if self.agents is None else AgentsMay(self.agents),
            handoff=self.handoff,
            confirm=self.confirm,
        )


async def listing(ask: Ask) -> Response:
    """{entries: [{path, session, agent, purpose, title, confirm}], has_more, next}, in the order of paths, `/` first."""
    query = ask.query("limit", "cursor")
    cursor = query.get("cursor")
    page = await directory(
        ask.desk,
        ask.scope,
        limit=limit(query.get("limit"), PAGE_LIMIT),
        cursor=None if cursor is None else check_path(cursor, "cursor"),
    )
    entries = [place_view(item) for item in page.items]
    return JsonResponse({"entries": entries, "has_more": page.has_more, "next": page.next})


async def rules(ask: Ask) -> Response:
    """{rules, project}: what is said by prefix, and what holds at the root."""
    ask.query()
    return JsonResponse(rules_view(await ask.desk.store.reads.rules(ask.scope), ask.desk.tuning.edge))


async def rule(ask: Ask) -> Response:
    """200 and the rules with that of the prefix as it was sent; one that says nothing is gone."""
    ask.query()
    new = await ask.body(NewRule)
    made = await ask.desk.store.apply(new.op(ask.scope))
    return JsonResponse(rules_view(made, ask.desk.tuning.edge))


async def client(ask: Ask) -> Response:
    """{client, session, frontiers: {session: event}, at} of the asking principal's client; 404 if it went nowhere within 30 days."""
    ask.query()
    nowhere = NotFound("this client has gone nowhere", path="client")
    try:
        check_client_id(ask.id)
    except InvalidField:
        raise nowhere from None
    went = await ask.desk.store.reads.navigation(ask.scope, ask.principal.sender.principal, ask.id)
    if went is None:
        raise nowhere
    view = {"client": ask.id, "session": went.session, "frontiers": went.frontiers, "at": rfc3339(went.at)}
    return JsonResponse(view)
