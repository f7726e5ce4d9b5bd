"""Accepting messages: what a row holds, idempotency per (scope, sender), ids that name it, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import AmbiguousId, MessageConflict, NotFound, UnknownTarget
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


@pytest.mark.spec("INB-4")
async def test_the_same_send_again_returns_the_stored_row(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.post(session, "hi", message_id="m-1", payload={"a": 1, "b": 2})
    assert first.created
    await kit.post(session, "another")
    before = await kit.snapshot()
    relabelled = attrs.evolve(kit.ann, label="Ann of sales")
    again = await kit.post(session, "hi", message_id="m-1", payload={"b": 2, "a": 1}, sender=relabelled)
    assert again == attrs.evolve(first, created=False)
    assert await kit.snapshot() == before


@pytest.mark.spec("INB-4")
async def test_a_repeat_tells_how_far_the_first_one_has_come(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.post(session, "hi", message_id="m-1")
    claimed = await kit.claim(session)
    assert (await kit.post(session, "hi", message_id="m-1")).status is Status.PROCESSING
    await kit.commit(claimed)
    repeated = await kit.post(session, "hi", message_id="m-1")
    assert (repeated.id, repeated.seq, repeated.status) == (first.id, first.seq, Status.DELIVERED)


@pytest.mark.spec("INB-4")
@pytest.mark.parametrize(
    "other",
    [
        {"content": "hi "},
        {"kind": Kind.URGENT},
        {"payload": {"a": 2}},
        {"payload": None},
        {"payload": {}},
        {"target": "second"},
    ],
    ids=lambda other: next(iter(other.items())),
)
async def test_the_same_id_for_something_else_is_a_conflict(kit: Kit, other: dict[str, Any]) -> None:
    sessions = {"first": await kit.open(), "second": await kit.open()}
    same: dict[str, Any] = {"content": "hi", "kind": Kind.MEMBER_MESSAGE, "payload": {"a": 1}}
    await kit.post(sessions["first"], **same, message_id="m-1")
    before = await kit.snapshot()
    fields = {**same, **other}
    target = sessions[fields.pop("target", "first")]
    with pytest.raises(MessageConflict) as caught:
        await kit.post(target, **fields, message_id="m-1")
    assert (caught.value.path, caught.value.status) == ("message_id", 409)
    assert await kit.snapshot() == before


@pytest.mark.spec("INB-4")
async def test_ids_are_keys_per_tenant_project_and_sender(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    session = await kit.open()
    senders = (kit.ann, BOB, Sender("ann", "session"), Sender("ann", "peer"))
    mine = [await kit.post(session, f"from {n}", sender=sender, message_id="m-1") for n, sender in enumerate(senders)]
    for scope in other_scopes:
        mine.append(await kit.post(await kit.open(scope=scope), "elsewhere", message_id="m-1"))
    assert all(receipt.created for receipt in mine)
    assert len({receipt.id for receipt in mine}) == len(mine)


@pytest.mark.spec("INB-4")
async def test_a_hundred_equal_sends_at_once_make_one_row(kit: Kit) -> None:
    session = await kit.open()
    receipts: list[bool] = []

    async def send() -> None:
        receipts.append((await kit.post(session, "hi", message_id="m-1")).created)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(send)
    assert receipts.count(True) == 1
    assert len(await kit.entries(session)) == 1


@pytest.mark.spec("INB-4")
async def test_a_message_answers_to_either_id(kit: Kit) -> None:
    session = await kit.open()
    named, unnamed = await kit.post(session, message_id="m-1"), await kit.post(session)
    assert (await kit.message("m-1")).id == (await kit.message(named.id)).id == named.id
    assert unnamed.message_id == unnamed.id
    assert (await kit.message(unnamed.id)).message_id == unnamed.id
    with pytest.raises(NotFound):
        await kit.message("m-2")


@pytest.mark.spec("INB-4")
@pytest.mark.parametrize("others", [1, 2, 3, 8])
async def test_a_message_id_means_the_callers_own_and_else_must_be_the_only_one(kit: Kit, others: int) -> None:
    session = await kit.open()
    for n in range(others):
        await kit.post(session, f"other {n}", sender=Sender(f"other-{n}", "member"), message_id="m-1")
    zoe = Sender("zoe", "session")
    own = await kit.post(session, "mine", sender=zoe, message_id="m-1")
    assert (await kit.store.reads.message(kit.scope, "m-1", principal=zoe.principal)).id == own.id
    for principal in (None, "member:stranger"):
        with pytest.raises(AmbiguousId) as caught:
            await kit.store.reads.message(kit.scope, "m-1", principal=principal)
        assert caught.value.status == 409


@pytest.mark.spec("INB-4")
async def test_nobody_can_hide_a_message_behind_its_own_id(kit: Kit) -> None:
    """Our ids are made of the letters of a message id, so a sender may use one as its key."""
    session = await kit.open()
    for _ in range(3):
        victim = await kit.post(session, "victim")
        for n in range(4):
            await kit.post(session, sender=Sender(f"other-{n}", "member"), message_id=victim.id)
        assert (await kit.message(victim.id)).content == "victim"


async def test_an_id_of_ours_that_is_taken_in_another_project_is_not_shown(
    kit: Kit, other_scopes: tuple[Scope, Scope]
) -> None:
    session, elsewhere = await kit.open(), await kit.open(scope=other_scopes[0])
    receipt = await kit.post(elsewhere, "secret")
    op = enqueue(kit.scope, session_address(session.id), kit.ann, "secret")
    with pytest.raises(MessageConflict):
        await kit.store.apply(attrs.evolve(op, id=receipt.id))
    assert await kit.entries(session) == []


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
