"""Claims: which mailboxes one takes, whom it leaves out, what its repeat gives, and how leases are renewed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from callboard.storage.model.errors import Inactive, LeaseLost
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Status
from callboard.storage.ops import Cancel, Renew, RequestStop, Retry

if TYPE_CHECKING:
    from conftest import Kit

HOUR = 3_600.0


@pytest.mark.spec("INB-6")
async def test_one_claim_takes_one_message_of_each_due_mailbox_oldest_due_first(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(5)]
    for session in reversed(sessions):
        await kit.post(session, "first")
    for session in sessions:
        await kit.post(session, "second")
    three = await kit.claims(limit=3)
    assert [claimed.session for claimed in three] == [session.id for session in reversed(sessions)][:3]
    assert {claimed.head.content for claimed in three} == {"first"}
    rest = await kit.claims(limit=3)
    assert {claimed.session for claimed in rest} == {sessions[0].id, sessions[1].id}
    assert await kit.claims() == ()


@pytest.mark.spec("INB-6")
async def test_a_claim_sets_the_lease_and_the_heads_state_together(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    assert (await kit.store.reads.session(kit.scope, session.id)).status == "idle"
    before = kit.store.now()
    claimed = await kit.claim(session, seconds=30)
    assert before + 30 <= claimed.lease_until <= kit.store.now() + 30
    head = await kit.message(receipt.id)
    assert (head.status, head.lease_holder, head.lease_epoch) == (Status.PROCESSING, "worker", claimed.lease.epoch)
    assert head.lease_until == claimed.lease_until
    assert (await kit.store.reads.session(kit.scope, session.id)).status == "active"


async def test_claims_tell_when_the_next_mailbox_is_due(kit: Kit) -> None:
    late, soon, idle = await kit.open(), await kit.open(), await kit.open()
    for session, delay in ((late, 2 * HOUR), (soon, HOUR), (idle, None)):
        await kit.post(session)
        claimed = await kit.claim(session)
        if delay is None:
            await kit.commit(claimed)
        else:
            await kit.store.apply(Retry(claimed.lease, "boom", delay))
    next_due = (await kit.store.apply(kit.claim_op())).next_due
    assert next_due is not None
    assert kit.store.now() + HOUR - 60 <= next_due <= kit.store.now() + HOUR


@pytest.mark.spec("RT-12")
async def test_a_mailbox_of_an_unknown_agent_is_put_off_five_seconds_without_an_attempt(kit: Kit) -> None:
    known, unknown = await kit.open(), await kit.open("stranger")
    await kit.post(known)
    first = await kit.post(unknown)
    await kit.post(unknown, "second")
    before = kit.store.now()
    claims = await kit.store.apply(kit.claim_op())
    assert [claimed.session for claimed in claims.claimed] == [known.id]
    view = await kit.message(first.id)
    assert view.available_at is not None
    assert before + 5 <= view.available_at <= kit.store.now() + 5
    assert claims.next_due == view.available_at
    assert (view.status, view.attempts, view.takeovers, view.attempt) == (Status.PENDING, 0, 0, 0)
    assert "attempt.claimed" not in await kit.kinds(unknown)
    assert await kit.claims() == ()


@pytest.mark.spec("RT-12")
async def test_a_lost_turn_of_an_unknown_agent_goes_back_to_its_place(kit: Kit) -> None:
    session = await kit.open("stranger")
    head = await kit.post(session)
    lost = await kit.claim(session, seconds=-1, agents=frozenset({"stranger"}))
    assert (await kit.store.reads.session(kit.scope, session.id)).status == "active"
    assert await kit.claims() == ()
    view = await kit.message(head.id)
    assert (view.status, view.takeovers, view.attempts) == (Status.PENDING, 1, 0)
    assert view.available_at is not None
    assert view.available_at > kit.store.now()
    assert (await kit.kinds(session))[-1] == "attempt.relinquished"
    assert (await kit.store.reads.session(kit.scope, session.id)).status == "idle"
    with pytest.raises(LeaseLost):
        await kit.commit(lost)
    # Nothing of it is active any more: it may be cancelled, and an idle session can't be stopped.
    with pytest.raises(Inactive):
        await kit.store.apply(RequestStop(kit.scope, lost.lease.recipient))
    await kit.store.apply(Cancel(kit.scope, head.id))
    assert (await kit.message(head.id)).status is Status.FAILED


async def test_a_mailbox_whose_task_still_lives_here_is_left_out(kit: Kit) -> None:
    stuck, free = await kit.open(), await kit.open()
    await kit.post(stuck)
    claimed = await kit.claim(stuck, seconds=-1)
    await kit.post(free)
    (other,) = await kit.claims(limit=1, exclude=(claimed.lease.mailbox,))
    assert other.session == free.id
    assert (await kit.message(claimed.head.id)).takeovers == 0


@pytest.mark.spec("INB-13")
async def test_a_claim_with_the_same_nonce_gives_what_it_still_holds(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(3)]
    for session in sessions:
        await kit.post(session, kind=Kind.NOTICE)
        await kit.post(session)
    op = kit.claim_op("worker")
    first = (await kit.store.apply(op)).claimed
    await kit.commit(first[0])
    late = await kit.open()
    await kit.post(late)
    before = await kit.snapshot()
    assert (await kit.store.apply(op)).claimed == first[1:]
    assert await kit.snapshot() == before
    (of_another,) = (await kit.store.apply(attrs.evolve(op, holder="another"))).claimed
    assert of_another.session == late.id


async def test_two_workers_never_hold_one_mailbox(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(20)]
    for session in sessions:
        await kit.post(session)
    taken: list[str] = []

    async def work(holder: str) -> None:
        while claims := await kit.claims(holder, limit=3):
            taken.extend(claimed.session for claimed in claims)

    async with trio.open_nursery() as nursery:
        for n in range(4):
            nursery.start_soon(work, f"worker-{n}")
    assert sorted(taken) == sorted(session.id for session in sessions)


async def test_a_renewal_moves_the_end_of_the_leases_that_are_still_held(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(3)]
    for session in sessions:
        await kit.post(session)
    held, lost, gone = await kit.claims(seconds=1)
    await kit.commit(gone)
    stale = attrs.evolve(lost.lease, epoch=lost.lease.epoch - 1)
    renewed = await kit.store.apply(Renew((held.lease, stale, gone.lease), 60))
    assert renewed.lost == {lost.lease.mailbox, gone.lease.mailbox}
    assert (await kit.message(held.head.id)).lease_until == renewed.until > held.lease_until
    assert (await kit.message(lost.head.id)).lease_until == lost.lease_until
    # A renewal that comes late, or asks for less, never takes away what was given.
    await kit.store.apply(Renew((held.lease,), -100))
    assert (await kit.message(held.head.id)).lease_until == renewed.until
