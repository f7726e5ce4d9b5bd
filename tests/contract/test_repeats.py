"""Every op has a repeat rule: applied twice, with others in between, it leaves what it left the first time (INB-13).

One case an op class. A case prepares a store and gives the op, and what others do in between, to the very rows it is about as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import attrs
import pytest

from callboard.storage import ops
from callboard.storage.model.access import Grant, Purpose, digest, new_secret
from callboard.storage.model.access import Kind as Who
from callboard.storage.model.addresses import Scope, session_address
from callboard.storage.model.errors import Unauthorized
from callboard.storage.model.ids import new_id
from callboard.storage.model.messages import Kind
from callboard.storage.model.policies import Edge
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import (
    Absorb,
    AddMember,
    AnswerApproval,
    Cancel,
    Claim,
    ClearStuck,
    CommitTurn,
    DeleteSession,
    EmitTokens,
    Enqueue,
    ExpireApproval,
    Fail,
    HandBack,
    IssueTicket,
    IssueToken,
    Navigate,
    NoteUse,
    Op,
    OpenSession,
    PruneEvents,
    PruneMessages,
    PruneProcesses,
    RecordStep,
    RedeemTicket,
    Renew,
    RequestApproval,
    RequestStop,
    Requeue,
    Retry,
    RevokeCredential,
    SetPolicy,
    SuspendMember,
    UpdateSession,
    VoidLeases,
)
from callboard.storage.ops.access import issue_token
from callboard.storage.ops.deliveries import StepEvent
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.namespace import set_policy
from callboard.storage.ops.sessions import open_session
from callboard.storage.ops.upkeep import Pruned

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session
    from callboard.storage.model.turns import Claimed

HOUR = 3_600.0
Between = Callable[[], Awaitable[object]]


@attrs.frozen
class Case:
    """`between` acts on the same rows. `answer` turns the first answer into that of a repeat, where the rule says that they differ."""

    op: Op[Any]
    between: Between
    answer: Callable[[Any], Any] = lambda first: first


async def held(kit: Kit) -> tuple[Session, Claimed]:
    session = await kit.open()
    await kit.post(session, "head", kind=Kind.AGENT_MESSAGE)
    return session, await kit.claim(session)


async def absorb(kit: Kit) -> Case:
    session, claimed = await held(kit)
    await kit.post(session, "steers")
    return Case(Absorb(claimed.lease, "steer:0", 0), lambda: kit.post(session, "too late for this one"))


async def asked(kit: Kit, seconds: float = HOUR) -> RequestApproval:
    _, claimed = await held(kit)
    return RequestApproval(claimed.lease, "apr_1", "action", "charge", {"amount": 5}, seconds)


async def request_approval(kit: Kit) -> Case:
    return Case(await asked(kit), kit.open)


async def answer_approval(kit: Kit) -> Case:
    await kit.store.apply(await asked(kit))
    return Case(AnswerApproval(kit.scope, "apr_1", approve=True, by="member:ann"), kit.open)


async def expire_approval(kit: Kit) -> Case:
    await kit.store.apply(await asked(kit, seconds=0))
    return Case(ExpireApproval(kit.scope, "apr_1"), kit.open)


async def cancel(kit: Kit) -> Case:
    session, asker = await kit.open(), await kit.open()
    receipt = await kit.post(session, sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    return Case(Cancel(kit.scope, receipt.id), lambda: kit.turn(session, "another"))


async def claim(kit: Kit) -> Case:
    session, other = await kit.open(), await kit.open()
    await kit.post(session, "head")
    return Case(kit.claim_op("worker"), lambda: kit.post(other, "due, but after this claim"))


async def clear_stuck(kit: Kit) -> Case:
    session, claimed = await held(kit)
    await kit.commit(claimed, None, outcome=Outcome.STOPPED, stuck="worker")
    return Case(ClearStuck(claimed.lease.mailbox, "worker"), lambda: kit.turn(session, "another"))


async def commit_turn(kit: Kit) -> Case:
    parent = await kit.open()
    child = await kit.child(parent)
    claimed = await kit.claim(child)

    async def between() -> None:
        await kit.commit(await kit.claim(parent))
        await kit.turn(child, "another")

    return Case(kit.commit_op(claimed, "answer", tail="er", block=1), between)


async def delete_session(kit: Kit) -> Case:
    parent = await kit.open()
    child = await kit.child(parent)
    return Case(DeleteSession(kit.scope, child.id, kit.ann), lambda: kit.open(path="/unrelated"))


async def emit_tokens(kit: Kit) -> Case:
    _, claimed = await held(kit)
    return Case(
        EmitTokens(claimed.lease, 1, "text"),
        lambda: kit.store.apply(EmitTokens(claimed.lease, 2, "more")),
        lambda _: ANY,
    )


async def accept(kit: Kit) -> Case:
    session = await kit.open()
    op = enqueue(kit.scope, session_address(session.id), kit.ann, "once")
    return Case(op, lambda: kit.post(session, "another"), lambda first: attrs.evolve(first, created=False))


async def fail(kit: Kit) -> Case:
    session, asker = await kit.open(), await kit.open()
    await kit.post(session, sender=kit.as_sender(asker), kind=Kind.AGENT_MESSAGE)
    claimed = await kit.claim(session)
    return Case(Fail(claimed.lease, Reason.UNDECODABLE, "not readable"), lambda: kit.turn(session, "another"))


async def hand_back(kit: Kit) -> Case:
    session, claimed = await held(kit)
    return Case(HandBack(claimed.lease, "shutdown"), lambda: kit.claim(session, "another"))


async def opening(kit: Kit) -> Case:
    parent = await kit.open()
    op = open_session(kit.scope, "echo", parent=parent.id, path="/child", must_create=True)

    async def between() -> None:
        for _ in range(3):
            await kit.store.apply(open_session(kit.scope, "echo", parent=parent.id))

    return Case(op, between, lambda first: attrs.evolve(first, created=False))


async def prune_events(kit: Kit) -> Case:
    session = await kit.open()
    await kit.turn(session)
    return Case(PruneEvents(-1, 100), lambda: kit.post(session, "kept anyway"), lambda _: 0)


async def prune_messages(kit: Kit) -> Case:
    session = await kit.open()
    await kit.turn(session)
    nothing = Pruned(0, 0, more=False)
    op = PruneMessages(kit.scope, -1, HOUR)
    return Case(op, lambda: kit.post(session, "open, and so untouched"), lambda _: nothing)


async def prune_processes(kit: Kit) -> Case:
    await kit.claims("gone")
    return Case(PruneProcesses(left="gone"), lambda: kit.claims("another"), lambda _: 0)


async def record_step(kit: Kit) -> Case:
    session, claimed = await held(kit)
    other = await kit.open()
    op = RecordStep(
        claimed.lease,
        "call:0",
        StepKind.CALL,
        0,
        done=True,
        data={"tool": "agent"},
        result={"ok": [1, None]},
        sends=(enqueue(kit.scope, session_address(other.id), kit.as_sender(session), "sent", kind=Kind.AGENT_MESSAGE),),
        opens=(open_session(kit.scope, "echo", parent=session.id),),
        events=(StepEvent("tool.call", {"n": 0}), StepEvent("tool.result", {"n": 0})),
    )
    later = RecordStep(claimed.lease, "call:1", StepKind.CALL, 1, done=False, data={})
    return Case(op, lambda: kit.store.apply(later))


async def renew(kit: Kit) -> Case:
    session, claimed = await held(kit)
    op = Renew((claimed.lease, attrs.evolve(claimed.lease, epoch=99)), 60)
    return Case(op, lambda: kit.post(session), lambda first: attrs.evolve(first, until=ANY))


async def request_stop(kit: Kit) -> Case:
    session, _ = await held(kit)
    await kit.post(session, "queued")
    op = RequestStop(kit.scope, session_address(session.id), 5, drop_queued=True)
    other = await kit.open()
    return Case(op, lambda: kit.post(other), lambda first: attrs.evolve(first, dropped=0))


async def requeue(kit: Kit) -> Case:
    session = await kit.open()
    receipt = await kit.turn(session)
    return Case(
        Requeue(kit.scope, receipt.id),
        lambda: kit.post(session, "another"),
        lambda first: attrs.evolve(first, created=False),
    )


async def retry(kit: Kit) -> Case:
    _, claimed = await held(kit)
    other = await kit.open()
    return Case(Retry(claimed.lease, "boom", HOUR), lambda: kit.turn(other))


async def update_session(kit: Kit) -> Case:
    session = await kit.open(title="Old", path="/old")
    return Case(UpdateSession(kit.scope, session.id, "New", "/new"), lambda: kit.open(path="/old/below"))


async def setting_policy(kit: Kit) -> Case:
    await kit.store.apply(set_policy(kit.scope, "/ops", confirm=True))
    op = set_policy(kit.scope, "/ops", edge=Edge.HANDOFF_ONLY)
    return Case(op, lambda: kit.store.apply(set_policy(Scope("other", "default"), "/ops", handoff=False)))


async def navigate(kit: Kit) -> Case:
    session, other = await kit.open(path="/desk"), await kit.open()
    op = Navigate(kit.scope, "member:ann", "tab-1", session.id, (other.id,))
    return Case(op, kit.open, lambda first: attrs.evolve(first, at=ANY))


async def void_leases(kit: Kit) -> Case:
    await held(kit)
    other = await kit.open()
    return Case(VoidLeases(), lambda: kit.post(other), lambda _: 0)


async def add_member(kit: Kit) -> Case:
    return Case(AddMember(kit.scope, "bea"), lambda: kit.store.apply(AddMember(Scope("other", "default"), "bea")))


async def suspend_member(kit: Kit) -> Case:
    await kit.store.apply(AddMember(kit.scope, "bea"))
    await kit.store.apply(AddMember(kit.scope, "cem"))
    return Case(SuspendMember(kit.scope.tenant, "bea"), lambda: kit.store.apply(SuspendMember(kit.scope.tenant, "cem")))


async def issuing_token(kit: Kit) -> Case:
    await kit.store.apply(AddMember(kit.scope, "bea"))
    op = issue_token(kit.scope, digest(new_secret()), member="bea", project=None, label="laptop")
    return Case(op, lambda: kit.store.apply(SuspendMember(kit.scope.tenant, "bea")))


async def revoke_credential(kit: Kit) -> Case:
    made, other = [
        await kit.store.apply(issue_token(kit.scope, digest(new_secret()), member=None, project=None, label=""))
        for _ in range(2)
    ]
    op = RevokeCredential(kit.scope.tenant, made.id)
    return Case(op, lambda: kit.store.apply(RevokeCredential(kit.scope.tenant, other.id)))


async def note_use(kit: Kit) -> Case:
    op = issue_token(kit.scope, digest(new_secret()), member=None, project=None, label="")
    made = await kit.store.apply(op)
    return Case(NoteUse(made.id, HOUR), lambda: kit.open())


async def issue_ticket(kit: Kit) -> Case:
    op = IssueTicket(kit.scope, digest(new_secret()), Purpose.WEBSOCKET, Grant(Who.OPERATOR), HOUR)
    return Case(op, lambda: kit.store.apply(RedeemTicket(op.digest, op.purpose, "use_1")))


async def redeem_ticket(kit: Kit) -> Case:
    ticket, cookie = digest(new_secret()), digest(new_secret())
    await kit.store.apply(IssueTicket(kit.scope, ticket, Purpose.CONSOLE, Grant(Who.OPERATOR), HOUR))
    op = RedeemTicket(ticket, Purpose.CONSOLE, new_id("cok"), cookie, HOUR)

    async def between() -> None:
        with pytest.raises(Unauthorized):
            await kit.store.apply(attrs.evolve(op, by=new_id("cok"), cookie=digest(new_secret())))

    return Case(op, between)


CASES: dict[type[Op[Any]], Callable[[Kit], Awaitable[Case]]] = {
    Absorb: absorb,
    AddMember: add_member,
    AnswerApproval: answer_approval,
    Cancel: cancel,
    Claim: claim,
    ClearStuck: clear_stuck,
    CommitTurn: commit_turn,
    DeleteSession: delete_session,
    EmitTokens: emit_tokens,
    Enqueue: accept,
    ExpireApproval: expire_approval,
    Fail: fail,
    HandBack: hand_back,
    IssueTicket: issue_ticket,
    IssueToken: issuing_token,
    Navigate: navigate,
    NoteUse: note_use,
    OpenSession: opening,
    PruneEvents: prune_events,
    PruneMessages: prune_messages,
    PruneProcesses: prune_processes,
    RecordStep: record_step,
    RedeemTicket: redeem_ticket,
    Renew: renew,
    RequestApproval: request_approval,
    RequestStop: request_stop,
    Requeue: requeue,
    Retry: retry,
    RevokeCredential: revoke_credential,
    SetPolicy: setting_policy,
    SuspendMember: suspend_member,
    UpdateSession: update_session,
    VoidLeases: void_leases,
}
NAMED: list[Any] = [getattr(ops, name) for name in ops.__all__]
OPS: list[type[Op[Any]]] = [op for op in NAMED if isinstance(op, type) and issubclass(op, Op) and op is not Op]


@pytest.mark.spec("INB-13")
@pytest.mark.parametrize("op", OPS, ids=[op.__name__ for op in OPS])
async def test_an_op_applied_twice_does_what_it_did_once(kit: Kit, op: type[Op[Any]]) -> None:
    assert op.repeat.strip(), "an op without a repeat rule"
    case = await CASES[op](kit)
    assert type(case.op) is op
    bystander = await kit.open()
    gone = (case.op.id,) if isinstance(case.op, DeleteSession) else ()

    # Twice in one batch, as a client that is too impatient sends it; then once more after others.
    first, twin = await kit.together(case.op, case.op)
    assert twin == case.answer(first) or first == case.answer(twin)
    if twin != case.answer(first):
        first = twin
    await case.between()
    await kit.post(bystander, "others go on", kind=Kind.NOTICE)
    before = await kit.snapshot(gone=gone)
    assert await kit.store.apply(case.op) == case.answer(first)
    after = await kit.snapshot(gone=gone)
    assert (_without_lease_ends(after) == _without_lease_ends(before)) if op is Renew else (after == before)


def _without_lease_ends(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A renewal moves the end of its leases, and nothing else."""
    kept: dict[str, Any] = {}
    for key, value in snapshot.items():
        if key.startswith("Scope"):
            sessions, messages = value
            value = sessions, [attrs.evolve(message, lease_until=None) for message in messages]
        kept[key] = value
    return kept
