"""A long queue that goes at once: dropped by a stop, or with its session. What many messages leave is what each alone would have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.handlers.notices import SINGLY_MOST, TOGETHER
from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import UnknownTarget
from callboard.storage.model.ids import turn_id
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import DeleteSession, HandBack, RequestStop

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.messages import Receipt
    from callboard.storage.model.sessions import Session

WAYS = {"drop": Reason.DROPPED, "delete": Reason.TARGET_DELETED}


async def _lose(kit: Kit, session: Session, way: str) -> None:
    if way == "drop":
        await kit.store.apply(RequestStop(kit.scope, session_address(session.id), drop_queued=True))
    else:
        await kit.store.apply(DeleteSession(kit.scope, session.id, kit.ann))


async def _queue(kit: Kit, session: Session, count: int, *senders: Session) -> list[Receipt]:
    """`count` messages by each of `senders` in turn, by members if there are none."""
    found: list[Receipt] = []
    for n in range(count):
        for sender in senders or (None,):
            kind = Kind.MEMBER_MESSAGE if sender is None else Kind.AGENT_MESSAGE
            by = None if sender is None else kit.as_sender(sender)
            found.append(await kit.post(session, f"{n}", sender=by, kind=kind))
    return found


@pytest.mark.spec("INB-2", "EVT-2")
@pytest.mark.parametrize("way", WAYS)
async def test_all_of_a_queue_fail_each_with_its_event_in_their_order(kit: Kit, way: str) -> None:
    session = await kit.open()
    head = await kit.post(session, "running")
    claimed = await kit.claim(session)
    queued = await _queue(kit, session, 40)
    named = await kit.post(session, "named", message_id="m-1")
    kept, before = await kit.events(session), dict(kit.store.tallies)
    await _lose(kit, session, way)
    lost = [*queued, named] if way == "drop" else [head, *queued, named]
    for receipt in lost:
        view = await kit.message(receipt.id)
        assert (view.status, view.reason) == (Status.FAILED, WAYS[way])
    events = list((await kit.store.reads.events(kit.scope, session.id, limit=200)).events)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert events[: len(kept)] == kept
    ended = events[len(kept) :]
    assert [(event.kind, event.data["turn_id"]) for event in ended] == [
        ("turn.failed", turn_id(receipt.id)) for receipt in lost
    ]
    assert ended[-1].data == {
        "turn_id": turn_id(named.id),
        "message_id": "m-1",
        "attempt": 0,
        "reason": WAYS[way],
    }
    assert kit.store.tallies["failed", WAYS[way]] - before.get(("failed", WAYS[way]), 0) == len(lost)
    if way == "drop":
        # The mailbox counts one open message, and a new one is the next turn.
        assert (await kit.commit(claimed, None, outcome=Outcome.STOPPED)).due is None
        following = await kit.post(session, "following", depth_limit=1)
        assert (await kit.claim(session)).head.id == following.id
    else:
        assert await kit.claims() == ()


@pytest.mark.spec("RT-4")
async def test_a_drop_takes_nothing_that_came_after_it_nor_what_the_turn_holds(kit: Kit) -> None:
    session = await kit.open()
    first = await kit.post(session, "first")
    claimed = await kit.claim(session)
    await kit.store.apply(HandBack(claimed.lease, "shutdown"))
    claimed = await kit.claim(session)
    (queued,) = await _queue(kit, session, 1)
    await _lose(kit, session, "drop")
    later = await kit.post(session, "later")
    states = [(await kit.message(receipt.id)).status for receipt in (first, queued, later)]
    assert states == [Status.PROCESSING, Status.FAILED, Status.PENDING]


@pytest.mark.spec("INB-11")
async def test_a_deleted_session_takes_nothing_from_the_moment_its_deletion_is_accepted(kit: Kit) -> None:
    session = await kit.open()
    await _queue(kit, session, 20)
    await _lose(kit, session, "delete")
    with pytest.raises(UnknownTarget):
        await _lose(kit, session, "drop")
    with pytest.raises(UnknownTarget):
        await kit.post(session)
    pending = await kit.store.reads.inbox(kit.scope, target=session.id, status=Status.PENDING)
    assert pending.items == ()


@pytest.mark.spec("SES-10")
@pytest.mark.parametrize("way", WAYS)
async def test_a_sender_of_many_is_told_of_each_in_few_notices(kit: Kit, way: str) -> None:
    session, few, many = await kit.open(), await kit.open(), await kit.open()
    await kit.post(session, "running")
    await kit.claim(session)
    several = await _queue(kit, session, SINGLY_MOST, few)
    flood = await _queue(kit, session, TOGETHER + SINGLY_MOST, many)
    await _lose(kit, session, way)
    singly = [entry.content for entry in await kit.entries(few)]
    assert singly == [f"Your message {receipt.id} was not delivered: {WAYS[way]}." for receipt in several]
    told = (await kit.store.reads.inbox(kit.scope, target=many.id)).items[::-1]
    assert [view.kind for view in told] == [Kind.NOTICE, Kind.NOTICE]
    ids = [receipt.id for receipt in flood]
    assert [view.payload for view in told] == [
        {"messages": ids[:TOGETHER], "reason": WAYS[way]},
        {"messages": ids[TOGETHER:], "reason": WAYS[way]},
    ]
    assert all(lost in f"{told[0].content} {told[1].content}" for lost in ids)
