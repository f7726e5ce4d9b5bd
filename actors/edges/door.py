"""The way in for browsers: a ticket in a link becomes a cookie, and the cookie opens the console.

Lives here: the address `/`, the page for who has no key, the cookie itself. Not here: what the console is (routes.console), what a ticket
is good for (auth).

Invariant: a ticket never stays in an address that a browser keeps, and the cookie is one that no script can read and no other site can send.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.responses import Response

from ...storage.model.errors import Unauthorized
from .auth import COOKIE_SECONDS
from .edge import Ask
from .routes import console

TICKET: Final = "ticket"
_LOCKED: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">{again}
<title>Callboard</title>
</head>
<body>
<main>
<h1>Callboard</h1>
<p>This browser has no key. Links to the console can be used once, and for ten minutes.</p>
<p>To get a new one, run <code>callboard console</code> where the server runs.</p>
</main>
</body>
</html>
"""
_AGAIN: Final = '\n<meta http-equiv="refresh" content="0; url=/">'


async def home(ask: Ask) -> Response:
    """The console; 303 to it with a cookie, for a ticket; 401 and how to get in, without either."""
    tickets = ask.request.query_params.getlist(TICKET)
    # Whoever only looks at a link, as mail and chat programs do, must not use it up.
    if len(tickets) == 1 and ask.request.method == "GET":
        with suppress(Unauthorized):
            return _to_console({"Set-Cookie": cookie(ask, await ask.edge.auth.enter(tickets[0]))})
    try:
        await ask.edge.auth.principal(ask.request.scope["headers"], anywhere=True)
    except Unauthorized:
        return _locked(ask)
    # A used link that is opened again where it was used: there is nothing to complain of.
    return _to_console({}) if tickets else await console.page(ask)


def cookie(ask: Ask, secret: str) -> str:
    """The Set-Cookie field that gives a browser its cookie, or with an empty `secret` takes it away."""
    seconds = COOKIE_SECONDS if secret else 0
    secure = "; Secure" if ask.request.url.scheme == "https" else ""
    name = ask.edge.auth.cookie_name
    return f"{name}={secret}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _to_console(headers: dict[str, str]) -> Response:
    return Response(status_code=303, headers={"Location": "/", **headers, **_PRIVATE})


def _locked(ask: Ask) -> Response:
    # A link that was opened from another site: the browser keeps the new cookie back until a page of ours asks again.
    again = _AGAIN if ask.request.headers.get("sec-fetch-site") == "cross-site" else ""
    headers = {"Content-Type": "text/html; charset=utf-8", "WWW-Authenticate": 'Bearer realm="callboard"', **_PRIVATE}
    return Response(_LOCKED.format(again=again), 401, headers)


_PRIVATE: Final = {**console.SECURITY, "Cache-Control": "no-store"}
