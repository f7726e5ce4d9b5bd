"""The fence: an op of a turn whose lease is not held at its epoch raises `LeaseLost` and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage import ops
from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import LeaseLost
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import Lease, StepKind
from callboard.storage.ops import (
    Absorb,
    CommitTurn,
    DeleteSession,
    EmitTokens,
    Fail,
    HandBack,
    Op,
    RecordStep,
    RequestApproval,
    Retry,
)
from callboard.storage.ops.deliveries import StepEvent
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session
    from callboard.storage.model.turns import Claimed

Writes = Callable[["Kit", "Session", Lease], Op[Any]]


def _record(kit: Kit, session: Session, lease: Lease) -> RecordStep:
    return RecordStep(
        lease,
        "call:0",
        StepKind.CALL,
        0,
        done=True,
        data={"tool": "agent"},
        result="ok",
        sends=(enqueue(kit.scope, session_address(session.id), kit.ann, "sent by a tool"),),
        opens=(open_session(kit.scope, "echo", path="/opened"),),
        events=(StepEvent("tool.call", {}), StepEvent("tool.result", {})),
    )


FENCED: dict[type[Op[Any]], Writes] = {
    Absorb: lambda kit, session, lease: Absorb(lease, "steer:9", 9),
    CommitTurn: lambda kit, session, lease: CommitTurn(lease, Outcome.ANSWERED, "late", (lease.head,), "tail", 9, "me"),
    EmitTokens: lambda kit, session, lease: EmitTokens(lease, 9, "late"),
    Fail: lambda kit, session, lease: Fail(lease, Reason.UNDECODABLE, "late"),
    HandBack: lambda kit, session, lease: HandBack(lease, "late"),
    RecordStep: _record,
    RequestApproval: lambda kit, session, lease: RequestApproval(lease, "apr_1", "call:0", "charge", {}),
    Retry: lambda kit, session, lease: Retry(lease, "late", 5),
}


def test_every_op_that_bears_a_lease_is_fenced_here() -> None:
    named = [getattr(ops, name) for name in ops.__all__]
    bearing = {op for op in named if attrs.has(op) and "lease" in attrs.fields_dict(op)}
    assert bearing == set(FENCED)


async def _lost(kit: Kit, session: Session, how: str) -> Lease:
    """A lease of `session` that was lost in that way; a message that steers waits in its mailbox."""
    await kit.post(session, "head")
    claimed: Claimed = await kit.claim(session, "slow", seconds=-1)
    if how == "taken over":
        await kit.claim(session, "quick")
    elif how == "taken over by the same process":
        await kit.claim(session, "slow")
    elif how == "another head":
        await kit.commit(claimed, None)
        await kit.post(session, "another")
        await kit.claim(session, "quick")
    elif how == "deleted":
        await kit.store.apply(DeleteSession(kit.scope, session.id, kit.ann))
    elif how == "voided":
        await kit.store.apply(ops.VoidLeases())
    if how != "deleted":
        await kit.post(session, "steers")
    # A turn that was committed answers its own commit as a repeat, so this lease must be of an earlier epoch too.
    return attrs.evolve(claimed.lease, epoch=claimed.lease.epoch - 1) if how == "another head" else claimed.lease


@pytest.mark.spec("RT-8")
@pytest.mark.parametrize(
    "how", ["taken over", "taken over by the same process", "another head", "deleted", "voided", "never held"]
)
async def test_a_lost_lease_writes_nothing(kit: Kit, how: str) -> None:
    session = await kit.open()
    lease = await _lost(kit, session, how)
    if how == "never held":
        lease = attrs.evolve(lease, epoch=lease.epoch + 1)
    before = await kit.snapshot(gone=(session.id,))
    for op in FENCED.values():
        with pytest.raises(LeaseLost) as caught:
            await kit.store.apply(op(kit, session, lease))
        assert caught.value.status == 409
        assert await kit.snapshot(gone=(session.id,)) == before


@pytest.mark.spec("RT-8")
@pytest.mark.parametrize("op", FENCED, ids=lambda op: op.__name__)
async def test_a_lease_whose_time_is_over_but_that_nobody_took_still_holds(kit: Kit, op: type[Op[Any]]) -> None:
    session, other = await kit.open(), await kit.open()
    lease = await _lost(kit, session, "held")
    await kit.store.apply(FENCED[op](kit, other, lease))


@pytest.mark.spec("RT-8", "RT-10")
async def test_what_was_committed_before_the_lease_was_lost_stays(kit: Kit) -> None:
    session = await kit.open()
    await kit.post(session)
    slow = await kit.claim(session, "slow", seconds=-1)
    await kit.store.apply(RecordStep(slow.lease, "round:0", StepKind.ROUND, 0, done=True, data={"r": 1}, result=[1]))
    await kit.store.apply(EmitTokens(slow.lease, 1, "so far"))
    quick = await kit.claim(session, "quick")
    assert quick.steps
    (step,) = await kit.store.reads.steps(kit.scope, quick.head.id)
    assert (step.key, step.kind, step.done, step.data, step.result) == ("round:0", StepKind.ROUND, True, {"r": 1}, [1])
    assert await kit.store.reads.tokens(kit.scope, session.id, f"turn_{quick.head.id[4:]}") == {1: "so far"}
    assert await kit.kinds(session) == [
        "message.created",
        "turn.started",
        "attempt.claimed",
        "turn.token",
        "attempt.relinquished",
        "attempt.claimed",
    ]
