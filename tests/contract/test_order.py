"""Order and its costs: first in first out per target, attempts, back-off, takeovers, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Reason, Status
from callboard.storage.ops import Cancel, Fail, HandBack, Renew, Retry
from callboard.storage.ops.deliveries import End

if TYPE_CHECKING:
    from conftest import Kit

HOUR = 3_600.0


@pytest.mark.spec("INB-6")
async def test_a_target_gets_its_messages_in_the_order_of_their_acceptance(kit: Kit) -> None:
    session, noise = await kit.open(), await kit.open()
    sent: list[str] = []
    for n in range(6):
        sent.append((await kit.post(session, f"{n}")).id)
        await kit.post(noise, f"{n}")
    got: list[str] = []
    while claims := await kit.claims(limit=1):
        (claimed,) = claims
        got += [claimed.head.id] if claimed.session == session.id else []
        await kit.commit(claimed)
    assert got == sent


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


@pytest.mark.spec("INB-6")
async def test_nothing_overtakes_a_head_that_backs_off(kit: Kit) -> None:
    session = await kit.open()
    first, second = await kit.post(session, "first"), await kit.post(session, "second")
    ended = await kit.store.apply(Retry((await kit.claim(session)).lease, "boom", HOUR))
    await kit.post(session, "third", kind=Kind.URGENT)
    assert ended.due is not None
    assert ended.due == (await kit.message(first.id)).available_at
    assert ended.due >= kit.store.now() + HOUR - 60
    claims = await kit.store.apply(kit.claim_op())
    assert (claims.claimed, claims.next_due) == ((), ended.due)
    assert (await kit.message(second.id)).status is Status.PENDING
    await kit.store.apply(Cancel(kit.scope, first.id))
    assert (await kit.claim(session)).head.id == second.id


@pytest.mark.spec("INB-6")
async def test_a_head_that_is_processing_blocks_those_behind_it(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "first")
    claimed = await kit.claim(session)
    second = await kit.post(session, "second")
    assert await kit.claims("another worker") == ()
    ended = await kit.commit(claimed)
    assert ended.due is not None
    assert (await kit.claim(session)).head.id == second.id


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


@pytest.mark.spec("INB-7")
async def test_attempts_count_agent_failures_until_the_last_one_fails_the_message(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session, max_attempts=3)
    following = await kit.post(session, "next")
    for n in (1, 2):
        claimed = await kit.claim(session)
        assert (claimed.attempts, claimed.lease.attempt, claimed.max_attempts) == (n - 1, n, 3)
        ended = await kit.store.apply(Retry(claimed.lease, f"boom {n}", 0))
        assert (ended.end, ended.status) == (End.RETRIED, Status.PENDING)
        view = await kit.message(receipt.id)
        assert (view.status, view.attempts, view.last_error) == (Status.PENDING, n, f"boom {n}")
    ended = await kit.store.apply(Retry((await kit.claim(session)).lease, "boom 3", 0))
    assert (ended.end, ended.status) == (End.FAILED, Status.FAILED)
    view = await kit.message(receipt.id)
    assert (view.status, view.reason, view.attempts) == (Status.FAILED, Reason.RETRIES_USED, 3)
    assert (view.takeovers, view.last_error) == (0, "boom 3")
    assert (await kit.claim(session)).head.id == following.id


@pytest.mark.spec("INB-7")
async def test_local_rows_have_five_attempts(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    for _ in range(5):
        await kit.store.apply(Retry((await kit.claim(session)).lease, "boom", 0))
    assert (await kit.message(receipt.id)).reason is Reason.RETRIES_USED


@pytest.mark.spec("INB-7")
async def test_a_lost_lease_counts_as_a_takeover_without_back_off(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    for n in range(1, 22):
        claimed = await kit.claim(session, f"worker-{n}", seconds=-1)
        assert (claimed.attempts, claimed.takeovers, claimed.lease.attempt) == (0, n - 1, n)
    view = await kit.message(receipt.id)
    assert (view.status, view.attempts, view.takeovers) == (Status.PROCESSING, 0, 20)
    claimed = await kit.claim(session)
    await kit.store.apply(Fail(claimed.lease, Reason.TAKEOVERS_USED, "taken over too often"))
    view = await kit.message(receipt.id)
    assert (view.status, view.reason, view.attempts) == (Status.FAILED, Reason.TAKEOVERS_USED, 0)


@pytest.mark.spec("INB-7")
async def test_a_clean_stop_costs_neither_attempt_nor_takeover(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    for _ in range(3):
        ended = await kit.store.apply(HandBack((await kit.claim(session)).lease, "shutdown"))
        assert (ended.end, ended.status) == (End.HANDED_BACK, Status.PENDING)
    claimed = await kit.claim(session)
    assert (claimed.attempts, claimed.takeovers, claimed.lease.attempt) == (0, 0, 4)
    assert (await kit.message(receipt.id)).last_error is None


async def test_a_hand_back_may_ask_for_a_delay(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    ended = await kit.store.apply(HandBack((await kit.claim(session)).lease, "agent is busy", HOUR))
    assert ended.due is not None
    assert ended.due > kit.store.now() + HOUR - 60
    assert await kit.claims() == ()


async def test_the_history_names_how_each_attempt_ended(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session, max_attempts=2)
    await kit.store.apply(HandBack((await kit.claim(session)).lease, "shutdown"))
    await kit.store.apply(Retry((await kit.claim(session)).lease, "boom 1", 0))
    await kit.store.apply(Retry((await kit.claim(session)).lease, "boom 2", 0))
    history = await kit.store.reads.attempts(kit.scope, receipt.id)
    assert [(row.attempt, row.ending, row.detail, row.status) for row in history] == [
        (1, "handed_back", "shutdown", "pending"),
        (2, "retried", "boom 1", "pending"),
        (3, "failed", "boom 2", "failed"),
    ]
    assert [row.at for row in history] == sorted(row.at for row in history)


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
