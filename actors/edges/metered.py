"""Counts what the application answers, by route and status. Not here: what the front refuses before the application is asked.

Invariant: an address is counted under its route's template, so that clients can't make figures of their own.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..ports import Meter

ROUTE = "route"


class Metered:
    """The same application, counted. It leaves its route's template in `state.route`; nothing there counts as no route."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            # At the beginning of the answer: a stream may have no end for days.
            if message["type"] == "http.response.start":
                self._meter.answered(scope["state"].get(ROUTE, ""), scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, counted)
