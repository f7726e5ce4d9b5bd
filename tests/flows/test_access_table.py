"""The table route × principal, cell by cell, against a literal one: what each kind of principal gets from each route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

from callboard.actors.edges.access import ANYWHERE, MAY
from callboard.actors.edges.app import PUBLIC, ROUTES
from callboard.tests.flows.access_kit import add_member, make_key, member_key
from callboard.tests.flows.edge_kit import Served

GONE = "there is no such address here"


@attrs.frozen
class Cell:
    """How a route answers the operator, a token for this project, a member of it, and a member of another project.

    A number is an answer of the route itself; `no` the refusal of something at an address that the principal may use, `gone` that of an
    address of which it may use nothing.
    """

    operator: int | str
    project: int | str
    member: int | str
    stranger: int | str
    body: dict[str, Any] | None = None


CELLS = {
    "GET /v1/sessions": Cell(200, 200, 200, 200),
    "POST /v1/sessions": Cell(201, 201, 201, 201, {"agent": "desk"}),
    "GET /v1/sessions/{session}": Cell(200, 200, 200, 404),
    "PATCH /v1/sessions/{session}": Cell(200, 200, 200, 404, {"title": "New"}),
    "DELETE /v1/sessions/{session}": Cell(204, 204, "no", "no"),
    "POST /v1/sessions/{session}/messages": Cell(202, 202, 202, 404, {"content": "echo hi"}),
    "GET /v1/sessions/{session}/transcript": Cell(200, 200, 200, 404),
    "GET /v1/sessions/{session}/prompt": Cell(409, "gone", "gone", "gone"),
    "POST /v1/sessions/{session}/stop": Cell(409, 409, 409, 404),
    "GET /v1/sessions/{session}/events": Cell(200, 200, 200, 404),
    "GET /v1/turns/{turn}/events": Cell(200, 200, 200, 404),
    "GET /v1/messages/{message}": Cell(200, 200, 200, 404),
    "GET /v1/inbox": Cell(200, 200, 200, 200),
    "POST /v1/inbox/{message}/requeue": Cell(202, 202, "gone", "gone"),
    "POST /v1/inbox/{message}/cancel": Cell(409, 409, "gone", "gone"),
    "POST /v1/inbox/prune": Cell(200, "gone", "gone", "gone", {"older_than_seconds": 1e9}),
    "POST /v1/approvals/{approval}": Cell(404, 404, "gone", "gone", {"approve": True}),
    "GET /v1/directory": Cell(200, 200, 200, 200),
    "GET /v1/clients/{client}": Cell(404, 404, 404, 404),
    "GET /v1/policy": Cell(200, "gone", "gone", "gone"),
    "PUT /v1/policy": Cell(200, "gone", "gone", "gone", {"prefix": "/ops", "confirm": True}),
    "GET /v1/whoami": Cell(200, 200, 200, 200),
    "POST /v1/tickets": Cell(201, 201, 201, 201),
    "POST /v1/logout": Cell(409, 409, 409, 409),
    "GET /v1/tree": Cell(200, "gone", "gone", "gone"),
    "GET /v1/doctor": Cell(200, "gone", "gone", "gone"),
    "POST /v1/backup": Cell(200, "gone", "gone", "gone"),
    "GET /metrics": Cell(200, "gone", "gone", "gone"),
    "GET /v1/members": Cell(200, "gone", "gone", "gone"),
    "POST /v1/members": Cell(201, "gone", "gone", "gone", {"name": "new"}),
    "POST /v1/members/{known}/suspend": Cell(200, "gone", "gone", "gone"),
    "POST /v1/members/{known}/resume": Cell(200, "gone", "gone", "gone"),
    "GET /v1/tokens": Cell(200, "gone", "gone", "gone"),
    "POST /v1/tokens": Cell(201, "gone", "gone", "gone", {}),
    "POST /v1/tokens/{spare}/revoke": Cell(200, "gone", "gone", "gone"),
}
KINDS = ("operator", "project", "member", "stranger")
BESIDE_THE_FRONT = {"GET /v1/doctor", "GET /metrics"}
"""A front that is not part of `serve` may be without what answers them: the operator then gets 404."""


def plain(route: str) -> str:
    """The route with one name for whatever id stands in it, as the application's table has it."""
    method, _, path = route.partition(" ")
    return f"{method} " + "/".join("{id}" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.spec("AUTH-1")
def test_the_literal_table_and_the_applications_have_the_same_routes() -> None:
    routes = {f"{method} {path}" for path, methods in ROUTES.items() for method in methods}
    assert {plain(route) for route in CELLS} == routes
    assert {f"{method} {path}" for path, methods in MAY.items() for method in methods} == routes
    assert set(MAY) >= ANYWHERE
    assert not set(PUBLIC) & set(ROUTES)


def test_what_needs_no_credential_is_little() -> None:
    assert {path for path in PUBLIC if not path.startswith("/console/")} == {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/",
    }
    assert all({*methods} == {"GET"} for methods in PUBLIC.values())


Fill = Callable[[], Awaitable[dict[str, str]]]


@pytest.mark.spec("AUTH-1", "AUTH-2")
async def test_every_cell_answers_as_the_literal_table_says(served: Served) -> None:
    headers = {
        "operator": served.headers,
        "project": (await make_key(served, project="default")).headers,
        "member": (await member_key(served, "ann")).headers,
        "stranger": (await member_key(served, "eve", "other")).headers,
    }
    await add_member(served, "known")

    async def things() -> dict[str, str]:
        session = await served.open()
        message = await served.say(session, "echo hi")
        return {
            "session": session,
            "message": message["id"],
            "turn": message["turn_id"],
            "approval": "apr_unknown",
            "client": "tab-1",
            "known": "known",
            "spare": (await make_key(served)).id,
        }

    wrong: dict[str, str] = {}
    for route, cell in CELLS.items():
        method, _, path = route.partition(" ")
        for kind in KINDS:
            # New ones for each cell: what one of them may do must not be what the next one finds undone.
            address = path.format(**await things())
            found = await answer(served, method, address, headers[kind], cell.body)
            expected = getattr(cell, kind)
            if found != expected and not (route in BESIDE_THE_FRONT and (expected, found) == (200, 404)):
                wrong[f"{kind}: {route}"] = f"{found} instead of {expected}"
    assert not wrong


async def answer(
    served: Served, method: str, path: str, headers: dict[str, str], body: dict[str, Any] | None
) -> int | str:
    """The answer as a cell has it."""
    request: dict[str, Any] = {} if body is None else {"json": body}
    async with served.client.stream(method, path, headers=headers, **request) as response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return response.status_code
        await response.aread()
    if response.status_code == 404 and response.json()["error"]["message"] == GONE:
        return "gone"
    if response.status_code == 403:
        assert response.json()["error"]["code"] == "forbidden"
        return "no"
    return response.status_code
