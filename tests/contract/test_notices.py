"""Telling the sender: a failed message gives a non-delivery notice, and a notice never gives one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from callboard.storage.model.addresses import Sender, session_address
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import SessionKind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import Cancel, DeleteSession, Fail, RequestStop, Retry

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.messages import Receipt
    from callboard.storage.model.sessions import Session

REASONS = {
    "cancel": Reason.CANCELLED,
    "delete": Reason.TARGET_DELETED,
    "fail": Reason.TAKEOVERS_USED,
    "last retry": Reason.RETRIES_USED,
    "drop": Reason.DROPPED,
}


async def _fail(kit: Kit, target: Session, way: str, **fields: Any) -> Receipt:
    """A message that fails in that way."""
    if way == "drop":
        await kit.post(target, "running")
        await kit.claim(target)
    receipt = await kit.post(target, "please", max_attempts=1, **fields)
    if way == "cancel":
        await kit.store.apply(Cancel(kit.scope, receipt.id))
    elif way == "delete":
        await kit.store.apply(DeleteSession(kit.scope, target.id, kit.ann))
    elif way == "drop":
        await kit.store.apply(RequestStop(kit.scope, session_address(target.id), drop_queued=True))
    else:
        lease = (await kit.claim(target)).lease
        await kit.store.apply(
            Retry(lease, "boom", 0) if way == "last retry" else Fail(lease, REASONS["fail"], "lost too often")
        )
    return receipt


@pytest.mark.spec("SES-10", "INB-12")
@pytest.mark.parametrize("way", REASONS)
async def test_the_sender_of_a_failed_message_is_told_once(kit: Kit, way: str) -> None:
    asker, target = await kit.open(), await kit.open()
    receipt = await _fail(kit, target, way, sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    view = await kit.message(receipt.id)
    assert (view.status, view.reason, view.outcome) == (Status.FAILED, REASONS[way], None)
    (told,) = (await kit.store.reads.inbox(kit.scope, target=asker.id)).items
    assert (told.kind, told.sender.kind, told.status) == (Kind.NOTICE, "system", Status.PENDING)
    assert told.payload == {"message": receipt.id, "reason": REASONS[way]}
    assert receipt.id in told.content
    (entry,) = await kit.entries(asker)
    assert (entry.role, entry.content) == ("notice", told.content)
    # A notice waits for the next turn of its target.
    claims = await kit.claims()
    assert asker.id not in {claimed.session for claimed in claims}


@pytest.mark.spec("RT-14")
@pytest.mark.parametrize("way", [way for way in REASONS if way not in ("fail", "last retry")])
async def test_a_notice_never_causes_a_notice(kit: Kit, way: str) -> None:
    asker, target = await kit.open(), await kit.open()
    await _fail(kit, target, way, sender=kit.as_sender(asker), kind=Kind.NOTICE)
    assert await kit.entries(asker) == []


@pytest.mark.spec("RT-14")
async def test_a_failed_result_causes_no_notice(kit: Kit) -> None:
    parent = await kit.open()
    child = await kit.child(parent)
    await kit.commit(await kit.claim(child))
    written = await kit.entries(child)
    await kit.store.apply(Fail((await kit.claim(parent)).lease, Reason.UNDECODABLE, "not readable"))
    assert await kit.entries(child) == written


@pytest.mark.spec("RT-14")
async def test_a_non_delivery_notice_that_fails_tells_nobody(kit: Kit) -> None:
    asker, target = await kit.open(), await kit.open()
    await _fail(kit, target, "cancel", sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    (told,) = (await kit.store.reads.inbox(kit.scope, target=asker.id)).items
    await kit.store.apply(Cancel(kit.scope, told.id))
    assert len((await kit.store.reads.inbox(kit.scope)).items) == 2


@pytest.mark.parametrize("way", REASONS)
async def test_who_is_no_session_or_takes_no_mail_is_not_told_and_the_message_fails_all_the_same(
    kit: Kit, way: str
) -> None:
    internal, gone = await kit.open(kind=SessionKind.INTERNAL), await kit.open()
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    senders = (kit.ann, Sender("peer:0123456789ab", "peer"), kit.as_sender(internal), kit.as_sender(gone))
    for sender in (*senders, Sender("ses_nowhere", "session")):
        target = await kit.open()
        receipt = await _fail(kit, target, way, sender=sender, kind=Kind.AGENT_MESSAGE)
        assert (await kit.message(receipt.id)).reason is REASONS[way]
    assert {view.kind for view in (await kit.store.reads.inbox(kit.scope)).items} <= {
        Kind.AGENT_MESSAGE,
        Kind.MEMBER_MESSAGE,
    }


@pytest.mark.spec("RT-14")
async def test_a_notice_reaches_a_full_mailbox(kit: Kit) -> None:
    asker, target = await kit.open(), await kit.open()
    await kit.post(asker, depth_limit=1)
    receipt = await kit.post(target, sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    await kit.store.apply(Cancel(kit.scope, receipt.id))
    assert [entry.role for entry in await kit.entries(asker)] == ["user", "notice"]


@pytest.mark.spec("SES-10")
async def test_the_stages_of_a_message_come_one_after_the_other(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session)
    assert set((await kit.message(receipt.id)).stages) == {"accepted"}
    claimed = await kit.claim(session)
    assert set((await kit.message(receipt.id)).stages) == {"accepted", "leased", "surfaced"}
    await kit.commit(claimed, None, outcome=Outcome.NO_VISIBLE_REPLY)
    view = await kit.message(receipt.id)
    assert list(view.stages) == ["accepted", "leased", "surfaced", "committed"]
    assert list(view.stages.values()) == sorted(view.stages.values())
    assert view.outcome is Outcome.NO_VISIBLE_REPLY


@pytest.mark.spec("SES-10")
async def test_a_failed_message_was_never_committed(kit: Kit) -> None:
    session = await kit.open()
    receipt = await _fail(kit, session, "last retry")
    view = await kit.message(receipt.id)
    assert "committed" not in view.stages
    assert (view.reason, view.outcome) == (Reason.RETRIES_USED, None)
