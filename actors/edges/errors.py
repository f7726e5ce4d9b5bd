"""Every error as the contract shows it: over HTTP `{"error": {"code", "message", "path"?}}` with its status, over a websocket as a frame.

Lives here: status, fields and bounds of what is said. Not here: raising; replies that the front gives before the application is asked.

Invariant: whatever goes wrong, a client gets this shape; text that may quote hostile input is bounded and printable.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...storage.model.errors import CallboardError, StoreFull, Unauthorized, Unavailable, UsageError, bounded
from .views import JsonResponse

PATH_CHARS = 200


class WrongContentType(UsageError):
    """The body is not said to be JSON."""

    code: ClassVar[str] = "unsupported_media_type"
    status: ClassVar[int] = 415


def error_response(error: CallboardError, headers: dict[str, str] | None = None) -> Response:
    """The response to a request that ended in `error`."""
    given = dict(headers or {})
    if isinstance(error, Unauthorized):
        given["WWW-Authenticate"] = 'Bearer realm="callboard"'
    if isinstance(error, (Unavailable, StoreFull)):
        given["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    return JsonResponse({"error": error_value(error)}, error.status, given)


def error_value(error: CallboardError) -> dict[str, Any]:
    """The `code`, `message` and, where a field is to blame, `path` of an error. Where the store lies is not the client's business."""
    value = {"code": error.code, "message": error.message}
    if error.path is not None and isinstance(error, UsageError):
        value["path"] = bounded(error.path, PATH_CHARS)
    return value


async def on_callboard_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for what we raise on purpose."""
    assert isinstance(error, CallboardError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler for its own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    value = {"code": _CODES.get(status, status.name.lower()), "message": _TEXTS.get(status, status.phrase)}
    return JsonResponse({"error": value}, status, dict(error.headers or {}))


async def on_fault(request: Request, error: Exception) -> Response:
    """Starlette's handler for a fault of ours. It is raised again behind this response, and the front logs it."""
    return JsonResponse({"error": {"code": "internal", "message": "the request failed in the server"}}, 500)


_CODES = {HTTPStatus.NOT_FOUND: "not_found", HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed"}
_TEXTS = {
    HTTPStatus.NOT_FOUND: "there is no such address here",
    HTTPStatus.METHOD_NOT_ALLOWED: "the address exists, but does not take this method",
}
