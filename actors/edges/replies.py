"""Replies that the front gives itself, without asking the application.

Lives here: the JSON error body, its rendering to bytes, the Date field. Not here: when to refuse what; the application's responses.

Invariant: every reply of the front ends its connection and says so. It is rendered without the protocol state machine, so it can also be
given after a request that the machine could not follow. Texts are fixed: nothing of the request is quoted.
"""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import attrs


@attrs.frozen
class Reply:
    """One complete response. `headers` are (lower-case name, value) pairs beside those that every reply bears."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def render(self, *, without_body: bool = False) -> bytes:
        """Bytes to send; `without_body` for an answer to HEAD, whose fields are those of the answer to GET."""
        lines = [b"HTTP/1.1 %d %s" % (self.status, reason(self.status)), b"date: " + http_date()]
        if self.status != HTTPStatus.NO_CONTENT:
            lines += [b"content-type: application/json", b"content-length: %d" % len(self.body)]
        lines += [name + b": " + value for name, value in self.headers]
        lines += [b"connection: close", b"", b"" if without_body else self.body]
        return b"\r\n".join(lines)


def error_body(code: str, message: str) -> bytes:
    """The JSON of an error: `{"error": {"code", "message"}}`."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def refusal(status: int, code: str, message: str, *headers: tuple[bytes, bytes]) -> Reply:
    """An error as a reply; `code` is stable, `message` is for people."""
    return Reply(status, error_body(code, message), headers)


def bad_request(message: str) -> Reply:
    """400: what was sent is not a request that we understand."""
    return refusal(400, "invalid_request", message)


def too_slow(what: str) -> Reply:
    """408: `what` did not arrive in time."""
    return refusal(408, "request_timeout", f"the {what} did not arrive in time")


def too_large(limit: int) -> Reply:
    """413: the body is over `limit` bytes, announced or sent."""
    return refusal(413, "body_too_large", f"the body may have at most {limit} bytes")


def unavailable(message: str) -> Reply:
    """503: the same request may succeed in a second."""
    return refusal(503, "unavailable", message, (b"retry-after", b"1"))


def internal() -> Reply:
    """500: our fault; the log says what."""
    return refusal(500, "internal", "the request failed in the server")


def reason(status: int) -> bytes:
    """The phrase of a status; empty for one without a name."""
    return _PHRASES.get(status, b"")


def http_date() -> bytes:
    """Now, as a Date field."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")


_PHRASES = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
