"""Paths that move, and who may take one; rules by prefix; where a client went. On both databases."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from callboard.storage.model.addresses import Scope, session_address
from callboard.storage.model.errors import Conflict, InvalidField, NotPermitted, PathTaken, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.policies import CLIENTS_MOST, FRONTIERS_MOST, REDIRECT_SECONDS, AgentsMay, By, Edge, Rule
from callboard.storage.model.sessions import SessionKind
from callboard.storage.ops import DeleteSession, Enqueue, Navigate, UpdateSession
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.namespace import set_policy
from callboard.storage.ops.sessions import open_session, update_session

if TYPE_CHECKING:
    from conftest import Kit, Reopen

    from callboard.storage.model.sessions import Session


async def move(kit: Kit, session: Session, path: str, by: By = By.MEMBER) -> Session:
    return await kit.store.apply(update_session(kit.scope, session.id, path=path, by=by))


@pytest.mark.spec("NS-3", "NS-2")
async def test_a_rename_keeps_the_id_and_the_old_path_leads_to_it(kit: Kit) -> None:
    session = await kit.open(path="/ops/deploy", title="Deploy")
    await kit.turn(session)
    moved = await move(kit, session, "/ops/release")
    assert moved.path == "/ops/release"
    assert moved.id == session.id
    for path in ("/ops/release", "/ops/deploy"):
        found = await kit.store.reads.session_at(kit.scope, path)
        assert (found.id, found.path) == (session.id, "/ops/release"), "whoever asks for the old path sees the new one"
        assert (await kit.store.reads.sessions(kit.scope, path=path)).items == (found,)
        assert (await kit.store.apply(open_session(kit.scope, "echo", path=path))).session.id == session.id
    assert [entry.content for entry in await kit.entries(moved)] == ["hello", "done"]
    again = await move(kit, moved, "/ops/ship")
    for path in ("/ops/release", "/ops/deploy", "/ops/ship"):
        assert (await kit.store.reads.session_at(kit.scope, path)).path == again.path == "/ops/ship"


@pytest.mark.spec("NS-3")
async def test_an_old_path_leads_there_over_a_restart(reopen: Reopen) -> None:
    async with reopen() as kit:
        session = await kit.open(path="/desk")
        await move(kit, session, "/front")
    async with reopen() as kit:
        assert (await kit.store.reads.session_at(kit.scope, "/desk")).id == session.id


@pytest.mark.spec("NS-3")
async def test_only_an_operator_gives_an_old_path_away(kit: Kit) -> None:
    session, other = await kit.open(path="/desk"), await kit.open(path="/other")
    await move(kit, session, "/front")
    create = open_session(kit.scope, "echo", path="/desk", must_create=True, by=By.MEMBER)
    with pytest.raises(PathTaken, match="leads to /front since that was renamed") as caught:
        await kit.store.apply(create)
    assert caught.value.path == "path"
    with pytest.raises(PathTaken, match="leads to /front"):
        await move(kit, other, "/desk")
    with pytest.raises(PathTaken, match="leads to /front"):
        await kit.store.apply(open_session(kit.scope, "another", path="/desk", by=By.MEMBER))
    assert (await kit.store.reads.session_at(kit.scope, "/desk")).id == session.id
    given = await kit.store.apply(attrs.evolve(create, by=By.OPERATOR))
    assert given.created
    assert (await kit.store.reads.session_at(kit.scope, "/desk")).id == given.session.id
    # As a team does that has another agent there by now: it asks for no new session, but this one is not what it asks for.
    await move(kit, session, "/third")
    another = await kit.store.apply(open_session(kit.scope, "another", path="/front"))
    assert (another.created, another.session.path) == (True, "/front")
    await move(kit, another.session, "/fourth")
    assert (await move(kit, other, "/front", By.OPERATOR)).path == "/front"
    assert (await kit.store.reads.session_at(kit.scope, "/front")).id == other.id


@pytest.mark.spec("NS-3")
async def test_who_gave_a_path_up_may_have_it_again(kit: Kit) -> None:
    session = await kit.open(path="/desk")
    await move(kit, session, "/front")
    assert (await move(kit, session, "/desk")).path == "/desk"
    assert (await kit.store.reads.session_at(kit.scope, "/front")).path == "/desk"


@pytest.mark.spec("NS-3")
async def test_after_thirty_days_an_old_path_is_free(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REDIRECT_SECONDS == 30 * 24 * 3600
    monkeypatch.setattr("callboard.storage.handlers.naming.REDIRECT_SECONDS", 0.0)
    session, other = await kit.open(path="/desk"), await kit.open()
    await move(kit, session, "/front")
    with pytest.raises(UnknownTarget):
        await kit.store.reads.session_at(kit.scope, "/desk")
    assert (await move(kit, other, "/desk")).path == "/desk"
    assert (await kit.store.reads.session_at(kit.scope, "/desk")).id == other.id


@pytest.mark.spec("NS-3")
async def test_the_root_keeps_its_path_and_no_other_gets_it(kit: Kit) -> None:
    other = await kit.open(path="/other")
    for root in (None, await kit.open(path="/")):
        for session, path in ((other, "/"), *(() if root is None else ((root, "/elsewhere"),))):
            with pytest.raises(Conflict, match="root") as caught:
                await move(kit, session, path, By.OPERATOR)
            assert type(caught.value) is Conflict
    assert (await kit.store.reads.session_at(kit.scope, "/other")).id == other.id


@pytest.mark.spec("NS-1")
async def test_a_move_that_is_refused_changes_nothing(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    session, taken = await kit.open(path="/desk", title="Old"), await kit.open(path="/taken")
    before = await kit.snapshot()
    with pytest.raises(PathTaken):
        await kit.store.apply(update_session(kit.scope, session.id, title="New", path="/taken"))
    for wrong in ("/taken/", "/Desk", "desk", ""):
        with pytest.raises(InvalidField) as caught:
            update_session(kit.scope, session.id, path=wrong)
        assert caught.value.path == "path"
    assert await kit.snapshot() == before
    # In another project the same path is another one's.
    elsewhere = await kit.open(scope=other_scopes[0], path="/mine")
    moved = await kit.store.apply(UpdateSession(other_scopes[0], elsewhere.id, path="/taken"))
    assert moved.path == taken.path


async def test_a_session_gets_its_first_path_later(kit: Kit) -> None:
    session = await kit.open()
    assert (await move(kit, session, "/desk")).path == "/desk"
    assert (await kit.store.reads.session_at(kit.scope, "/desk")).id == session.id


@pytest.mark.spec("NS-3", "INB-11")
async def test_nothing_leads_to_a_deleted_session(kit: Kit) -> None:
    session = await kit.open(path="/desk")
    await move(kit, session, "/front")
    await kit.store.apply(DeleteSession(kit.scope, session.id, kit.ann))
    for path in ("/desk", "/front"):
        with pytest.raises(UnknownTarget):
            await kit.store.reads.session_at(kit.scope, path)
        op = open_session(kit.scope, "echo", path=path, must_create=True, by=By.MEMBER)
        assert (await kit.store.apply(op)).created


@pytest.mark.spec("INB-13")
async def test_an_opening_that_is_repeated_after_a_rename_is_the_same_session(kit: Kit) -> None:
    op = open_session(kit.scope, "echo", path="/desk", title="Desk")
    session = (await kit.store.apply(op)).session
    await kit.store.apply(update_session(kit.scope, session.id, title="Front", path="/front"))
    again = await kit.store.apply(op)
    assert (again.created, again.session.id, again.session.path) == (False, session.id, "/front")


@pytest.mark.spec("NS-1", "NS-3")
async def test_of_many_who_want_one_path_at_once_one_gets_it(kit: Kit) -> None:
    sessions = [await kit.open(path=f"/s{n}") for n in range(8)]
    got: list[str] = []

    async def want(session: Session) -> None:
        with suppress(PathTaken):
            got.append((await move(kit, session, "/wanted")).id)

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(want, session)
    (winner,) = got
    assert (await kit.store.reads.session_at(kit.scope, "/wanted")).id == winner
    paths = [session.path for session in (await kit.store.reads.directory(kit.scope)).items]
    assert len(paths) == len(set(paths)) == 8


@pytest.mark.spec("NS-3")
async def test_agents_create_and_rename_as_the_rules_say(kit: Kit) -> None:
    session = await kit.open(path="/ops/deploy")
    create = open_session(kit.scope, "echo", path="/ops/new", by=By.AGENT)
    rename = update_session(kit.scope, session.id, path="/ops/release", by=By.AGENT)
    for op in (create, rename):
        with pytest.raises(NotPermitted, match="rules let no agent"):
            await kit.store.apply(op)
    await kit.store.apply(set_policy(kit.scope, "/ops", agents=AgentsMay.CREATE))
    assert (await kit.store.apply(create)).created
    with pytest.raises(NotPermitted, match="rules let no agent rename"):
        await kit.store.apply(rename)
    await kit.store.apply(set_policy(kit.scope, "/ops", agents=AgentsMay.RENAME))
    assert (await kit.store.apply(rename)).path == "/ops/release"
    with pytest.raises(NotPermitted):
        await kit.store.apply(update_session(kit.scope, session.id, path="/elsewhere", by=By.AGENT))
    with pytest.raises(NotPermitted):
        await kit.store.apply(open_session(kit.scope, "echo", path="/elsewhere", by=By.AGENT))
    # Without a path there is nothing to rule about, and what exists may be asked for.
    assert (await kit.store.apply(open_session(kit.scope, "echo", by=By.AGENT))).created
    found = await kit.store.apply(open_session(kit.scope, "echo", path="/ops/release", by=By.AGENT))
    assert found.session.id == session.id


async def test_the_directory_goes_by_paths_page_by_page(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    await kit.open(path="/hidden", kind=SessionKind.INTERNAL)
    await kit.open(title="without a path")
    await kit.open(scope=other_scopes[0], path="/theirs")
    gone = await kit.open(path="/gone")
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    paths = ["/", "/a", "/a-b", "/a.b", "/a/b", "/a0", "/b", "/ops/deploy"]
    for path in reversed(paths):
        await kit.open(path=path)
    seen: list[str | None] = []
    cursor = None
    while True:
        page = await kit.store.reads.directory(kit.scope, limit=3, cursor=cursor)
        seen += [session.path for session in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == paths, "in the order of bytes, on every database"
    for wrong in (0, 201):
        with pytest.raises(InvalidField):
            await kit.store.reads.directory(kit.scope, limit=wrong)


@pytest.mark.spec("NS-4")
async def test_rules_are_kept_by_prefix_and_written_as_a_whole(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    assert (await kit.store.reads.rules(kit.scope)).rules == ()
    await kit.store.apply(set_policy(kit.scope, "/ops", confirm=True, handoff=False))
    rules = await kit.store.apply(set_policy(kit.scope, "/", edge=Edge.HANDOFF_ONLY, agents=AgentsMay.CREATE))
    assert rules == await kit.store.reads.rules(kit.scope)
    assert rules.rules == (
        Rule("/", Edge.HANDOFF_ONLY, AgentsMay.CREATE),
        Rule("/ops", handoff=False, confirm=True),
    )
    rules = await kit.store.apply(set_policy(kit.scope, "/ops", edge=Edge.COLLABORATE))
    assert rules.rules[1] == Rule("/ops", Edge.COLLABORATE), "what it leaves out is no longer said"
    assert (await kit.store.apply(set_policy(kit.scope, "/ops"))).rules == rules.rules[:1]
    assert (await kit.store.reads.rules(other_scopes[0])).rules == ()
    with pytest.raises(InvalidField) as caught:
        set_policy(kit.scope, "/ops/", confirm=True)
    assert caught.value.path == "prefix"


@pytest.mark.spec("NS-4", "INB-2")
async def test_the_rules_of_the_moment_in_which_it_is_recorded_decide_about_a_message(kit: Kit) -> None:
    """Whatever its sender saw before: the rule and the path are looked at in the transaction that would write it."""
    writer, other, child = await kit.open(path="/a"), await kit.open(path="/b"), await kit.open(path="/c")

    def send(edge: Edge | None = Edge.COLLABORATE, to: Session = other, **fields: Any) -> Enqueue:
        sender = kit.as_sender(writer)
        return enqueue(kit.scope, session_address(to.id), sender, "x", kind=Kind.AGENT_MESSAGE, edge=edge, **fields)

    before = await kit.store.apply(send(message_id="m-1"))
    await kit.store.apply(set_policy(kit.scope, "/b", edge=Edge.HANDOFF_ONLY))
    seen = await kit.snapshot()
    with pytest.raises(NotPermitted, match="connect_user"):
        await kit.store.apply(send())
    assert (await kit.store.apply(send(message_id="m-1"))) == attrs.evolve(before, created=False), (
        "a repeat is answered"
    )
    assert await kit.snapshot() == seen
    refused, allowed, exempt = await kit.together(send(), send(to=child), send(None))
    assert isinstance(refused, NotPermitted)
    assert (allowed.created, exempt.created) == (True, True)
    await move(kit, other, "/elsewhere")
    assert (await kit.store.apply(send())).created, "no rule is about where it stands now"
    with pytest.raises(NotPermitted):
        await kit.store.apply(send(Edge.HANDOFF_ONLY))


@pytest.mark.spec("HND-4")
async def test_a_navigation_notes_the_newest_event_of_each_session(kit: Kit) -> None:
    desk, deploy, nameless = await kit.open(path="/desk"), await kit.open(path="/deploy"), await kit.open()
    unseen = await kit.open()
    await kit.turn(desk)
    await kit.turn(nameless)
    await kit.turn(unseen)
    expected = {session.id: len(await kit.events(session)) for session in (desk, deploy, nameless)}
    went = await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-1", deploy.id, (nameless.id, "ses_nowhere")))
    assert (went.session, went.frontiers) == (deploy.id, expected)
    reads = kit.store.reads
    assert await reads.navigation(kit.scope, "member:ann", "tab-1") == went
    for other in (("member:ann", "tab-2"), ("member:bea", "tab-1")):
        assert await reads.navigation(kit.scope, *other) is None
    await kit.turn(desk)
    later = await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-1", desk.id))
    assert later.frontiers == {**expected, desk.id: expected[desk.id] * 2}, "what is not followed any more stays noted"
    assert await reads.navigation(kit.scope, "member:ann", "tab-1") == later
    await kit.store.apply(DeleteSession(kit.scope, deploy.id, kit.ann))
    for gone in (deploy.id, "ses_nowhere"):
        with pytest.raises(UnknownTarget):
            await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-1", gone))
    assert await reads.navigation(kit.scope, "member:ann", "tab-1") == later


@pytest.mark.spec("HND-4")
async def test_a_navigation_is_known_over_a_restart_and_forgotten_when_nobody_comes_back(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reopen() as kit:
        session = await kit.open(path="/desk")
        went = await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-1", session.id))
    async with reopen() as kit:
        assert await kit.store.reads.navigation(kit.scope, "member:ann", "tab-1") == went
        monkeypatch.setattr("callboard.storage.handlers.naming.NAVIGATION_KEEP_SECONDS", -1.0)
        await kit.store.apply(Navigate(kit.scope, "member:bea", "tab-1", session.id))
        assert await kit.store.reads.navigation(kit.scope, "member:ann", "tab-1") is None


@pytest.mark.spec("HND-4")
async def test_what_a_navigation_notes_is_bounded_but_never_lacks_what_the_client_follows(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FRONTIERS_MOST == 256
    monkeypatch.setattr("callboard.storage.handlers.naming.FRONTIERS_MOST", 2)
    sessions = [await kit.open(path=f"/{name}") for name in "abcde"]
    op = Navigate(kit.scope, "member:ann", "tab-1", sessions[4].id, (sessions[3].id,))
    assert set((await kit.store.apply(op)).frontiers) == {sessions[n].id for n in (0, 1, 3, 4)}
    # Of what was noted before only so much is kept.
    for target, kept in ((2, {0, 1, 2, 3, 4}), (0, {0, 1, 2, 3}), (1, {0, 1, 2, 3})):
        went = await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-1", sessions[target].id))
        assert {session.id for session in sessions if session.id in went.frontiers} == {sessions[n].id for n in kept}


@pytest.mark.spec("HND-4")
async def test_of_one_person_the_newest_clients_are_known(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CLIENTS_MOST == 64
    monkeypatch.setattr("callboard.storage.handlers.naming.CLIENTS_MOST", 2)
    session = await kit.open(path="/a")
    for who in ("member:bea", "member:ann"):
        for number in range(4):
            await kit.store.apply(Navigate(kit.scope, who, f"tab-{number}", session.id))
    await kit.store.apply(Navigate(kit.scope, "member:ann", "tab-2", session.id))
    known = {
        (who, number)
        for who in ("member:bea", "member:ann")
        for number in range(4)
        if await kit.store.reads.navigation(kit.scope, who, f"tab-{number}") is not None
    }
    assert known == {("member:bea", 2), ("member:bea", 3), ("member:ann", 2), ("member:ann", 3)}
