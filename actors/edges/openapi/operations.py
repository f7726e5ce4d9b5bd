"""The table of addresses as the document shows them: what each takes and answers. Not here: shapes (`schemas`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ..routes import console
from .schemas import CURSOR, LIMIT, MESSAGE_ID, NAME, PATH, ROW_CURSOR, SESSION_CURSOR, STRING, TIME, Schema, enum

SSE: Final = "text/event-stream"
HTML: Final = "text/html"


@attrs.frozen
class Operation:
    """One method of one address.

    `answers` maps a status to the name of its shape, to a media type, or to None for no body; `errors` are statuses with the shape Error,
    beside those that every address has. `body` is the name of a shape; `optional_body`: nothing at all is a body too.
    """

    summary: str
    answers: Mapping[int, str | None]
    errors: tuple[int, ...] = ()
    body: str | None = None
    optional_body: bool = False
    query: Mapping[str, Schema] = attrs.field(factory=dict[str, Schema])
    headers: Mapping[str, Schema] = attrs.field(factory=dict[str, Schema])
    public: bool = False
    keyed: bool = True
    """Takes an Idempotency-Key, if it writes."""


_BY_NAME: Final[dict[str, Schema]] = {"limit": LIMIT, "cursor": STRING}
_BY_ROW: Final[dict[str, Schema]] = {"limit": LIMIT, "cursor": ROW_CURSOR}
_LAST: Final[dict[str, Schema]] = {"Last-Event-ID": CURSOR}

OPERATIONS: Final[Mapping[str, Mapping[str, Operation]]] = {
    "/healthz": {
        "get": Operation("Whether work can be taken.", {200: "Health", 503: "Health"}, public=True),
    },
    "/readyz": {
        "get": Operation("Whether requests should be sent here.", {200: "Ready", 503: "Ready"}, public=True),
    },
    "/openapi.json": {"get": Operation("This document.", {200: "application/json"}, public=True)},
    "/": {
        "get": Operation(
            "The console; a ticket in the address is exchanged for a cookie.",
            {200: HTML, 303: None, 304: None, 401: HTML},
            query={"ticket": STRING},
            public=True,
        ),
    },
    **{
        path: {"get": Operation("A file of the console.", {200: "*/*", 304: None}, public=True)}
        for path in console.ASSETS
    },
    "/v1/sessions": {
        "get": Operation(
            "Sessions, newest change first.",
            {200: "Sessions"},
            query={"path": PATH, "status": enum("active", "idle", "recent"), "limit": LIMIT, "cursor": SESSION_CURSOR},
        ),
        "post": Operation("Open a session.", {201: "Session"}, (409,), body="NewSession"),
    },
    "/v1/sessions/{id}": {
        "get": Operation("A session.", {200: "Session"}, (404,)),
        "patch": Operation("Change title and path.", {200: "Session"}, (404, 409), body="SessionChanges", keyed=False),
        "delete": Operation("Delete a session; what waits in it fails.", {204: None}, (404, 409), keyed=False),
    },
    "/v1/sessions/{id}/messages": {
        "post": Operation(
            "Post a message; it is a committed row when this answers. A repeat under its message_id has created false.",
            {202: "Receipt"},
            (404, 409, 429),
            body="NewMessage",
        ),
    },
    "/v1/sessions/{id}/transcript": {
        "get": Operation(
            "Entries above a number, oldest first.",
            {200: "Transcript"},
            (404,),
            query={"after": CURSOR, "limit": LIMIT},
        ),
    },
    "/v1/sessions/{id}/prompt": {
        "get": Operation(
            "What the next call of the session's model would send, and what of it changed since the last one.",
            {200: "Prompt"},
            (404, 409),
        ),
    },
    "/v1/sessions/{id}/stop": {
        "post": Operation("Stop the turn that runs.", {202: "Stopping"}, (404, 409), body="Stop", optional_body=True),
    },
    "/v1/sessions/{id}/events": {
        "get": Operation(
            "Events above a cursor, then live. The field event is the kind, data its JSON (EventData).",
            {200: SSE},
            (404,),
            query={"after": CURSOR},
            headers=_LAST,
        ),
    },
    "/v1/turns/{id}/events": {
        "get": Operation(
            "The same of one turn, until its end; 204 where nothing is left to tell.",
            {200: SSE, 204: None},
            (404, 409),
            query={"after": CURSOR},
            headers=_LAST,
        ),
    },
    "/v1/messages/{id}": {
        "get": Operation("A message by either id, with its history.", {200: "MessageWithHistory"}, (404, 409)),
    },
    "/v1/inbox": {
        "get": Operation(
            "Messages, newest first.",
            {200: "Inbox"},
            query={
                "target": STRING,
                "status": enum("pending", "processing", "delivered", "failed"),
                "peer": STRING,
                "before": TIME,
                **_BY_ROW,
            },
        ),
    },
    "/v1/inbox/prune": {
        "post": Operation(
            "Forget the bodies of messages that ended longer ago; more: ask again.",
            {200: "Pruned"},
            (404,),
            body="Retention",
        ),
    },
    "/v1/inbox/{id}/requeue": {
        "post": Operation(
            "Accept a final message again.", {202: "Receipt"}, (404, 409, 429), body="Nothing", optional_body=True
        ),
    },
    "/v1/inbox/{id}/cancel": {
        "post": Operation(
            "Fail a message that waits.", {200: "Message"}, (404, 409), body="Nothing", optional_body=True
        ),
    },
    "/v1/approvals/{id}": {
        "post": Operation("Allow or deny a call that waits.", {200: "Approval"}, (404, 409), body="Answer"),
    },
    "/v1/directory": {
        "get": Operation(
            "Sessions that have a path, in the order of paths.",
            {200: "Directory"},
            query={"limit": LIMIT, "cursor": PATH},
        ),
    },
    "/v1/clients/{id}": {
        "get": Operation(
            "Where a client of the asking principal went last, by the websocket's navigate.",
            {200: "Navigation"},
            (404,),
        ),
    },
    "/v1/policy": {
        "get": Operation("The project's rules by prefix of a path.", {200: "Rules"}),
        "put": Operation("Set all that is said at a prefix.", {200: "Rules"}, body="NewRule", keyed=False),
    },
    "/v1/tree": {"get": Operation("The supervision tree.", {200: "Node"})},
    "/v1/doctor": {"get": Operation("What is well and what is not.", {200: "Report"}, (404,))},
    "/v1/backup": {
        "post": Operation(
            "A consistent copy of the SQLite database, made while turns go on; credentials are in it as digests.",
            {200: "application/vnd.sqlite3"},
            (409,),
            body="Nothing",
            optional_body=True,
        ),
    },
    "/metrics": {
        "get": Operation("Metrics for Prometheus.", {200: "text/plain"}, (404,), headers={"Accept": STRING}),
    },
    "/v1/whoami": {"get": Operation("Who asks.", {200: "Whoami"})},
    "/v1/tickets": {
        "post": Operation(
            "A ticket: for one websocket within 30 s, or one link to the console within 10 min.",
            {201: "Ticket"},
            (404, 409),
            body="NewTicket",
            optional_body=True,
        ),
    },
    "/v1/logout": {
        "post": Operation("Revoke the cookie that asks.", {204: None}, (409,), body="Nothing", optional_body=True),
    },
    "/v1/members": {
        "get": Operation("Members, by name.", {200: "Members"}, query=_BY_NAME),
        "post": Operation("Give a member a project.", {201: "Member"}, (404, 409), body="NewMember"),
    },
    "/v1/members/{id}/suspend": {
        "post": Operation("Shut a member out.", {200: "Member"}, (404,), body="Nothing", optional_body=True),
    },
    "/v1/members/{id}/resume": {
        "post": Operation("Let a member in again.", {200: "Member"}, (404,), body="Nothing", optional_body=True),
    },
    "/v1/tokens": {
        "get": Operation("Tokens and cookies, newest first.", {200: "Tokens"}, query=_BY_ROW),
        "post": Operation("Make a token; it is shown this once.", {201: "MadeToken"}, (404, 409), body="NewToken"),
    },
    "/v1/tokens/{id}/revoke": {
        "post": Operation(
            "Make a token or cookie invalid.", {200: "Token"}, (404,), body="Nothing", optional_body=True
        ),
    },
    "/v1/live": {
        "get": Operation(
            "A websocket, subprotocol callboard.v1: frames as README has them.",
            {101: None},
            (404, 426),
            query={"client": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,64}$"}, "ticket": STRING},
        ),
    },
}

KEY: Final[dict[str, Schema]] = {"Idempotency-Key": MESSAGE_ID}
PROJECT: Final[dict[str, Schema]] = {"Callboard-Project": NAME}
