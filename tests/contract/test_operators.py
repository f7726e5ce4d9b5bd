"""What operators do with messages: list, show, cancel, requeue; and that no illegal move is ever made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import IllegalMove, InvalidField, LeaseLost, NotFound, UnknownTarget
from callboard.storage.model.messages import PEER, Kind
from callboard.storage.model.states import MOVES, Outcome, Reason, Status
from callboard.storage.ops import Cancel, DeleteSession, Fail, HandBack, Op, Requeue, Retry

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.messages import Receipt
    from callboard.storage.model.sessions import Session
    from callboard.storage.model.turns import Claimed


@pytest.mark.spec("INB-12")
async def test_messages_are_listed_by_target_state_peer_and_age(kit: Kit) -> None:
    one, two = await kit.open(), await kit.open()
    failed = await kit.post(one, "failed")
    await kit.store.apply(Cancel(kit.scope, failed.id))
    delivered = await kit.turn(one, "delivered")
    to_peer = await kit.post(two, "to a peer", transport=PEER, destination_peer="peer:0123456789ab")
    middle = kit.store.now()
    processing = await kit.post(one, "processing")
    pending = await kit.post(one, "pending")
    await kit.claims()

    async def listed(**filters: Any) -> list[str]:
        return [view.id for view in (await kit.store.reads.inbox(kit.scope, **filters)).items]

    everything = [pending.id, processing.id, to_peer.id, delivered.id, failed.id]
    assert await listed() == everything
    assert await listed(target=one.id) == [pending.id, processing.id, delivered.id, failed.id]
    for receipt, status in ((pending, "pending"), (delivered, "delivered"), (failed, "failed")):
        assert await listed(target=one.id, status=status) == [receipt.id]
    assert await listed(status="processing") == [processing.id, to_peer.id]
    assert await listed(peer="peer:0123456789ab") == [to_peer.id]
    assert await listed(before=middle) == everything[2:]
    assert await listed(target="ses_nowhere") == await listed(status="nonsense") == []


@pytest.mark.spec("INB-12")
async def test_the_list_comes_page_by_page_and_new_messages_do_not_shift_it(kit: Kit) -> None:
    session = await kit.open()
    sent = [(await kit.post(session, f"{n}")).id for n in range(5)]
    first = await kit.store.reads.inbox(kit.scope, limit=2)
    await kit.post(session, "new")
    second = await kit.store.reads.inbox(kit.scope, limit=2, cursor=first.next)
    third = await kit.store.reads.inbox(kit.scope, limit=2, cursor=second.next)
    assert [view.id for page in (first, second, third) for view in page.items] == sent[::-1]
    assert (first.has_more, second.has_more, third.has_more) == (True, True, False)
    wrongs: list[dict[str, Any]] = [{"limit": 0}, {"limit": 201}]
    wrongs += [{"cursor": cursor} for cursor in ("-1", "x", "9" * 40, "٣")]
    for wrong in wrongs:
        with pytest.raises(InvalidField) as caught:
            await kit.store.reads.inbox(kit.scope, **wrong)
        assert caught.value.path == next(iter(wrong))


@pytest.mark.spec("INB-2", "INB-12")
async def test_a_requeued_message_is_a_new_row_that_names_the_old_one(kit: Kit) -> None:
    asker, session = await kit.open(title="Asker"), await kit.open()
    old = await kit.post(
        session,
        "please",
        sender=kit.as_sender(asker),
        kind=Kind.AGENT_MESSAGE,
        message_id="m-1",
        payload={"a": 1},
        reply_to="m-0",
        max_attempts=2,
        hops=9,
    )
    claimed = await kit.claim(session)
    await kit.store.apply(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"))
    receipt = await kit.store.apply(Requeue(kit.scope, old.id))
    assert receipt.created
    assert receipt.id != old.id
    before, after = await kit.message(old.id), await kit.message(receipt.id)
    assert (before.status, before.reason) == (Status.FAILED, Reason.UNDECODABLE)
    assert (after.status, after.requeued_from, after.message_id) == (Status.PENDING, old.id, receipt.id)
    same = ("sender", "kind", "content", "payload", "reply_to", "max_attempts", "session", "transport")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert (after.attempts, after.takeovers, after.attempt, after.seq) == (0, 0, 0, 2)
    assert (await kit.claim(session)).head.id == receipt.id
    # Its own id may still be used for the same send, which finds the old row.
    assert (await kit.message("m-1")).id == old.id


@pytest.mark.spec("INB-12")
async def test_a_delivered_message_can_be_requeued(kit: Kit) -> None:
    session = await kit.open()
    old = await kit.turn(session)
    receipt = await kit.store.apply(Requeue(kit.scope, old.id))
    await kit.commit(await kit.claim(session), "again")
    assert (await kit.message(receipt.id)).outcome is Outcome.ANSWERED


@pytest.mark.spec("INB-12")
async def test_what_is_unknown_cannot_be_changed(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    session, elsewhere = await kit.open(), await kit.open(scope=other_scopes[0])
    theirs = await kit.post(elsewhere)
    gone = await kit.post(session, message_id="m-1")
    await kit.store.apply(DeleteSession(kit.scope, session.id, kit.ann))
    for unknown in (theirs.id, "msg_nowhere", "m-1"):
        for op in (Cancel(kit.scope, unknown), Requeue(kit.scope, unknown)):
            with pytest.raises(NotFound):
                await kit.store.apply(op)
    with pytest.raises(UnknownTarget):
        await kit.store.apply(Requeue(kit.scope, gone.id))
    assert (await kit.store.reads.message(other_scopes[0], theirs.id)).status is Status.PENDING


@pytest.mark.spec("INB-2")
async def test_a_processing_message_points_to_stop_when_cancelled(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    await kit.claim(session)
    with pytest.raises(IllegalMove) as caught:
        await kit.store.apply(Cancel(kit.scope, receipt.id))
    assert caught.value.status == 409
    assert "stop" in caught.value.message


async def _in_state(kit: Kit, session: Session, state: Status) -> tuple[Receipt, Claimed]:
    """A message in that state, and the claim that it had last (for pending: one that was given back)."""
    receipt = await kit.post(session)
    claimed = await kit.claim(session)
    if state is Status.PENDING:
        await kit.store.apply(HandBack(claimed.lease, "shutdown", 3_600))
    elif state is Status.DELIVERED:
        await kit.commit(claimed)
    elif state is Status.FAILED:
        await kit.store.apply(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"))
    return receipt, claimed


def _moves(kit: Kit, claimed: Claimed, new: Status) -> list[Op[Any]]:
    """Every op that moves a message to that state, as the last holder or an operator would try it."""
    # A later epoch that was never held: at its own epoch a repeat would be answered instead of tried.
    lease = attrs.evolve(claimed.lease, epoch=claimed.lease.epoch + 1)
    ops: dict[Status, list[Op[Any]]] = {
        Status.PENDING: [Retry(lease, "boom", 0), HandBack(lease, "shutdown")],
        Status.PROCESSING: [kit.claim_op("another")],
        Status.DELIVERED: [attrs.evolve(kit.commit_op(claimed), lease=lease)],
        Status.FAILED: [Fail(lease, Reason.EXPIRED, "boom"), Cancel(kit.scope, claimed.head.id)],
    }
    return ops[new]


ILLEGAL = [(old, new) for old in Status for new in Status if new not in MOVES[old]]


@pytest.mark.spec("INB-2")
@pytest.mark.parametrize(("old", "new"), ILLEGAL, ids=lambda status: str(status))
async def test_an_illegal_move_changes_nothing(kit: Kit, old: Status, new: Status) -> None:
    session = await kit.open()
    receipt, claimed = await _in_state(kit, session, old)
    before = await kit.snapshot()
    for op in _moves(kit, claimed, new):
        try:
            answer = await kit.store.apply(op)
        except (IllegalMove, LeaseLost):
            pass
        else:
            # A claim is not refused: it finds nothing.
            assert answer.claimed == ()
        assert await kit.snapshot() == before
    assert (await kit.message(receipt.id)).status is old


@pytest.mark.spec("INB-2")
async def test_every_legal_move_is_made(kit: Kit) -> None:
    session = await kit.open()
    seen: set[tuple[Status, Status]] = set()
    for moves in (
        ("claim", "commit"),
        ("claim", "retry"),
        ("claim", "hand back"),
        ("claim", "fail"),
        ("cancel",),
    ):
        receipt = await kit.post(session)
        state = Status.PENDING
        claimed: Claimed | None = None
        for move in moves:
            if move == "claim":
                claimed = await kit.claim(session)
            elif move == "cancel":
                await kit.store.apply(Cancel(kit.scope, receipt.id))
            else:
                assert claimed is not None
                ends: dict[str, Op[Any]] = {
                    "commit": kit.commit_op(claimed),
                    "retry": Retry(claimed.lease, "boom", 0),
                    "hand back": HandBack(claimed.lease, "shutdown"),
                    "fail": Fail(claimed.lease, Reason.EXPIRED, "boom"),
                }
                await kit.store.apply(ends[move])
            new = (await kit.message(receipt.id)).status
            seen.add((state, new))
            state = new
        if state is Status.PENDING:
            await kit.store.apply(Cancel(kit.scope, receipt.id))
    assert seen == {(old, new) for old in Status for new in MOVES[old]}


@pytest.mark.spec("INB-2")
async def test_a_final_message_cannot_be_cancelled_and_an_open_one_not_requeued(kit: Kit) -> None:
    session = await kit.open()
    delivered = await kit.turn(session)
    receipt = await kit.post(session)
    claimed = await kit.claim(session)
    failed = await kit.post(session, "other")
    waiting = await kit.post(session, "waiting")
    await kit.store.apply(DeleteSession(kit.scope, (await kit.open()).id, kit.ann))
    before = await kit.snapshot()
    for op in (Cancel(kit.scope, delivered.id), Requeue(kit.scope, receipt.id), Requeue(kit.scope, waiting.id)):
        with pytest.raises(IllegalMove):
            await kit.store.apply(op)
        assert await kit.snapshot() == before
    await kit.store.apply(Fail(claimed.lease, Reason.EXPIRED, "boom"))
    with pytest.raises(IllegalMove):
        await kit.store.apply(Cancel(kit.scope, receipt.id))
    await kit.store.apply(Cancel(kit.scope, failed.id))
