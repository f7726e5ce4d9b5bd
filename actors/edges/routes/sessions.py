"""Routes of sessions: open, list, look, rename, delete, stop, transcript.

Invariant: an address takes ids only; who has a path finds the id with `GET /v1/sessions?path=`.
"""

from __future__ import annotations

from contextlib import suppress

import attrs
from starlette.responses import Response

from ....storage.model.addresses import check_path
from ....storage.model.errors import Conflict, InvalidField, PathTaken, UnknownTarget
from ....storage.model.ids import keyed_id
from ....storage.model.limits import PAGE_LIMIT
from ....storage.model.policies import ROOT
from ....storage.model.sessions import ACTIVE, IDLE
from ..edge import KEY, Ask, limit, number
from ..pages import EntryPages
from ..views import JsonResponse, entry_view, session_view

RECENT = "recent"


@attrs.frozen
class NewSession:
    """Body of `POST /v1/sessions`."""

    agent: str
    path: str | None = None
    title: str = ""


@attrs.frozen
class Changes:
    """Body of `PATCH /v1/sessions/{id}`: either, or both together."""

    title: str | None = None
    path: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.title is None and self.path is None:
            raise InvalidField("or path is required", path="title")


@attrs.frozen
class Stop:
    """Body of `POST /v1/sessions/{id}/stop`."""

    drop_queued: bool = False


async def create(ask: Ask) -> Response:
    """201 and the session; 409 for a taken path, and for a key that opened another session. A repeat under its key answers the same."""
    ask.query()
    new = await ask.body(NewSession)
    key = ask.key
    asked = None if key is None else keyed_id("ses", *_namespace(ask), key)
    try:
        opened = await ask.desk.open(
            ask.scope,
            new.agent,
            path=new.path,
            title=new.title,
            must_create=True,
            id=asked,
            by=ask.principal.by,
        )
        session = opened.session if opened.created else await ask.desk.store.reads.session(ask.scope, opened.session.id)
    except PathTaken:
        raise
    except Conflict:
        raise Conflict("this key has opened another session", path=KEY) from None
    except UnknownTarget:
        raise Conflict("the session that this key has opened was deleted", path=KEY) from None
    return JsonResponse(session_view(session), 201, {"Location": f"/v1/sessions/{session.id}"})


async def listing(ask: Ask) -> Response:
    """{sessions, has_more, next}, newest change first; `status` is active, idle, or recent for all.

    A path that a session had leads to it: it then says which one that was, as `moved_from`.
    """
    query = ask.query("path", "status", "limit", "cursor")
    status = query.get("status", RECENT)
    if status not in (ACTIVE, IDLE, RECENT):
        raise InvalidField(f"must be {ACTIVE}, {IDLE} or {RECENT}", path="status")
    path = None if "path" not in query else check_path(query["path"])
    if path == ROOT:
        with suppress(UnknownTarget):
            await ask.desk.root(ask.scope)
    page = await ask.desk.store.reads.sessions(
        ask.scope,
        path=path,
        active=status == ACTIVE,
        idle=status == IDLE,
        limit=limit(query.get("limit"), 50),
        cursor=query.get("cursor"),
    )
    found = [session_view(item, asked=path) for item in page.items]
    return JsonResponse({"sessions": found, "has_more": page.has_more, "next": page.next})


async def show(ask: Ask) -> Response:
    """200 and the session."""
    ask.query()
    return JsonResponse(session_view(await ask.desk.store.reads.session(ask.scope, ask.id)))


async def change(ask: Ask) -> Response:
    """200 and the session with its new title and path; 409 for the root's path, and for one that another session has or had."""
    ask.query()
    changes = await ask.body(Changes)
    await ask.desk.store.reads.session(ask.scope, ask.id)
    changed = await ask.desk.rename(ask.scope, ask.id, changes.title, path=changes.path, by=ask.principal.by)
    return JsonResponse(session_view(changed))


async def delete(ask: Ask) -> Response:
    """204; also if it was deleted before. 409 for the root."""
    ask.query()
    await ask.desk.delete(ask.scope, ask.id, ask.principal.sender)
    return Response(status_code=204)


async def stop(ask: Ask) -> Response:
    """202 {status: stopping}; 409 if no turn runs. A repeat under its key stops no later turn."""
    ask.query()
    asked = await ask.body_if_any(Stop)
    key = None if ask.key is None else keyed_id("stop", *_namespace(ask), ask.key)
    await ask.desk.stop(ask.scope, ask.id, drop_queued=asked.drop_queued, key=key)
    return JsonResponse({"status": "stopping"}, 202)


async def transcript(ask: Ask) -> Response:
    """{entries} above `after`, oldest first: all of them, or the first `limit`."""
    query = ask.query("after", "limit")
    after, most = number(query.get("after"), "after"), limit(query.get("limit"), PAGE_LIMIT)
    session = await ask.desk.store.reads.session(ask.scope, ask.id)
    entries = await ask.desk.store.reads.transcript(ask.scope, ask.id, after=after, limit=most)
    if "limit" in query or len(entries) < most:
        return JsonResponse({"entries": [entry_view(entry) for entry in entries]})
    return EntryPages(ask.desk.store.reads, ask.scope, ask.id, entries, newest=session.newest_seq)


def _namespace(ask: Ask) -> tuple[str, str, str]:
    return (ask.scope.tenant, ask.scope.project, ask.principal.sender.principal)
