"""Stops: stored for the running turn by compare-and-set, kept over a new claim, never meant for another turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import Inactive, UnknownTarget
from callboard.storage.model.ids import turn_id
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import SessionKind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import Cancel, Fail, HandBack, Renew, RequestStop, Retry
from callboard.storage.ops.upkeep import Stopping

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session


def stop(kit: Kit, session: Session, grace: float = 10.0, *, drop_queued: bool = False) -> RequestStop:
    return RequestStop(kit.scope, session_address(session.id), grace, drop_queued)


@pytest.mark.spec("RT-4")
async def test_a_stop_is_stored_for_the_running_turn_with_its_grace(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    claimed = await kit.claim(session)
    assert claimed.stop is None
    before = kit.store.now()
    answer = await kit.store.apply(stop(kit, session, grace=2.5))
    assert answer == Stopping(turn_id(receipt.id), dropped=0)
    stored = await kit.store.reads.stop_of(kit.scope, session.id)
    assert stored is not None
    assert before <= stored.at <= kit.store.now()
    assert stored.grace == 2.5
    assert (await kit.store.apply(Renew((claimed.lease,), 30))).stops == {claimed.lease.mailbox: stored}


@pytest.mark.spec("RT-4")
async def test_the_grace_is_ten_seconds_unless_asked(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    await kit.claim(session)
    await kit.store.apply(RequestStop(kit.scope, session_address(session.id)))
    stored = await kit.store.reads.stop_of(kit.scope, session.id)
    assert stored is not None
    assert stored.grace == 10.0


@pytest.mark.spec("RT-4")
async def test_the_first_stop_of_a_turn_stands(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    await kit.claim(session)
    first = await kit.store.apply(stop(kit, session, grace=1))
    stored = await kit.store.reads.stop_of(kit.scope, session.id)
    assert await kit.store.apply(stop(kit, session, grace=99)) == first
    assert await kit.store.reads.stop_of(kit.scope, session.id) == stored


@pytest.mark.spec("RT-4")
async def test_a_session_without_a_turn_cannot_be_stopped(kit: Kit) -> None:
    session, internal = await kit.open(), await kit.open(kind=SessionKind.INTERNAL)
    await kit.post(session)
    with pytest.raises(Inactive) as caught:
        await kit.store.apply(stop(kit, session))
    assert caught.value.status == 409
    await kit.commit(await kit.claim(session))
    with pytest.raises(Inactive):
        await kit.store.apply(stop(kit, session))
    for unknown in (internal, attrs.evolve(session, id="ses_nowhere")):
        with pytest.raises(UnknownTarget):
            await kit.store.apply(stop(kit, unknown))


@pytest.mark.spec("RT-4")
@pytest.mark.parametrize("end", ["takeover", "retry", "hand back"])
async def test_a_stop_outlives_the_worker_that_should_have_obeyed(kit: Kit, end: str) -> None:
    session = await kit.open()
    await kit.post(session)
    claimed = await kit.claim(session, seconds=-1 if end == "takeover" else 30)
    await kit.store.apply(stop(kit, session, grace=3))
    stored = await kit.store.reads.stop_of(kit.scope, session.id)
    if end == "retry":
        await kit.store.apply(Retry(claimed.lease, "boom", 0))
    elif end == "hand back":
        await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    again = await kit.claim(session, "another")
    assert (again.head.id, again.stop) == (claimed.head.id, stored)


@pytest.mark.spec("RT-4")
async def test_a_stopped_turn_ends_once_and_its_stop_ends_with_it(kit: Kit) -> None:
    session = await kit.open()
    receipt, following = await kit.post(session, "first"), await kit.post(session, "second")
    claimed = await kit.claim(session)
    await kit.store.apply(stop(kit, session))
    await kit.commit(claimed, "as far as I", outcome=Outcome.STOPPED)
    view = await kit.message(receipt.id)
    assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.STOPPED)
    assert (await kit.entries(session))[-1].content == "as far as I"
    assert await kit.store.reads.stop_of(kit.scope, session.id) is None
    assert (await kit.message(following.id)).status is Status.PENDING
    next_turn = await kit.claim(session)
    assert (next_turn.head.id, next_turn.stop) == (following.id, None)


@pytest.mark.spec("RT-4")
@pytest.mark.parametrize("way", ["cancelled", "failed"])
async def test_a_stop_never_hits_the_turn_after_the_one_it_was_meant_for(kit: Kit, way: str) -> None:
    session = await kit.open()
    receipt, following = await kit.post(session, "first"), await kit.post(session, "second")
    claimed = await kit.claim(session)
    await kit.store.apply(stop(kit, session))
    if way == "failed":
        await kit.store.apply(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"))
    else:
        await kit.store.apply(HandBack(claimed.lease, "shutdown"))
        await kit.store.apply(Cancel(kit.scope, receipt.id))
    next_turn = await kit.claim(session)
    assert (next_turn.head.id, next_turn.stop) == (following.id, None)
    assert (await kit.store.apply(Renew((next_turn.lease,), 30))).stops == {}


@pytest.mark.spec("RT-4")
async def test_cancelling_another_message_leaves_the_stop_of_a_waiting_turn(kit: Kit) -> None:
    session = await kit.open()
    head, behind = await kit.post(session, "first"), await kit.post(session, "second")
    claimed = await kit.claim(session)
    await kit.store.apply(stop(kit, session))
    await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    await kit.store.apply(Cancel(kit.scope, behind.id))
    again = await kit.claim(session)
    assert again.head.id == head.id
    assert again.stop is not None


@pytest.mark.spec("RT-4")
async def test_queued_messages_are_dropped_only_when_asked(kit: Kit) -> None:
    session, asker = await kit.open(), await kit.open()
    await kit.post(session, "running")
    claimed = await kit.claim(session)
    queued = await kit.post(session, "queued")
    from_agent = await kit.post(session, "queued too", sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    assert (await kit.store.apply(stop(kit, session))).dropped == 0
    assert (await kit.message(queued.id)).status is Status.PENDING
    assert (await kit.store.apply(stop(kit, session, drop_queued=True))).dropped == 2
    for receipt in (queued, from_agent):
        view = await kit.message(receipt.id)
        assert (view.status, view.reason) == (Status.FAILED, Reason.DROPPED)
    assert (await kit.message(claimed.head.id)).status is Status.PROCESSING
    (notice,) = await kit.entries(asker)
    assert notice.role == "notice"
    assert from_agent.id in notice.content
    assert (await kit.commit(claimed, None, outcome=Outcome.STOPPED)).due is None


@pytest.mark.spec("RT-4", "INB-4")
async def test_a_stop_repeated_under_its_key_stops_no_later_turn(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.post(session, "first")
    keyed = attrs.evolve(stop(kit, session), key="stop_1")
    claimed = await kit.claim(session)
    answer = await kit.store.apply(keyed)
    assert answer.turn == turn_id(first.id)
    await kit.commit(claimed, None, outcome=Outcome.STOPPED)
    assert await kit.store.apply(keyed) == answer
    await kit.post(session, "second")
    await kit.claim(session)
    assert await kit.store.apply(keyed) == answer
    assert await kit.store.reads.stop_of(kit.scope, session.id) is None
    assert (await kit.store.apply(stop(kit, session))).turn != answer.turn
