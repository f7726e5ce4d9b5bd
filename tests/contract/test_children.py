"""Children: limits counted where the child is made, and one wake-up of the parent for its final state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import TooManyChildren, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.ops import Cancel, DeleteSession, Fail, Retry
from callboard.storage.ops.sessions import open_session

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session


@pytest.mark.spec("SES-8")
async def test_a_child_names_its_parent_and_runs(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    found = await kit.store.reads.session(kit.scope, child.id)
    assert (found.parent, found.child_state, found.status) == (parent.id, ChildState.RUNNING, "active")
    assert (await kit.store.reads.session(kit.scope, parent.id)).status == "active"
    assert (await kit.claim(child)).parent == parent.id


@pytest.mark.spec("SES-8")
async def test_four_children_may_run_at_once_and_an_ended_one_makes_room(kit: Kit) -> None:
    parent = await kit.open()
    children: list[Session] = []
    refused: list[TooManyChildren] = []

    async def make() -> None:
        try:
            children.append((await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id))).session)
        except TooManyChildren as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        for _ in range(7):
            nursery.start_soon(make)
    assert len(children) == 4
    assert [(refusal.code, refusal.status) for refusal in refused] == [("too_many_children", 429)] * 3
    await kit.store.apply(DeleteSession(kit.scope, children[0].id, kit.ann))
    await kit.child(parent)
    with pytest.raises(TooManyChildren):
        await kit.child(parent)


@pytest.mark.spec("SES-8")
async def test_sixteen_children_may_run_in_a_project(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    parents = [await kit.open() for _ in range(5)]
    for parent in parents[:4]:
        for _ in range(4):
            await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id))
    with pytest.raises(TooManyChildren):
        await kit.store.apply(open_session(kit.scope, "echo", parent=parents[4].id))
    for scope in other_scopes:
        parent = await kit.open(scope=scope)
        assert (await kit.store.apply(open_session(scope, "echo", parent=parent.id))).created


@pytest.mark.spec("SES-8")
async def test_a_refused_child_leaves_nothing(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    parent, gone = await kit.open(), await kit.open()
    elsewhere = await kit.open(scope=other_scopes[0])
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    for _ in range(4):
        await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id))
    before = await kit.snapshot()
    with pytest.raises(TooManyChildren):
        await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id, path="/child"))
    for unknown in (gone.id, elsewhere.id, "ses_nowhere"):
        with pytest.raises(UnknownTarget):
            await kit.store.apply(open_session(kit.scope, "echo", parent=unknown, path="/child"))
    with pytest.raises(UnknownTarget):
        await kit.store.apply(open_session(Scope("brand", "new"), "echo", parent=parent.id))
    assert await kit.snapshot() == before
    assert (await kit.open(path="/child")).parent is None


async def _end(kit: Kit, child: Session, how: str) -> None:
    if how == "deleted":
        await kit.store.apply(DeleteSession(kit.scope, child.id, kit.ann))
        return
    if how == "cancelled":
        (task,) = (await kit.store.reads.inbox(kit.scope, target=child.id)).items
        await kit.store.apply(Cancel(kit.scope, task.id))
        return
    claimed = await kit.claim(child)
    if how == "failed":
        await kit.store.apply(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"))
    elif how == "last attempt":
        await kit.store.apply(Retry(attrs.evolve(claimed.lease), "boom", 0))
    elif how == "stopped":
        await kit.commit(claimed, "half of it", outcome=Outcome.STOPPED)
    elif how == "silent":
        await kit.commit(claimed, None, outcome=Outcome.NO_VISIBLE_REPLY)
    else:
        await kit.commit(claimed, "the answer")


@pytest.mark.spec("SES-8", "RT-15")
@pytest.mark.parametrize(
    ("how", "state", "says"),
    [
        ("completed", ChildState.COMPLETED, "the answer"),
        ("silent", ChildState.COMPLETED, "completed"),
        ("stopped", ChildState.STOPPED, "half of it"),
        ("failed", ChildState.FAILED, "undecodable"),
        ("last attempt", ChildState.FAILED, "retries_used"),
        ("cancelled", ChildState.FAILED, "failed"),
        ("deleted", ChildState.DELETED, "deleted"),
    ],
)
async def test_a_final_state_wakes_the_parent_once(kit: Kit, how: str, state: ChildState, says: str) -> None:
    parent = await kit.open()
    opened = await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id, title="Adder"))
    child = opened.session
    task = await kit.post(child, "task", kind=Kind.AGENT_MESSAGE, hops=7, chain="msg_start", max_attempts=1)
    await _end(kit, child, how)
    result = await kit.message(f"subagent-result-{child.id}")
    assert (result.session, result.kind) == (parent.id, Kind.SUBAGENT_RESULT)
    assert (result.sender.id, result.sender.kind, result.sender.label) == (child.id, "session", "Adder")
    assert says in result.content
    assert result.payload == {"child": child.id, "state": state}
    # A result keeps the hop of the start, so a parent that starts children is not stopped by its own children.
    assert (result.hops, result.chain) == (7, "msg_start")
    woken = await kit.claim(parent)
    assert woken.head.id == result.id
    await kit.commit(woken)
    # What happens to the child later tells the parent nothing more.
    if how != "deleted":
        assert (await kit.store.reads.session(kit.scope, child.id)).child_state is state
        await kit.turn(child, "again")
        await kit.store.apply(DeleteSession(kit.scope, child.id, kit.ann))
    assert await kit.claims() == ()
    assert len((await kit.store.reads.inbox(kit.scope, target=parent.id)).items) == 1
    assert (await kit.message(task.id)).hops == 7


@pytest.mark.spec("SES-8")
async def test_a_retry_is_not_a_final_state(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    await kit.store.apply(Retry((await kit.claim(child)).lease, "boom", 0))
    assert (await kit.store.reads.session(kit.scope, child.id)).child_state is ChildState.RUNNING
    assert await kit.entries(parent) == []


async def test_a_child_of_a_deleted_parent_ends_without_telling_anybody(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    await kit.store.apply(DeleteSession(kit.scope, parent.id, kit.ann))
    await kit.commit(await kit.claim(child))
    assert (await kit.store.reads.session(kit.scope, child.id)).child_state is ChildState.COMPLETED
    assert await kit.claims() == ()


@pytest.mark.spec("RT-14", "RT-15")
async def test_a_result_reaches_a_parent_whose_mailbox_is_full(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    for _ in range(3):
        await kit.post(parent, depth_limit=3)
    claimed = next(one for one in await kit.claims() if one.session == child.id)
    await kit.commit(claimed)
    assert (await kit.message(f"subagent-result-{child.id}")).session == parent.id


async def test_a_childs_time_limit_comes_with_its_claim(kit: Kit) -> None:
    parent = await kit.open()
    before = kit.store.now()
    child = await kit.child(parent, deadline_seconds=90)
    deadline = (await kit.claim(child)).deadline
    assert deadline is not None
    assert before + 90 <= deadline <= kit.store.now() + 90
