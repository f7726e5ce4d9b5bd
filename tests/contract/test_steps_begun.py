"""A step that was begun and not done: the same attempt says so once, a later one says it anew; what is done stays as it is (RT-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage.model.turns import Claimed, Step, StepKind
from callboard.storage.ops import HandBack, RecordStep
from callboard.storage.ops.deliveries import StepEvent

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session

pytestmark = pytest.mark.spec("RT-10", "INB-13")


def begun(claimed: Claimed) -> RecordStep:
    data = {"round": 1, "attempt": claimed.lease.attempt}
    event = StepEvent("model.request", {"round": 1})
    return RecordStep(claimed.lease, "round:1", StepKind.ROUND, 1, done=False, data=data, events=(event,))


async def requests(kit: Kit, session: Session) -> list[Any]:
    """The attempts that have asked."""
    page = await kit.store.reads.events(kit.scope, session.id)
    return [event.data["attempt"] for event in page.events if event.kind == "model.request"]


async def test_an_attempt_says_once_that_it_begins_and_each_attempt_says_so(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session)
    first = await kit.store.apply(begun(claimed))
    assert await kit.store.apply(begun(claimed)) == first
    assert await requests(kit, session) == [1]
    await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    again = await kit.claim(session)
    await kit.store.apply(begun(again))
    assert await requests(kit, session) == [1, 2]
    (step,) = await kit.store.reads.steps(kit.scope, again.head.id)
    assert step == Step("round:1", StepKind.ROUND, 1, False, {"round": 1, "attempt": 2})


async def test_what_is_done_is_not_begun_again(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session)
    op = begun(claimed)
    await kit.store.apply(op)
    done = await kit.store.apply(attrs.evolve(op, done=True, result={"text": "good day"}, events=()))
    await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    again = await kit.claim(session)
    assert await kit.store.apply(begun(again)) == done
    assert await kit.store.apply(attrs.evolve(begun(again), done=True, result={"text": "other"})) == done
    assert await requests(kit, session) == [1]
    assert await kit.store.reads.steps(kit.scope, again.head.id) == (done,)
