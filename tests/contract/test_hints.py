"""Change hints: who is told of what, and only once it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from callboard.storage.changes import Aspect
from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import MailboxFull, MessageConflict
from callboard.storage.model.messages import Kind
from callboard.storage.ops import Cancel, DeleteSession, EmitTokens, HandBack, Op, RequestStop, Retry

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session

DUE, EVENTS, CONTROL = Aspect.DUE, Aspect.EVENTS, Aspect.CONTROL


async def hints(kit: Kit, session: Session | None, *ops: Op[object]) -> list[int]:
    """What a watcher of `session` (None: of everybody) is told while `ops` are applied one after the other."""
    told: list[int] = []
    with kit.store.changes.watch(None if session is None else session_address(session.id), told.append):
        for op in ops:
            await kit.store.apply(op)
    return told


@pytest.mark.spec("INB-1")
async def test_a_message_wakes_only_an_idle_mailbox_and_always_shows_its_event(kit: Kit) -> None:
    session, other = await kit.open(), await kit.open()
    told: list[int] = []
    others: list[int] = []
    with (
        kit.store.changes.watch(session_address(session.id), told.append),
        kit.store.changes.watch(session_address(other.id), others.append),
    ):
        await kit.post(session, kind=Kind.NOTICE)
        await kit.post(session)
        await kit.post(session)
    assert [hint & (DUE | EVENTS) for hint in told] == [EVENTS, DUE | EVENTS, EVENTS]
    assert others == []


async def test_a_hint_comes_after_its_commit(kit: Kit) -> None:
    session = await kit.open()
    entries: list[int] = []
    committed: list[int] = []
    with kit.store.changes.watch(
        session_address(session.id), lambda _: committed.append(kit.store.statistics()["committed"])
    ):
        before = kit.store.statistics()["committed"]
        await kit.post(session)
        entries.append(len(await kit.entries(session)))
    assert committed == [before + 1]
    assert entries == [1]


async def test_an_end_tells_of_events_and_of_the_next_look(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    assert await hints(kit, session, HandBack((await kit.claim(session)).lease, "shutdown")) == [EVENTS | DUE]
    claimed = await kit.claim(session)
    assert await hints(kit, session, EmitTokens(claimed.lease, 1, "x")) == [EVENTS]
    assert await hints(kit, session, Retry(claimed.lease, "boom", 0)) == [EVENTS | DUE]
    assert await hints(kit, session, kit.commit_op(await kit.claim(session))) == [EVENTS]


async def test_a_stop_and_a_deletion_reach_the_running_turn(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    await kit.claim(session)
    (told,) = await hints(kit, session, RequestStop(kit.scope, session_address(session.id)))
    assert told & CONTROL
    (told,) = await hints(kit, session, DeleteSession(kit.scope, session.id, kit.ann))
    assert told & CONTROL


async def test_a_wake_up_and_a_notice_are_hints_for_their_own_targets(kit: Kit) -> None:
    parent, asker = await kit.open(), await kit.open()
    child = await kit.child(parent)
    claimed = await kit.claim(child)
    assert await hints(kit, parent, kit.commit_op(claimed)) == [EVENTS | DUE]
    receipt = await kit.post(child, sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    assert await hints(kit, asker, Cancel(kit.scope, receipt.id)) == [EVENTS]


async def test_a_refused_op_gives_no_hint(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session, message_id="m-1")
    told: list[int] = []
    with kit.store.changes.watch(None, told.append):
        with pytest.raises(MessageConflict):
            await kit.post(session, "other", message_id="m-1")
        with pytest.raises(MailboxFull):
            await kit.post(session, depth_limit=1)
        await kit.post(session, message_id="m-1")
    assert told == []
