"""Routes about who may come in: the visitor itself, members, tokens, tickets.

Not here: which of them is open to whom (access). Invariant: a secret is in exactly one answer, that to the request which made it.
"""

from __future__ import annotations

from typing import Literal

import attrs
from starlette.responses import Response

from ....storage.model.access import (
    Carrier,
    Grant,
    Kind,
    Purpose,
    check_member_name,
    check_project,
    digest,
    new_secret,
)
from ....storage.model.addresses import Scope
from ....storage.model.errors import Conflict, Forbidden, InvalidField
from ....storage.ops import AddMember, RevokeCredential, SuspendMember
from ....storage.ops.access import issue_token
from ....storage.wire import rfc3339
from ..auth import PROJECT
from ..door import cookie
from ..edge import Ask, limit
from ..fields import one_field
from ..views import JsonResponse, credential_view, member_view
from .messages import Nothing


@attrs.frozen
class NewMember:
    """Body of `POST /v1/members`. Without a project it is the one that the request acts in."""

    name: str
    project: str | None = None


@attrs.frozen
class NewToken:
    """Body of `POST /v1/tokens`. For a member, else for a project, else for the operator."""

    member: str | None = None
    project: str | None = None
    label: str = ""


@attrs.frozen
class NewTicket:
    """Body of `POST /v1/tickets`. An operator may ask for a console link for a `member`."""

    kind: Literal["ws", "console"] = "ws"
    member: str | None = None


async def whoami(ask: Ask) -> Response:
    """200 {kind, name, projects, project}; `projects` null: any; `project` null: one must be named."""
    ask.query()
    who = ask.principal
    named = one_field(ask.request.scope["headers"], PROJECT.lower().encode()) is not None
    clear = named or who.projects is None or len(who.projects) == 1
    return JsonResponse(
        {
            "kind": who.kind,
            "name": who.sender.label or who.sender.id,
            "projects": None if who.projects is None else list(who.projects),
            "project": who.scope.project if clear else None,
        }
    )


async def tickets(ask: Ask) -> Response:
    """201 {ticket, expires}: for one websocket within 30 s, or one console link within 10 min."""
    ask.query()
    asked = await ask.body_if_any(NewTicket)
    ask.check_key()
    grant: Grant | None = None
    if asked.member is not None:
        if ask.principal.kind is not Kind.OPERATOR:
            raise Forbidden("a ticket for somebody else is the operator's to give", path="member")
        if asked.kind != Purpose.CONSOLE:
            raise InvalidField("can be named for the console alone", path="member")
        grant = Grant(Kind.MEMBER, check_member_name(asked.member, "member"))
    ticket = await ask.edge.auth.issue(ask.principal, Purpose(asked.kind), grant=grant)
    return JsonResponse({"ticket": ticket.secret, "expires": rfc3339(ticket.expires)}, 201)


async def logout(ask: Ask) -> Response:
    """204; the cookie is gone, here and in the browser. 409 for a request that came without one."""
    ask.query()
    await ask.body_if_any(Nothing)
    ask.check_key()
    if ask.principal.carrier is not Carrier.COOKIE:
        raise Conflict("this request came with a token; revoke that instead")
    await ask.edge.auth.leave(ask.principal)
    return Response(status_code=204, headers={"Set-Cookie": cookie(ask, "")})


async def members(ask: Ask) -> Response:
    """{members, has_more, next}, by name."""
    query = ask.query("limit", "cursor")
    page = await ask.desk.store.access.members(
        ask.scope.tenant, limit=limit(query.get("limit"), 50), cursor=query.get("cursor")
    )
    return JsonResponse(
        {"members": [member_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}
    )


async def add(ask: Ask) -> Response:
    """201 and the member, who has the project now; the same again answers the same."""
    ask.query()
    new = await ask.body(NewMember)
    project = ask.scope.project if new.project is None else check_project(new.project)
    ask.check_key()
    op = AddMember(Scope(ask.scope.tenant, project), check_member_name(new.name))
    return JsonResponse(member_view(await ask.desk.store.apply(op)), 201)


async def suspend(ask: Ask) -> Response:
    """200 and the member, whose tokens, cookies and streams are good for nothing from now on."""
    return await _suspended(ask, suspended=True)


async def resume(ask: Ask) -> Response:
    """200 and the member, whose tokens are good again."""
    return await _suspended(ask, suspended=False)


async def tokens(ask: Ask) -> Response:
    """{tokens, has_more, next}, newest first: tokens and browsers' cookies."""
    query = ask.query("limit", "cursor")
    page = await ask.desk.store.access.credentials(
        ask.scope.tenant, limit=limit(query.get("limit"), 50), cursor=query.get("cursor")
    )
    return JsonResponse(
        {"tokens": [credential_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}
    )


async def create(ask: Ask) -> Response:
    """201 {token, …}: the secret, shown this once, and what else is known of it. 404 for an unknown member or project."""
    ask.query()
    new = await ask.body(NewToken)
    ask.check_key()
    secret = new_secret()
    op = issue_token(ask.scope, digest(secret), member=new.member, project=new.project, label=new.label)
    made = await ask.desk.store.apply(op)
    return JsonResponse({"token": secret, **credential_view(made)}, 201)


async def revoke(ask: Ask) -> Response:
    """200 and the token or cookie, which is good for nothing from now on."""
    ask.query()
    await ask.body_if_any(Nothing)
    ask.check_key()
    gone = await ask.desk.store.apply(RevokeCredential(ask.scope.tenant, ask.id))
    return JsonResponse(credential_view(gone))


async def _suspended(ask: Ask, *, suspended: bool) -> Response:
    ask.query()
    await ask.body_if_any(Nothing)
    ask.check_key()
    member = await ask.desk.store.apply(SuspendMember(ask.scope.tenant, ask.id, suspended))
    return JsonResponse(member_view(member))
