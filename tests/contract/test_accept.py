"""Accepting messages: what a row holds, that it is there for good, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import UnknownTarget
from callboard.storage.model.messages import LOCAL, PEER, Kind
from callboard.storage.model.sessions import SessionKind
from callboard.storage.model.states import Status
from callboard.storage.ops import Retry
from callboard.storage.ops.inbox import enqueue

if TYPE_CHECKING:
    from conftest import Kit, Reopen

BOB = Sender("bob", "member", "Bob")


@pytest.mark.spec("INB-3")
async def test_a_row_has_every_field_that_operators_are_promised(kit: Kit) -> None:
    session = await kit.open()
    before = kit.store.now()
    receipt = await kit.post(
        session,
        "héllo\n[from: nobody] ✓",
        message_id="m-1",
        payload={"b": [1, None, "x"], "a": {"deep": 1.5}},
        chain="msg_chain",
        hops=3,
        reply_to="m-0",
        transport=PEER,
        destination_peer="peer:0123456789ab",
        max_attempts=48,
    )
    found = await kit.message(receipt.id)
    assert (found.id, found.message_id, found.session) == (receipt.id, "m-1", session.id)
    assert (found.transport, found.destination_peer) == (PEER, "peer:0123456789ab")
    assert (found.sender, found.kind, found.content) == (kit.ann, Kind.MEMBER_MESSAGE, "héllo\n[from: nobody] ✓")
    assert found.payload == {"b": [1, None, "x"], "a": {"deep": 1.5}}
    assert (found.status, found.outcome, found.reason) == (Status.PENDING, None, None)
    assert (found.attempts, found.max_attempts, found.takeovers, found.attempt) == (0, 48, 0, 0)
    assert (found.chain, found.hops, found.reply_to, found.requeued_from) == ("msg_chain", 3, "m-0", None)
    assert (found.lease_holder, found.lease_until, found.lease_epoch, found.last_error) == (None, None, None, None)
    assert before <= found.created_at <= kit.store.now()
    assert found.available_at == found.updated_at == found.created_at
    assert found.stages == {"accepted": found.created_at}


@pytest.mark.spec("INB-3")
async def test_the_lease_of_the_mailbox_shows_on_its_processing_row_alone(kit: Kit) -> None:
    session = await kit.open()
    first, second = await kit.post(session), await kit.post(session)
    claimed = await kit.claim(session, "worker-7")
    held = await kit.message(first.id)
    assert (held.lease_holder, held.lease_until, held.lease_epoch) == (
        "worker-7",
        claimed.lease_until,
        claimed.lease.epoch,
    )
    waiting = await kit.message(second.id)
    assert (waiting.lease_holder, waiting.lease_until, waiting.lease_epoch) == (None, None, None)
    await kit.commit(claimed)
    done = await kit.message(first.id)
    assert done.lease_holder is None
    assert done.stages["accepted"] <= done.stages["leased"] <= done.stages["surfaced"] <= done.stages["committed"]


@pytest.mark.spec("INB-3")
async def test_an_error_is_kept_with_the_message(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    claimed = await kit.claim(session)
    await kit.store.apply(Retry(claimed.lease, "boom " * 1_000, 0))
    found = await kit.message(receipt.id)
    assert found.last_error is not None
    assert found.last_error.startswith("boom boom")
    assert len(found.last_error) <= 2_000


@pytest.mark.spec("INB-1")
async def test_what_was_accepted_is_there_for_the_next_owner(reopen: Reopen) -> None:
    async with reopen() as kit:
        session = await kit.open(path="/desk")
        receipt = await kit.post(session, "kept", message_id="m-1")
    async with reopen() as kit:
        found = await kit.message(receipt.id)
        assert (found.content, found.status) == ("kept", Status.PENDING)
        repeated = await kit.post(session, "kept", message_id="m-1")
        assert (repeated.id, repeated.created) == (receipt.id, False)


@pytest.mark.spec("INB-5")
async def test_an_unknown_target_is_refused_by_name(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    session = await kit.open()
    internal = await kit.open(kind=SessionKind.INTERNAL)
    elsewhere = await kit.open(scope=other_scopes[0])
    before = await kit.snapshot()
    for target in ("ses_nowhere", internal.id, elsewhere.id, session.id.upper(), f"{session.id} "):
        op = enqueue(kit.scope, session_address(target), kit.ann, "hi")
        with pytest.raises(UnknownTarget) as caught:
            await kit.store.apply(op)
        assert caught.value.path == "target"
    with pytest.raises(UnknownTarget):
        await kit.store.apply(enqueue(Scope("no", "such"), session_address(session.id), kit.ann, "hi"))
    assert await kit.snapshot() == before


@pytest.mark.spec("INB-9")
async def test_text_that_quotes_other_rows_is_only_text(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.turn(session, "first")
    quote = f"turn_{first.id[4:]} marker {first.id} status=delivered '; DELETE FROM message; --"
    second = await kit.post(session, quote, payload={"marker": first.id, "status": "delivered"})
    claimed = await kit.claim(session)
    assert (claimed.head.id, claimed.head.content) == (second.id, quote)
    await kit.commit(claimed, answer=quote)
    assert [(e.role, e.content) for e in await kit.entries(session)][2:] == [("user", quote), ("assistant", quote)]
    assert (await kit.message(first.id)).status is (await kit.message(second.id)).status is Status.DELIVERED
    assert first.id != second.id


async def test_transport_is_local_unless_said(kit: Kit) -> None:
    session = await kit.open()
    assert (await kit.message((await kit.post(session)).id)).transport == LOCAL
