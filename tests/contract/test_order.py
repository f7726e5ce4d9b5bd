"""Order and its costs: first in first out per target, attempts, back-off, takeovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Reason, Status
from callboard.storage.ops import Cancel, Fail, HandBack, Retry
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
