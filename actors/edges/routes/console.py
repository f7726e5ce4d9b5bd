"""Routes of the web console: its page and the files that the page loads. What a browser shows is in `../console`.

Not here: who may open the page. The files hold no data, so they need no credential; all data comes through `/v1` with the visitor's own.

Invariant: the page runs what stands in these files and nothing else: no inline script or style, no other origin, no markup made of data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from starlette.requests import Request
from starlette.responses import Response

from ..edge import Ask

FOLDER: Final = Path(__file__).parents[1] / "console"
PREFIX: Final = "/console/"
PAGE: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The last two make the browser itself refuse innerHTML and its like."""
SECURITY: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Fields of every page and file of the console."""


@attrs.frozen
class File:
    """One file as it is sent. `tag` is its strong ETag, made of its bytes."""

    body: bytes
    media: str
    tag: str

    def answer(self, request: Request) -> Response:
        """200, or 304 for a browser that has these bytes. It asks each time, so a new version is never mixed with an old one."""
        headers = {**SECURITY, "ETag": self.tag, "Cache-Control": "no-cache"}
        if _names(request.headers.get("if-none-match", ""), self.tag):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers={**headers, "Content-Type": self.media})


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


FILES: Final = {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}
"""All files by name, read once: a console that is replaced under a running server would be half old and half new."""


async def page(ask: Ask) -> Response:
    """200 and the page."""
    ask.query()
    return FILES[PAGE].answer(ask.request)


async def _file(name: str, ask: Ask) -> Response:
    ask.query()
    return FILES[name].answer(ask.request)


ASSETS: Final[dict[str, dict[str, Callable[[Ask], Awaitable[Response]]]]] = {
    PREFIX + name: {"GET": partial(_file, name)} for name in FILES if name != PAGE
}
"""Address → method → handler of the files; public."""


def _names(field: str, tag: str) -> bool:
    """Whether an If-None-Match field names `tag`; a weak name is good enough, as RFC 9110 compares here."""
    given = {name.strip().removeprefix("W/") for name in field.split(",")}
    return tag in given or "*" in given
