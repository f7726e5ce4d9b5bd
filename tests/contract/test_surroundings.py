"""What prompts are made of beside the transcript: places, children, what waits, summaries. The same on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage import surroundings
from callboard.storage.model.errors import LeaseLost
from callboard.storage.model.messages import Kind
from callboard.storage.model.turns import Lease, StepKind, Summary
from callboard.storage.ops import DeleteSession, RecordStep
from callboard.storage.surroundings import Child, Place

if TYPE_CHECKING:
    from conftest import Kit


@pytest.mark.spec("CTX-4", "CTX-5")
async def test_places_come_by_path_whatever_the_order_they_were_made_in(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a database sorts by words would put elsewhere.
    paths = ["/b", "/a-b", "/a", "/ab", "/a/b", "/a.b", "/a_b", "/", "/b/a", "/a/a"]
    made = {path: (await kit.open(path=path)).id for path in paths}
    await kit.open(title="without a path")
    gone = await kit.open(path="/aa")
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    reads = kit.store.reads
    expected = sorted(set(paths) - {"/a"})
    places = await reads.places(kit.scope, made["/a"], 50)
    assert places == [Place(made[path], path, "echo") for path in expected]
    assert await reads.places_count(kit.scope, made["/a"]) == len(expected)
    first = await reads.places(kit.scope, made["/a"], 3)
    assert [place.path for place in first] == expected[:3]
    rest = await reads.places(kit.scope, made["/a"], 50, after=first[-1].path)
    assert [place.path for place in rest] == expected[3:]
    monkeypatch.setattr(surroundings, "COUNT_MOST", 4)
    assert await reads.places_count(kit.scope, made["/a"]) == 4


async def test_children_are_those_that_have_not_ended(kit: Kit) -> None:
    parent, other = await kit.open(), await kit.open()
    first = await kit.child(parent, title="first")
    (claimed,) = await kit.claims()
    second = await kit.child(parent, title="second")
    gone = await kit.child(parent, title="gone")
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    await kit.child(other, title="another's")
    working, waiting = Child(first.id, "echo", "first", True), Child(second.id, "echo", "second", False)
    assert await kit.store.reads.children(kit.scope, parent.id) == [working, waiting]
    await kit.commit(claimed)
    assert await kit.store.reads.children(kit.scope, parent.id) == [waiting], "whose result has come has ended"


async def test_what_waits_is_counted_by_kind_without_what_a_turn_has(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await kit.open()
    assert await kit.store.reads.queued(kit.scope, session.id) == {}
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    await kit.post(session, "mail", kind=Kind.NOTICE)
    for number in range(3):
        await kit.post(session, f"post {number}")
    found = await kit.store.reads.queued(kit.scope, session.id)
    assert list(found.items()) == [("member_message", 3), ("notice", 1)]
    monkeypatch.setattr(surroundings, "COUNT_MOST", 2)
    assert sum((await kit.store.reads.queued(kit.scope, session.id)).values()) == 2
    monkeypatch.undo()
    await kit.commit(claimed)
    assert sum((await kit.store.reads.queued(kit.scope, session.id)).values()) == 4


def summing_up(lease: Lease, upto: int, text: str) -> RecordStep:
    key = f"summary:{upto}"
    return RecordStep(lease, key, StepKind.ROUND, 1, True, {}, text, summary=Summary(upto, text))


@pytest.mark.spec("INB-13", "RT-8")
async def test_a_summary_is_kept_with_its_step_and_only_grows(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session)
    assert await kit.store.reads.summary(kit.scope, session.id) is None
    await kit.store.apply(summing_up(claimed.lease, 4, "four"))
    assert await kit.store.reads.summary(kit.scope, session.id) == Summary(4, "four")
    await kit.store.apply(summing_up(claimed.lease, 9, "nine"))
    await kit.store.apply(summing_up(claimed.lease, 4, "four again"))
    await kit.store.apply(summing_up(claimed.lease, 7, "seven"))
    assert await kit.store.reads.summary(kit.scope, session.id) == Summary(9, "nine")
    await kit.commit(claimed)
    with pytest.raises(LeaseLost):
        await kit.store.apply(summing_up(claimed.lease, 12, "too late"))
    assert await kit.store.reads.summary(kit.scope, session.id) == Summary(9, "nine")
