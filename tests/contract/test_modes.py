"""Wake modes: what each kind does to its target, what a turn carries, absorbs and gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from callboard.storage.model.ids import turn_id
from callboard.storage.model.messages import WAKE, Kind, Wake
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import Absorb, Cancel, Fail, HandBack, Retry

if TYPE_CHECKING:
    from conftest import Kit

STEERING = [kind for kind in Kind if WAKE[kind] is Wake.STEER]


@pytest.mark.spec("INB-10")
@pytest.mark.parametrize("kind", Kind)
async def test_only_a_waking_kind_makes_its_mailbox_due(kit: Kit, kind: Kind) -> None:
    session = await kit.open()
    receipt = await kit.post(session, kind=kind)
    claims = await kit.claims()
    if kind is Kind.NOTICE:
        assert claims == ()
        assert (await kit.message(receipt.id)).status is Status.PENDING
    else:
        assert [claimed.head.id for claimed in claims] == [receipt.id]
        assert claims[0].head.kind == kind


@pytest.mark.spec("INB-10")
async def test_the_modes_are_those_of_the_specification() -> None:
    assert {kind: WAKE[kind].value for kind in Kind} == {
        "member_message": "steer",
        "urgent": "steer",
        "agent_message": "wake",
        "peer_message": "wake",
        "subagent_result": "wake",
        "notice": "next",
        "signal": "signal",
    }


@pytest.mark.spec("INB-10")
async def test_a_turn_carries_the_next_turn_rows_that_stand_ahead_of_its_head(kit: Kit) -> None:
    session = await kit.open()
    ahead = [await kit.post(session, f"notice {n}", kind=Kind.NOTICE) for n in range(2)]
    head = await kit.post(session, "head")
    behind = await kit.post(session, "later notice", kind=Kind.NOTICE)
    claimed = await kit.claim(session)
    assert claimed.head.id == head.id
    assert [(m.id, m.content, m.steered) for m in claimed.carried] == [
        (ahead[0].id, "notice 0", False),
        (ahead[1].id, "notice 1", False),
    ]
    for receipt in ahead:
        assert (await kit.message(receipt.id)).status is Status.PROCESSING
    await kit.commit(claimed)
    for receipt in (*ahead, head):
        view = await kit.message(receipt.id)
        assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.ANSWERED)
    assert (await kit.message(behind.id)).status is Status.PENDING
    assert await kit.claims() == ()
    await kit.post(session, "wakes")
    assert [message.id for message in (await kit.claim(session)).carried] == [behind.id]


@pytest.mark.spec("INB-10")
@pytest.mark.parametrize("kind", Kind)
async def test_a_running_turn_absorbs_what_steers_and_nothing_else(kit: Kit, kind: Kind) -> None:
    session = await kit.open()
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    receipt = await kit.post(session, "more", kind=kind, payload={"n": 1}, reply_to="m-0", hops=2, message_id="m-2")
    step = await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    if kind not in STEERING:
        assert step.result == []
        assert (await kit.message(receipt.id)).status is Status.PENDING
        return
    (taken,) = step.result
    assert (taken["id"], taken["message_id"], taken["content"], taken["seq"]) == (receipt.id, "m-2", "more", 2)
    assert (taken["kind"], taken["payload"], taken["reply_to"], taken["hops"]) == (kind, '{"n":1}', "m-0", 2)
    assert taken["sender"] == {"id": "ann", "kind": "member", "label": "Ann"}
    assert taken["steered"] is True
    view = await kit.message(receipt.id)
    assert (view.status, view.lease_holder) == (Status.PROCESSING, "worker")
    assert view.turn_id == turn_id(claimed.head.id)
    assert view.stages["surfaced"] >= view.stages["accepted"]
    await kit.commit(claimed, also=(taken["row"],))
    view = await kit.message(receipt.id)
    assert (view.status, view.turn_id) == (Status.DELIVERED, turn_id(claimed.head.id))
    assert await kit.claims() == ()


@pytest.mark.spec("INB-10")
async def test_absorb_takes_the_oldest_first_and_no_more_than_asked(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    for n in range(5):
        await kit.post(session, f"{n}")
    parts = [(await kit.store.apply(Absorb(claimed.lease, f"steer:{n}", n, limit=2))).result for n in range(4)]
    assert [[message["content"] for message in part] for part in parts] == [["0", "1"], ["2", "3"], ["4"], []]


@pytest.mark.spec("INB-10", "RT-4")
async def test_steered_rows_that_the_agent_did_not_see_return_to_their_place(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    seen, unseen = await kit.post(session, "seen"), await kit.post(session, "unseen")
    last = await kit.post(session, "last", kind=Kind.AGENT_MESSAGE)
    step = await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    ended = await kit.commit(claimed, None, outcome=Outcome.STOPPED, also=(step.result[0]["row"],))
    assert (await kit.message(seen.id)).outcome is Outcome.STOPPED
    assert (await kit.message(unseen.id)).status is Status.PENDING
    assert ended.due is not None
    following = await kit.claim(session)
    assert (following.head.id, following.head.steered, following.carried) == (unseen.id, False, ())
    await kit.commit(following)
    assert (await kit.claim(session)).head.id == last.id


@pytest.mark.spec("INB-10")
@pytest.mark.parametrize("end", ["retry", "hand back", "takeover"])
async def test_a_turn_that_runs_again_has_the_same_messages(kit: Kit, end: str) -> None:
    session = await kit.open()
    notice = await kit.post(session, "notice", kind=Kind.NOTICE)
    head = await kit.post(session, "head")
    claimed = await kit.claim(session, seconds=-1 if end == "takeover" else 30)
    steered = await kit.post(session, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    later = await kit.post(session, "later")
    if end == "retry":
        await kit.store.apply(Retry(claimed.lease, "boom", 0))
    elif end == "hand back":
        await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    if end != "takeover":
        for receipt in (notice, head, steered):
            assert (await kit.message(receipt.id)).status is Status.PENDING
    again = await kit.claim(session)
    assert (again.head.id, again.steps) == (head.id, True)
    assert [(message.id, message.steered) for message in again.carried] == [(notice.id, False), (steered.id, True)]
    await kit.commit(again)
    for receipt in (notice, head, steered):
        assert (await kit.message(receipt.id)).status is Status.DELIVERED
    assert (await kit.claim(session)).head.id == later.id


@pytest.mark.spec("INB-10")
async def test_a_failed_head_takes_nothing_with_it(kit: Kit) -> None:
    session = await kit.open()
    notice = await kit.post(session, "notice", kind=Kind.NOTICE)
    head = await kit.post(session, "head")
    claimed = await kit.claim(session)
    steered = await kit.post(session, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    ended = await kit.store.apply(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"))
    assert (await kit.message(head.id)).reason is Reason.UNDECODABLE
    assert ended.due is not None
    following = await kit.claim(session)
    assert (following.head.id, following.head.steered) == (steered.id, False)
    assert [(message.id, message.steered) for message in following.carried] == [(notice.id, False)]


async def test_an_absorbed_row_that_is_cancelled_between_two_attempts_does_not_come_back(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, "head")
    claimed = await kit.claim(session)
    steered = await kit.post(session, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    await kit.store.apply(Retry(claimed.lease, "boom", 0))
    await kit.store.apply(Cancel(kit.scope, steered.id))
    again = await kit.claim(session)
    assert again.carried == ()
    await kit.commit(again)
    assert (await kit.message(steered.id)).reason is Reason.CANCELLED
    assert await kit.claims() == ()


async def test_what_a_cancelled_head_had_taken_in_is_free_again(kit: Kit) -> None:
    session = await kit.open()
    head = await kit.post(session, "head")
    claimed = await kit.claim(session)
    steered = await kit.post(session, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:0", 0))
    await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    assert (await kit.message(steered.id)).turn_id == turn_id(head.id)
    await kit.store.apply(Cancel(kit.scope, head.id))
    assert (await kit.message(steered.id)).turn_id == turn_id(steered.id)
    again = await kit.claim(session)
    assert (again.head.id, again.head.steered, again.carried) == (steered.id, False, ())


@pytest.mark.spec("INB-10")
@pytest.mark.parametrize("kind", [Kind.NOTICE, Kind.SIGNAL, Kind.SUBAGENT_RESULT, Kind.MEMBER_MESSAGE])
async def test_an_entrys_role_tells_people_from_the_system(kit: Kit, kind: Kind) -> None:
    session = await kit.open()
    await kit.post(session, "hello", kind=kind)
    ((entry),) = await kit.entries(session)
    created: dict[str, Any] = (await kit.events(session))[0].data
    assert entry.role == created["role"] == ("user" if kind is Kind.MEMBER_MESSAGE else "notice")
