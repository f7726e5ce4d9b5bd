"""The listing of sessions: every page, filter and cursor gives what the rows say, in the order of changes, ties included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import InvalidField
from callboard.storage.model.sessions import SessionKind
from callboard.storage.ops import DeleteSession
from callboard.storage.ops.sessions import open_session

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session


async def pages(kit: Kit, limit: int, **filters: bool) -> list[Session]:
    found: list[Session] = []
    cursor = None
    while True:
        page = await kit.store.reads.sessions(kit.scope, limit=limit, cursor=cursor, **filters)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


async def populate(kit: Kit, other: Scope) -> list[Session]:
    """Sessions of one transaction, so that many changed at one time; some busy, some with children, some deleted, some hidden."""
    opened: list[Session] = []

    async def one(number: int) -> None:
        opened.append((await kit.store.apply(open_session(kit.scope, "echo", path=f"/{number}"))).session)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(one, number)
    for index in (3, 9, 27):
        await kit.post(opened[index])
    await kit.claims()
    await kit.child(opened[12])
    ended = await kit.child(opened[14])
    for gone in (opened[20].id, opened[9].id, ended.id):
        await kit.store.apply(DeleteSession(kit.scope, gone, kit.ann))
    await kit.open(kind=SessionKind.INTERNAL)
    await kit.post(await kit.open(scope=other))
    await kit.claims()
    return [
        await kit.store.reads.session(kit.scope, session.id)
        for session in opened
        if session.id not in (opened[20].id, opened[9].id)
    ]


@pytest.mark.parametrize("limit", [1, 3, 200])
async def test_pages_of_any_size_give_every_session_once_in_order(
    kit: Kit, other_scopes: tuple[Scope, Scope], limit: int
) -> None:
    known = await populate(kit, other_scopes[0])
    whole = await pages(kit, limit)
    assert [session.updated for session in whole] == sorted((session.updated for session in whole), reverse=True)
    assert len({session.id for session in whole}) == len(whole) == len(known) + 1
    assert {session.id for session in known} < {session.id for session in whole}
    for wanted, filters in (("active", {"active": True}), ("idle", {"idle": True})):
        assert await pages(kit, limit, **filters) == [session for session in whole if session.status == wanted]
    active = {session.path for session in whole if session.status == "active"}
    assert len(active) == 5  # two that run a turn, a parent and its child, a parent that takes note of its child's end
    assert await pages(kit, limit, active=True, idle=True) == []


async def test_a_path_names_one_session_whatever_else_is_asked(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    await populate(kit, other_scopes[0])
    reads = kit.store.reads
    for session in await pages(kit, 200):
        if session.path is None:
            continue
        for filters in ({}, {"active": True}, {"idle": True}):
            page = await reads.sessions(kit.scope, path=session.path, **filters)
            fits = not filters or session.status in filters
            assert (page.items, page.next) == ((session,) if fits else (), None)
    for path in ("/nowhere", "/99"):
        assert (await reads.sessions(kit.scope, path=path)).items == ()


@pytest.mark.parametrize(
    "cursor", ["", "1", "1~", "~1", "1~x", "1~-1", "1~1~1", "1e3~1", "inf~1", "1~" + "9" * 19, "1~١"]
)
async def test_what_is_no_cursor_is_refused(kit: Kit, cursor: str) -> None:
    asked: list[dict[str, Any]] = [{}, {"active": True}, {"path": "/"}]
    for more in asked:
        with pytest.raises(InvalidField) as caught:
            await kit.store.reads.sessions(kit.scope, cursor=cursor, **more)
        assert caught.value.path == "cursor"
