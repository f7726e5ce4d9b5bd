"""The HTTP application: which address answers what, and the gate in front of all of them.

Lives here: the table of routes, credentials and Origin before any route. Not here: which of them is open to whom (access), what routes do
(routes), websockets (live), the front.

Invariant: an address that is not in the table as public answers nobody without a valid credential, not even with 404.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...storage.model.errors import CallboardError
from . import door
from .access import ANYWHERE, check_may
from .edge import Ask, Edge
from .errors import error_response, on_callboard_error, on_fault, on_http_exception
from .fields import check_origin
from .openapi.document import contract
from .routes import approvals, console, members, messages, namespace, operations, prompt, sessions, streams, system

Handler = Callable[[Ask], Awaitable[Response]]
PUBLIC: Final[Mapping[str, Mapping[str, Handler]]] = {
    "/healthz": {"GET": system.healthz},
    "/readyz": {"GET": system.readyz},
    "/openapi.json": {"GET": contract},
    "/": {"GET": door.home},  # asks for the key itself, as a browser must be told how to get one
    **console.ASSETS,
}
ROUTES: Final[Mapping[str, Mapping[str, Handler]]] = {
    "/v1/sessions": {"GET": sessions.listing, "POST": sessions.create},
    "/v1/sessions/{id}": {"GET": sessions.show, "PATCH": sessions.change, "DELETE": sessions.delete},
    "/v1/sessions/{id}/messages": {"POST": messages.post},
    "/v1/sessions/{id}/transcript": {"GET": sessions.transcript},
    "/v1/sessions/{id}/prompt": {"GET": prompt.show},
    "/v1/sessions/{id}/stop": {"POST": sessions.stop},
    "/v1/sessions/{id}/events": {"GET": streams.session},
    "/v1/turns/{id}/events": {"GET": streams.turn},
    "/v1/messages/{id}": {"GET": messages.show},
    "/v1/inbox": {"GET": messages.inbox},
    "/v1/inbox/prune": {"POST": operations.prune},
    "/v1/inbox/{id}/requeue": {"POST": messages.requeue},
    "/v1/inbox/{id}/cancel": {"POST": messages.cancel},
    "/v1/approvals/{id}": {"POST": approvals.answer},
    "/v1/directory": {"GET": namespace.listing},
    "/v1/clients/{id}": {"GET": namespace.client},
    "/v1/policy": {"GET": namespace.rules, "PUT": namespace.rule},
    "/v1/tree": {"GET": system.tree},
    "/v1/doctor": {"GET": operations.doctor},
    "/v1/backup": {"POST": operations.backup},
    "/metrics": {"GET": operations.metrics},
    "/v1/whoami": {"GET": members.whoami},
    "/v1/tickets": {"POST": members.tickets},
    "/v1/logout": {"POST": members.logout},
    "/v1/members": {"GET": members.members, "POST": members.add},
    "/v1/members/{id}/suspend": {"POST": members.suspend},
    "/v1/members/{id}/resume": {"POST": members.resume},
    "/v1/tokens": {"GET": members.tokens, "POST": members.create},
    "/v1/tokens/{id}/revoke": {"POST": members.revoke},
}
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def make_app(edge: Edge) -> ASGIApp:
    """The application that the front serves. Its scopes need `state.stopping`, the event of the front's stop."""
    app = Starlette(
        routes=[
            Route(path, _endpoint(edge, path, methods), methods=[*methods])
            for table in (PUBLIC, ROUTES)
            for path, methods in table.items()
        ],
        exception_handlers={
            CallboardError: on_callboard_error,
            HTTPException: on_http_exception,
            Exception: on_fault,
        },
    )
    # Another address with a slash at its end is another address: a redirect would send a body, or a token, a second time.
    app.router.redirect_slashes = False
    return Gate(app, edge)


class Gate:
    """Lets a request through to the application if its credential is good and no page of another origin has made it."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        self._app = app
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            path, headers = scope["path"], scope["headers"]
            principal = None
            if path not in PUBLIC:
                principal = await self._edge.auth.principal(headers, anywhere=path in ANYWHERE)
            scope["state"]["principal"] = principal
            if scope["method"] not in _READS:
                check_origin(headers, self._edge.hosts, required=principal is not None and principal.by_cookie)
        except CallboardError as refusal:
            await error_response(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _endpoint(edge: Edge, path: str, methods: Mapping[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        # One route an address, so that a 405 can name all its methods. HEAD is GET whose body the front leaves out.
        method = "GET" if request.method == "HEAD" else request.method
        request.state.route = path
        visitor = request.state.principal
        if visitor is not None:
            check_may(visitor.kind, path, method)
        return await methods[method](Ask(request, edge, visitor))

    return endpoint
