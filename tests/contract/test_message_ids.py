"""Message ids: keys of repetition per (scope, sender), and names that a message answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import AmbiguousId, MessageConflict, NotFound
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Status
from callboard.storage.ops.inbox import enqueue

if TYPE_CHECKING:
    from conftest import Kit

BOB = Sender("bob", "member", "Bob")


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
