"""What the store counts for metrics: messages as they were committed, once, however often they were sent or tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import CallboardError, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Cancel, Fail, RecordStep
from callboard.storage.ops.inbox import enqueue

if TYPE_CHECKING:
    from conftest import Kit


async def test_a_message_counts_once_when_it_is_accepted_and_once_when_it_is_final(kit: Kit) -> None:
    session = await kit.open()
    for _ in range(3):
        await kit.post(session, "one", message_id="m-1")
    claimed = await kit.claim(session)
    for _ in range(2):
        await kit.commit(claimed, "done")
    cancelled = await kit.post(session, "two")
    for _ in range(2):
        await kit.store.apply(Cancel(kit.scope, cancelled.id))
    await kit.post(session, "three", kind=Kind.URGENT)
    held = await kit.claim(session)
    for _ in range(2):
        await kit.store.apply(Fail(held.lease, Reason.EXPIRED, "late"))
    assert dict(kit.store.tallies) == {
        ("accepted", Kind.MEMBER_MESSAGE): 2,
        ("accepted", Kind.URGENT): 1,
        ("delivered", Outcome.ANSWERED): 1,
        ("failed", Reason.CANCELLED): 1,
        ("failed", Reason.EXPIRED): 1,
    }


async def test_what_a_turn_takes_along_counts_and_so_does_a_takeover(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "first", kind=Kind.NOTICE)
    await kit.post(session, "head")
    await kit.claim(session, "dead", seconds=-1)
    await kit.commit(await kit.claim(session, "worker"), "done")
    assert kit.store.tallies["takeover", ""] == 1
    assert kit.store.tallies["delivered", Outcome.ANSWERED] == 2


async def test_an_op_that_fails_after_it_has_written_counts_nothing_and_its_batch_once(kit: Kit) -> None:
    session, other = await kit.open(), await kit.open()
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    before = dict(kit.store.tallies)
    good = enqueue(kit.scope, session_address(other.id), kit.ann, "good")
    nowhere = enqueue(kit.scope, "session:ses_nowhere", kit.ann, "lost")
    written = enqueue(kit.scope, session_address(other.id), kit.ann, "written, then undone")
    bad = RecordStep(claimed.lease, "call:0", StepKind.CALL, 0, True, {}, sends=(written, nowhere))
    answers = await kit.together(good, bad, enqueue(kit.scope, session_address(other.id), kit.ann, "too"))
    assert [isinstance(answer, CallboardError) for answer in answers] == [False, True, False]
    assert isinstance(answers[1], UnknownTarget)
    counted = kit.store.tallies["accepted", Kind.MEMBER_MESSAGE] - before["accepted", Kind.MEMBER_MESSAGE]
    assert counted == 2


@pytest.mark.parametrize("times", [1, 3])
async def test_a_refused_send_counts_nothing(kit: Kit, times: int) -> None:
    await kit.open()
    for _ in range(times):
        with pytest.raises(UnknownTarget):
            await kit.store.apply(enqueue(kit.scope, "session:ses_nowhere", kit.ann, "lost"))
    assert dict(kit.store.tallies) == {}
