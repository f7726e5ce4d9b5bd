"""Sessions: opening, paths, renaming, deleting, and what a deleted one leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import Conflict, InvalidField, PathTaken, Rejected, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import SessionKind
from callboard.storage.model.states import Reason, Status
from callboard.storage.ops import Absorb, DeleteSession, Renew, UpdateSession
from callboard.storage.ops.sessions import open_session

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session


def delete(kit: Kit, session: Session) -> DeleteSession:
    return DeleteSession(kit.scope, session.id, kit.ann)


@pytest.mark.spec("SES-1")
@pytest.mark.parametrize("kind", SessionKind)
async def test_a_session_keeps_its_id_and_the_kind_it_was_made_with(kit: Kit, kind: SessionKind) -> None:
    session = await kit.open(kind=kind, title="Title")
    assert (session.kind, session.title) == (kind, "Title")
    if kind is SessionKind.INTERNAL:
        for unknown in (kit.store.reads.session(kit.scope, session.id), kit.store.reads.events(kit.scope, session.id)):
            with pytest.raises(UnknownTarget):
                await unknown
        assert (await kit.store.reads.sessions(kit.scope)).items == ()
    else:
        assert await kit.store.reads.session(kit.scope, session.id) == session


@pytest.mark.spec("NS-1", "NS-2")
async def test_a_path_names_one_session_of_its_project(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    first = await kit.open(path="/ops/deploy")
    again = await kit.store.apply(open_session(kit.scope, "echo", path="/ops/deploy", title="other"))
    assert (again.session.id, again.created, again.session.title) == (first.id, False, "")
    assert (await kit.store.reads.session_at(kit.scope, "/ops/deploy")).id == first.id
    before = await kit.snapshot()
    for op in (
        open_session(kit.scope, "another", path="/ops/deploy"),
        open_session(kit.scope, "echo", path="/ops/deploy", must_create=True),
    ):
        with pytest.raises(PathTaken) as caught:
            await kit.store.apply(op)
        assert (caught.value.path, caught.value.status) == ("path", 409)
    assert await kit.snapshot() == before
    for scope in other_scopes:
        assert (await kit.open(scope=scope, path="/ops/deploy")).id != first.id
    with pytest.raises(UnknownTarget):
        await kit.store.reads.session_at(kit.scope, "/ops")


@pytest.mark.spec("NS-1")
async def test_many_who_open_one_path_at_once_get_one_session(kit: Kit) -> None:
    opened: list[str] = []
    made: list[bool] = []

    async def make() -> None:
        answer = await kit.store.apply(open_session(kit.scope, "echo", path="/desk"))
        opened.append(answer.session.id)
        made.append(answer.created)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(make)
    assert (len(set(opened)), made.count(True)) == (1, 1)


async def test_a_title_is_changed_and_nothing_else(kit: Kit) -> None:
    session = await kit.open(path="/desk", title="Old")
    changed = await kit.store.apply(UpdateSession(kit.scope, session.id, "New"))
    assert changed == attrs.evolve(session, title="New")
    assert await kit.store.apply(UpdateSession(kit.scope, session.id)) == changed
    with pytest.raises(UnknownTarget):
        await kit.store.apply(UpdateSession(kit.scope, "ses_nowhere", "New"))


@pytest.mark.spec("INB-11")
async def test_deleting_fails_what_waits_and_tells_its_senders(kit: Kit) -> None:
    asker, target = await kit.open(), await kit.open()
    await kit.post(target, "running")
    claimed = await kit.claim(target)
    steered = await kit.post(target, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    notice = await kit.post(target, "notice", kind=Kind.NOTICE)
    asked = await kit.post(target, "please", sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    done = await kit.turn(await kit.open(), "elsewhere")
    await kit.store.apply(delete(kit, target))
    for message in (claimed.head.id, steered.id, notice.id, asked.id):
        view = await kit.message(message)
        assert (view.status, view.reason) == (Status.FAILED, Reason.TARGET_DELETED)
    assert (await kit.message(done.id)).status is Status.DELIVERED
    (told,) = await kit.entries(asker)
    assert asked.id in told.content
    events = (await kit.store.reads.events(kit.scope, target.id)).events
    failed = [event.data["message_id"] for event in events if event.kind == "turn.failed"]
    assert failed == [claimed.head.id, steered.id, notice.id, asked.id]
    assert await kit.claims() == ()
    assert await kit.store.reads.counts(kit.store.now()) == (0, 0)


@pytest.mark.spec("INB-11")
async def test_a_recreated_path_inherits_nothing(kit: Kit) -> None:
    old = await kit.open(path="/desk")
    await kit.turn(old, "for the old one", "from the old one")
    waiting = await kit.post(old, "waiting", message_id="m-1")
    await kit.store.apply(delete(kit, old))
    with pytest.raises(UnknownTarget):
        await kit.store.reads.session_at(kit.scope, "/desk")
    with pytest.raises(UnknownTarget):
        await kit.post(old, "too late")
    new = await kit.open("echo", path="/desk")
    assert new.id != old.id
    assert (new.newest_event, new.newest_seq) == (0, 0)
    assert await kit.entries(new) == await kit.events(new) == []
    assert await kit.claims() == ()
    assert (await kit.message(waiting.id)).session == old.id
    await kit.post(new, "for the new one")
    assert (await kit.claim(new)).head.content == "for the new one"
    # An agent of another name may take the path too.
    await kit.store.apply(delete(kit, new))
    assert (await kit.open("another", path="/desk")).agent == "another"


async def test_deleting_twice_is_deleting_once_and_unknown_ones_cannot_be_deleted(
    kit: Kit, other_scopes: tuple[Scope, Scope]
) -> None:
    session, internal = await kit.open(), await kit.open(kind=SessionKind.INTERNAL)
    elsewhere = await kit.open(scope=other_scopes[0])
    await kit.store.apply(delete(kit, session))
    await kit.store.apply(delete(kit, session))
    for unknown in (internal.id, elsewhere.id, "ses_nowhere"):
        with pytest.raises(UnknownTarget):
            await kit.store.apply(DeleteSession(kit.scope, unknown, kit.ann))
    with pytest.raises(UnknownTarget):
        await kit.store.apply(UpdateSession(kit.scope, session.id, "back"))


async def test_an_opening_that_is_repeated_after_the_deletion_is_refused(kit: Kit) -> None:
    op = open_session(kit.scope, "echo", path="/desk", title="Desk")
    session = (await kit.store.apply(op)).session
    await kit.store.apply(delete(kit, session))
    with pytest.raises(UnknownTarget) as caught:
        await kit.store.apply(op)
    assert caught.value.path == "id"
    with pytest.raises(Conflict):
        await kit.store.apply(attrs.evolve(op, title="Another"))
    assert (await kit.store.reads.sessions(kit.scope)).items == ()
    assert (await kit.open(path="/desk")).id != session.id


async def test_the_holder_of_a_deleted_session_learns_it_at_its_next_renewal(kit: Kit) -> None:
    session, other = await kit.open(), await kit.open()
    await kit.post(session)
    await kit.post(other)
    mine, others = sorted((claimed.lease for claimed in await kit.claims()), key=lambda lease: lease.mailbox)
    await kit.store.apply(delete(kit, session))
    assert (await kit.store.apply(Renew((mine, others), 30))).lost == {mine.mailbox}


@pytest.mark.spec("NS-3")
async def test_the_root_stays(kit: Kit) -> None:
    root = await kit.open(path="/")
    with pytest.raises(Conflict):
        await kit.store.apply(delete(kit, root))
    assert (await kit.store.reads.session_at(kit.scope, "/")).id == root.id


async def test_sessions_are_listed_newest_change_first_page_by_page(kit: Kit) -> None:
    sessions = [await kit.open(title=f"{n}") for n in range(7)]
    await kit.post(sessions[2])
    seen: list[str] = []
    cursor = None
    while True:
        page = await kit.store.reads.sessions(kit.scope, limit=3, cursor=cursor)
        assert len(page.items) <= 3
        seen += [session.title for session in page.items]
        cursor = page.next
        assert page.has_more == (cursor is not None)
        if cursor is None:
            break
    assert seen == ["2", "6", "5", "4", "3", "1", "0"]
    await kit.claim(sessions[2])
    active = await kit.store.reads.sessions(kit.scope, active=True)
    assert [(session.title, session.status) for session in active.items] == [("2", "active")]
    idle = await kit.store.reads.sessions(kit.scope, idle=True)
    assert [session.title for session in idle.items] == ["6", "5", "4", "3", "1", "0"]
    wrongs: list[dict[str, Any]] = [{"limit": 0}, {"limit": 201}]
    wrongs += [{"cursor": cursor} for cursor in ("x", "x~y", "nan~y")]
    for wrong in wrongs:
        with pytest.raises(InvalidField) as caught:
            await kit.store.reads.sessions(kit.scope, **wrong)
        assert caught.value.path == next(iter(wrong))


async def test_an_id_that_another_project_uses_is_not_taken_over(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    theirs = await kit.open(scope=other_scopes[0], path="/desk")
    mine = open_session(kit.scope, "echo")
    with pytest.raises(Rejected):
        await kit.store.apply(attrs.evolve(mine, id=theirs.id))
    assert await kit.store.reads.session(other_scopes[0], theirs.id) == theirs
    assert (await kit.store.reads.sessions(kit.scope)).items == ()
