"""Retention: bodies of final messages go, the transcript stays, and for 90 days a repeated send is still known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from callboard.storage.model.addresses import Scope, session_address
from callboard.storage.model.errors import IllegalMove, MessageConflict, NotFound, UnknownTarget
from callboard.storage.model.limits import KEY_KEEP_SECONDS
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Status
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Cancel, PruneMessages, RecordStep, Requeue, Retry
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.upkeep import Pruned

if TYPE_CHECKING:
    from conftest import Kit

NOW = -1.0
"""A keeping time that has passed for all that there is."""
DAY = 86_400.0


async def prune(kit: Kit, keep: float | None = NOW, key: float = DAY, **fields: Any) -> Pruned:
    return await kit.store.apply(PruneMessages(fields.pop("scope", kit.scope), keep, key, **fields))


@pytest.mark.spec("INB-12")
async def test_the_body_of_a_final_message_goes_and_its_transcript_stays(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.post(session, "quotes a secret", payload={"a": "secret"}, kind=Kind.AGENT_MESSAGE)
    claimed = await kit.claim(session)
    await kit.store.apply(RecordStep(claimed.lease, "call:0", StepKind.CALL, 0, True, {"secret": 1}, "secret"))
    await kit.store.apply(Retry(claimed.lease, "secret", 0))
    await kit.commit(await kit.claim(session), "the answer")
    entries, events = await kit.entries(session), await kit.events(session)
    before = await kit.message(receipt.id)

    assert await prune(kit) == Pruned(1, 0, more=False)

    after = await kit.message(receipt.id)
    assert (after.content, after.payload, after.last_error) == ("", None, None)
    assert after.pruned_at is not None
    assert before.pruned_at is None
    assert (after.status, after.outcome, after.stages, after.turn_id) == (
        before.status,
        before.outcome,
        before.stages,
        before.turn_id,
    )
    assert "secret" not in repr(await kit.store.reads.attempts(kit.scope, receipt.id))
    assert await kit.store.reads.steps(kit.scope, receipt.id) == ()
    assert "secret" not in repr((await kit.store.reads.inbox(kit.scope)).items)
    assert (await kit.entries(session), await kit.events(session)) == (entries, events)


@pytest.mark.spec("INB-12")
async def test_what_is_open_or_young_is_never_touched(kit: Kit) -> None:
    running, waiting, retried = await kit.open(), await kit.open(), await kit.open()
    await kit.turn(waiting, "young")
    for session in (running, waiting, retried):
        await kit.post(session, "open")
    held = {claimed.session: claimed for claimed in await kit.claims(limit=3)}
    await kit.store.apply(Retry(held[retried.id].lease, "boom", 3_600))
    before = await kit.snapshot()
    assert await prune(kit, keep=DAY) == Pruned(0, 0, more=False)
    assert await kit.snapshot() == before
    assert (await prune(kit)).blanked == 1, "only the delivered one"
    bodies = {view.status: view.content for view in (await kit.store.reads.inbox(kit.scope)).items}
    assert bodies == {Status.DELIVERED: "", Status.PENDING: "open", Status.PROCESSING: "open"}
    await kit.commit(held[running.id])


@pytest.mark.spec("INB-4")
async def test_a_repeat_is_known_while_the_key_is_kept_and_new_afterwards(kit: Kit) -> None:
    session = await kit.open()

    async def send(content: str = "pay 5") -> bool:
        return (await kit.post(session, content, message_id="pay-1")).created

    assert await send()
    await kit.commit(await kit.claim(session))
    assert await prune(kit, key=KEY_KEEP_SECONDS) == Pruned(1, 0, more=False)
    assert not await send()
    with pytest.raises(MessageConflict):
        await send("pay 6")
    assert await kit.claims() == (), "its marker stands: no second turn"
    assert await prune(kit, keep=None, key=KEY_KEEP_SECONDS) == Pruned(0, 0, more=False)
    assert await prune(kit, keep=None, key=NOW) == Pruned(0, 1, more=False)
    assert await send()


@pytest.mark.spec("INB-4", "INB-12")
async def test_a_transcript_outlives_the_rows_of_its_messages(kit: Kit) -> None:
    session, other = await kit.open(path="/here"), await kit.open(path="/there")
    await kit.turn(session, "one", "answer one")
    await kit.post(session, "two", message_id="m-2", sender=kit.as_sender(other), kind=Kind.AGENT_MESSAGE)
    await kit.commit(await kit.claim(session), None)
    cancelled = await kit.post(session, "three")
    await kit.store.apply(Cancel(kit.scope, cancelled.id))
    entries, events = await kit.entries(session), await kit.events(session)
    await prune(kit)
    assert (await prune(kit, keep=None, key=NOW)).deleted == 3
    assert (await kit.store.reads.inbox(kit.scope)).items == ()
    with pytest.raises(NotFound):
        await kit.message(cancelled.id)
    assert (await kit.entries(session), await kit.events(session)) == (entries, events)
    assert (await kit.store.reads.transcript_tail(kit.scope, session.id, 10))[0] == entries
    await kit.turn(session, "four", "it goes on")
    assert [entry.content for entry in await kit.entries(session)][-2:] == ["four", "it goes on"]


@pytest.mark.spec("INB-12")
async def test_a_pruned_message_cannot_be_requeued(kit: Kit) -> None:
    session = await kit.open()
    receipt = await kit.turn(session)
    await prune(kit)
    before = await kit.snapshot()
    with pytest.raises(IllegalMove, match="pruned"):
        await kit.store.apply(Requeue(kit.scope, receipt.id))
    assert await kit.snapshot() == before


@pytest.mark.spec("INB-12")
async def test_each_call_is_bounded_and_says_whether_there_is_more(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    for scope in (kit.scope, *other_scopes):
        session = await kit.open(scope=scope)
        for number in range(3):
            await kit.turn(session, f"{number}")
    seen = [await prune(kit, scope=None, limit=4) for _ in range(4)]
    assert [(done.blanked, done.more) for done in seen] == [(4, True), (4, True), (1, False), (0, False)]
    seen = [await prune(kit, scope=None, key=NOW, limit=4) for _ in range(3)]
    assert [(done.deleted, done.more) for done in seen] == [(4, True), (4, True), (1, False)]


@pytest.mark.spec("NS-5")
async def test_a_project_prunes_nothing_of_another(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    for scope in other_scopes:
        await kit.turn(await kit.open(scope=scope))
    before = await kit.snapshot(*other_scopes)
    await kit.turn(await kit.open())
    assert (await prune(kit)).blanked == 1
    assert await kit.snapshot(*other_scopes) == before
    with pytest.raises(UnknownTarget):
        await prune(kit, scope=Scope("never", "used"))


async def test_the_oldest_end_goes_first(kit: Kit) -> None:
    session, late = await kit.open(), await kit.open()
    waited = await kit.store.apply(enqueue(kit.scope, session_address(late.id), kit.ann, "accepted first"))
    held = await kit.claim(late)
    first = await kit.turn(session, "ended first")
    await kit.commit(held)
    assert await prune(kit, limit=1) == Pruned(1, 0, more=True)
    assert (await kit.message(first.id)).content == ""
    assert (await kit.message(waited.id)).content == "accepted first"
