"""The directory of a project: every session that has a path, with what its agent is for and whether people are asked before they go there.

Not here: the block that a model is shown of it (`session.prompt`). Invariant: `/` is always in it, and it comes in the order of paths.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs

from ...storage.model.addresses import Scope
from ...storage.model.errors import UnknownTarget
from ...storage.model.limits import PAGE_LIMIT
from ...storage.model.sessions import Page
from ..desk import Desk
from .paths import matching

NAMED_MOST: Final = 2_000
"""Paths among which a name is looked for: whoever has more must say the path."""


@attrs.frozen
class Place:
    """A session at a path; `purpose` is empty where this process does not know its agent."""

    path: str
    session: str
    agent: str
    purpose: str
    title: str
    confirm: bool


async def directory(desk: Desk, scope: Scope, *, limit: int = PAGE_LIMIT, cursor: str | None = None) -> Page[Place]:
    """A page of the directory; the cursor is the last path seen. Raises `InvalidField` for a bad limit."""
    with suppress(UnknownTarget):
        await desk.root(scope)
    page = await desk.store.reads.directory(scope, limit=limit, cursor=cursor)
    rules = await desk.store.reads.rules(scope)
    return Page(
        tuple(
            Place(
                session.path,
                session.id,
                session.agent,
                desk.purposes.get(session.agent, ""),
                session.title,
                rules.confirm(session.path),
            )
            for session in page.items
            if session.path is not None
        ),
        page.next,
    )


async def paths_named(desk: Desk, scope: Scope, name: str) -> list[str]:
    """The paths of a project that `name` may be short for (see `matching`), among the first 2,000."""
    paths: list[str] = []
    cursor: str | None = None
    while len(paths) < NAMED_MOST:
        page = await desk.store.reads.directory(scope, cursor=cursor)
        paths += [session.path for session in page.items if session.path is not None]
        cursor = page.next
        if cursor is None:
            break
    return matching(name, paths)
