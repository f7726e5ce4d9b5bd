"""Puts the OpenAPI document together, once, and gives it to who asks. Not here: what it says (`operations`, `schemas`)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from starlette.responses import Response

from ..edge import Ask
from ..views import JsonResponse
from .operations import KEY, OPERATIONS, PROJECT, Operation
from .schemas import SCHEMAS, Schema, ref

EVERYWHERE: Final[dict[int, str]] = {
    400: "The request, or a part of it, is wrong; path names the part.",
    405: "The address does not take this method; Allow names those that it takes.",
    408: "The request did not arrive in time.",
    414: "The request line is too long.",
    417: "Only 100-continue can be expected.",
    421: "This server does not answer for that host name.",
    426: "A websocket handshake that is none.",
    431: "The fields are too long.",
    500: "A fault of ours; the log has it.",
    501: "A transfer coding, or a method, that is not known here.",
    503: "Not now; Retry-After says when.",
    505: "Only HTTP/1.1 and HTTP/1.0 are understood.",
}
"""What any address may answer, most of it before the application is asked."""
TEXTS: Final[dict[int, str]] = {
    401: "No credential, or one that is not valid.",
    403: "The credential does not allow this, or a page of another origin asks.",
    404: "There is nothing of that name that may be seen.",
    409: "It contradicts what is recorded.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not said to be JSON in UTF-8.",
    429: "A limit is reached; Retry-After says when to try again.",
}
_READS: Final = frozenset({"get"})


@cache
def openapi() -> dict[str, Any]:
    """The document. Not to be changed: everybody gets the same."""
    paths = {
        path: {method: _operation(path, method, operation) for method, operation in methods.items()}
        for path, methods in OPERATIONS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Callboard",
            "version": _version(),
            "description": "A durable actor runtime for agent sessions: accepted means recorded; recorded means one committed turn.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


async def contract(ask: Ask) -> Response:
    """200 and the document. It needs no token: it says nothing of this installation."""
    ask.query()
    return JsonResponse(openapi())


def _operation(path: str, method: str, operation: Operation) -> dict[str, Any]:
    parameters = [_parameter("path", "id", {"type": "string", "minLength": 1}, required=True)] if "{id}" in path else []
    parameters += [_parameter("query", name, schema) for name, schema in operation.query.items()]
    headers = dict(operation.headers)
    if not operation.public:
        headers |= PROJECT
    if method == "post" and operation.keyed:
        headers |= KEY
    parameters += [_parameter("header", name, schema) for name, schema in headers.items()]
    found: dict[str, Any] = {
        "operationId": f"{method}{path.translate(_PLAIN)}",
        "summary": operation.summary,
        "responses": _responses(path, method, operation),
    }
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": ref(operation.body)}}
        found["requestBody"] = {"required": not operation.optional_body, "content": content}
    if operation.public:
        found["security"] = []
    return found


def _responses(path: str, method: str, operation: Operation) -> dict[str, Any]:
    errors = {**EVERYWHERE}
    if not operation.public:
        errors |= {status: TEXTS[status] for status in (401, 403, 404)}
    if operation.body is not None:
        errors |= {status: TEXTS[status] for status in (413, 415)}
    errors |= {status: TEXTS.get(status, EVERYWHERE.get(status, "")) for status in operation.errors}
    found: dict[int, dict[str, Any]] = {
        status: {"description": text, "content": {"application/json": {"schema": ref("Error")}}}
        for status, text in errors.items()
    }
    for status, shape in operation.answers.items():
        found[status] = _answer(status, shape)
    return {str(status): found[status] for status in sorted(found)}


def _answer(status: int, shape: str | None) -> dict[str, Any]:
    text = TEXTS.get(status) or EVERYWHERE.get(status) or "Done."
    if shape is None:
        return {"description": text}
    if "/" in shape:
        return {"description": text, "content": {shape: {"schema": {}}}}
    return {"description": text, "content": {"application/json": {"schema": ref(shape)}}}


def _parameter(place: str, name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"in": place, "name": name, "required": required, "schema": schema}


def _version() -> str:
    try:
        return version("callboard")
    except PackageNotFoundError:
        return "unknown"


_PLAIN: Final = str.maketrans({"/": "_", "{": None, "}": None, ".": "_", "-": "_"})
