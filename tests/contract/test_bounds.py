"""Stored bounds: mailbox depth, hops, messages a minute of a pair; and who is exempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from callboard.storage.model.errors import LimitReached, MailboxFull
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Reason
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Absorb, Cancel, Fail, RecordStep, Requeue, Retry

if TYPE_CHECKING:
    from conftest import Kit, Reopen


@pytest.mark.spec("RT-14")
async def test_a_full_mailbox_refuses_and_stores_nothing(kit: Kit) -> None:
    session = await kit.open()
    for n in range(3):
        await kit.post(session, f"{n}", depth_limit=3)
    before = await kit.snapshot()
    with pytest.raises(MailboxFull) as caught:
        await kit.post(session, "one too many", depth_limit=3)
    assert (caught.value.status, caught.value.code, caught.value.path) == (429, "mailbox_full", "target")
    assert await kit.snapshot() == before


@pytest.mark.spec("RT-14")
async def test_the_bound_holds_for_many_senders_at_once(kit: Kit) -> None:
    session = await kit.open()
    refused = 0

    async def send() -> None:
        nonlocal refused
        try:
            await kit.post(session, depth_limit=10)
        except MailboxFull:
            refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(send)
    assert refused == 30
    assert len(await kit.entries(session)) == 10


@pytest.mark.spec("RT-14")
async def test_depth_counts_open_messages_however_they_leave(kit: Kit) -> None:
    """Two rows in each round, so a count that drifts by one shows as one room too many or too few."""
    session = await kit.open()

    async def fill() -> list[str]:
        ids = [(await kit.post(session, depth_limit=2)).id for _ in range(2)]
        with pytest.raises(MailboxFull):
            await kit.post(session, depth_limit=2)
        return ids

    await fill()
    claimed = await kit.claim(session)
    step = await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    await kit.commit(claimed, also=[message["row"] for message in step.result])

    await fill()
    claimed = await kit.claim(session)
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    await kit.commit(claimed)  # the steered one was not seen and is open still
    await kit.store.apply(Fail((await kit.claim(session)).lease, Reason.UNDECODABLE, "not readable"))

    first, second = await fill()
    await kit.store.apply(Retry((await kit.claim(session)).lease, "boom", 0))
    with pytest.raises(MailboxFull):
        await kit.post(session, depth_limit=2)
    await kit.store.apply(Cancel(kit.scope, second))
    await kit.store.apply(Cancel(kit.scope, first))
    await fill()


@pytest.mark.spec("RT-14")
async def test_a_repeat_is_answered_though_the_mailbox_is_full(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session, message_id="m-1", depth_limit=1)
    assert await kit.post(session, message_id="m-1", depth_limit=1) == attrs.evolve(receipt, created=False)


@pytest.mark.spec("RT-14")
@pytest.mark.parametrize("kind", [Kind.SUBAGENT_RESULT, Kind.NOTICE])
async def test_who_is_exempt_passes_a_full_mailbox(kit: Kit, kind: Kind) -> None:
    session = await kit.open()
    await kit.post(session, depth_limit=1)
    assert (await kit.post(session, kind=kind, depth_limit=None)).created


@pytest.mark.spec("RT-15")
async def test_hops_are_stored_and_bounded(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session, hops=32, chain="msg_chain", max_hops=32)
    view = await kit.message(receipt.id)
    assert (view.hops, view.chain) == (32, "msg_chain")
    claimed = await kit.claim(session)
    assert (claimed.head.hops, claimed.head.chain) == (32, "msg_chain")
    with pytest.raises(LimitReached) as caught:
        await kit.post(session, hops=33, max_hops=32)
    assert (caught.value.path, caught.value.status) == ("hops", 429)
    assert len(await kit.entries(session)) == 1
    assert (await kit.post(session, hops=33, max_hops=None)).created


@pytest.mark.spec("RT-15")
async def test_a_message_without_a_chain_begins_one(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    view = await kit.message(receipt.id)
    assert (view.chain, view.hops) == (receipt.id, 0)


@pytest.mark.spec("RT-15")
async def test_messages_a_minute_are_bounded_for_each_ordered_pair(kit: Kit) -> None:
    one, two, three = await kit.open(), await kit.open(), await kit.open()
    refusals: list[LimitReached] = []

    async def send(source: str, target: str, kind: Kind = Kind.AGENT_MESSAGE, limit: int | None = 3) -> bool:
        sessions = {"one": one, "two": two, "three": three}
        try:
            await kit.post(sessions[target], sender=kit.as_sender(sessions[source]), kind=kind, pair_limit=limit)
        except LimitReached as refusal:
            refusals.append(refusal)
            return False
        return True

    # Results and notices neither count nor are bounded.
    for kind in (Kind.NOTICE, Kind.SUBAGENT_RESULT):
        assert await send("one", "two", kind, limit=None)
    assert [await send("one", "two") for _ in range(5)] == [True, True, True, False, False]
    assert await send("one", "two", Kind.NOTICE, limit=None)
    assert await send("two", "one")
    assert await send("one", "three")
    assert await send("three", "two")
    # 0 turns the bound off, but what was sent meanwhile counts.
    assert await send("one", "two", limit=0)
    assert not await send("one", "two")
    assert {(refusal.path, refusal.status) for refusal in refusals} == {("agent_id", 429)}


@pytest.mark.spec("RT-15")
async def test_a_restart_refills_no_pair(reopen: Reopen) -> None:
    async with reopen() as kit:
        one, two = await kit.open(), await kit.open()
        for _ in range(2):
            await kit.post(two, sender=kit.as_sender(one), kind=Kind.AGENT_MESSAGE, pair_limit=2)
    async with reopen() as kit:
        with pytest.raises(LimitReached):
            await kit.post(two, sender=kit.as_sender(one), kind=Kind.AGENT_MESSAGE, pair_limit=2)


@pytest.mark.spec("RT-14")
async def test_steps_that_fill_a_batch_do_not_share_one(kit: Kit) -> None:
    sessions = [await kit.open() for _ in range(3)]
    for session in sessions:
        await kit.post(session)
    claims = await kit.claims()
    large = "x" * (3 * 1024 * 1024)
    before = kit.store.statistics()["batches"]
    async with trio.open_nursery() as nursery:
        for claimed in claims:
            step = RecordStep(claimed.lease, "round:1", StepKind.ROUND, 1, done=True, data={}, result={"text": large})
            nursery.start_soon(kit.store.apply, step)
    assert kit.store.statistics()["batches"] == before + 3


@pytest.mark.spec("RT-14")
async def test_a_requeue_is_bounded_as_a_send_is(kit: Kit) -> None:
    session, parent = await kit.open(), await kit.open()
    old = await kit.turn(session)
    await kit.post(session)
    before = await kit.snapshot()
    with pytest.raises(MailboxFull):
        await kit.store.apply(Requeue(kit.scope, old.id, depth_limit=1))
    assert await kit.snapshot() == before
    assert (await kit.store.apply(Requeue(kit.scope, old.id, depth_limit=2))).created
    # A result is exempt, also when it is given again.
    result = await kit.post(parent, kind=Kind.SUBAGENT_RESULT, depth_limit=None)
    await kit.store.apply(Cancel(kit.scope, result.id))
    await kit.post(parent)
    assert (await kit.store.apply(Requeue(kit.scope, result.id, depth_limit=1))).created
