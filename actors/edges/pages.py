"""A long transcript as one response, read and sent page by page. Not here: the shape of an entry (views), what is asked for (routes).

Invariant: no more than a page is in memory, however long the transcript and however slow the reader; the front's deadlines bound the rest.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from ...storage.model.addresses import Scope
from ...storage.model.sessions import Entry
from ...storage.reads import Reads
from .views import dump, entry_view


class EntryPages(Response):
    """{entries}: the given first page and all that follow it, up to the entry `newest`, which was the newest when it was asked for."""

    media_type = "application/json"

    def __init__(self, reads: Reads, scope: Scope, session: str, first: list[Entry], *, newest: int) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._reads = reads
        self._scope = scope
        self._session = session
        self._page = first
        self._newest = newest

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        before = b'{"entries":['
        page = self._page
        while page:
            body = before + b",".join(dump(entry_view(entry)) for entry in page)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            before, last = b",", page[-1].seq
            page = await self._reads.transcript(self._scope, self._session, after=last) if last < self._newest else []
        await send({"type": "http.response.body", "body": b"]}", "more_body": False})
