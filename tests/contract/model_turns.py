"""What a turn writes while it runs, and its ends, as the model does them. All of it is fenced; an end is remembered by its epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable

from callboard.storage.model.errors import CallboardError, IllegalMove, LeaseLost
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.model.turns import Lease, Step, StepKind
from callboard.storage.ops import Absorb, CommitTurn, EmitTokens, Fail, HandBack, RecordStep, Retry
from callboard.storage.ops.deliveries import End, Ended
from callboard.tests.contract.model_leases import box_of
from callboard.tests.contract.model_outside import open_session
from callboard.tests.contract.model_state import Box, Msg, State

CHILD_ENDS = {Outcome.STOPPED: ChildState.STOPPED}
Later = list[tuple[Box, ChildState, str | None]]
"""Children that have ended with their turn, whose parents are told when the commits of the batch are done."""


def absorb(state: State, op: Absorb, answer: object) -> Step:
    box, head = _held(state, op.lease)
    known = state.steps.get((head.key, op.key))
    if known is not None:
        return known
    assert isinstance(answer, Step), f"posts were not taken in: {answer!r}"
    taken = [msg for msg in box.messages if msg.status is Status.PENDING and msg.steers][: op.limit]
    found = [state.found(one["id"], one["message_id"]) for one in answer.result]
    assert found == taken, "what steers is taken in its order"
    for msg, one in zip(taken, answer.result, strict=True):
        msg.status, msg.absorbed_by = Status.PROCESSING, head.key
        state.rows[one["row"]] = msg.key
    state.steps[head.key, op.key] = answer
    return Step(op.key, StepKind.STEER, op.ordinal, True, {}, answer.result)


def emit_tokens(state: State, op: EmitTokens, answer: int) -> int:
    box, head = _held(state, op.lease)
    if op.block > box.block:
        box.block = op.block
        box.event("turn.token", head.key, text=op.text, attempt=op.lease.attempt)
    return box.last_event


def record_step(state: State, op: RecordStep, answer: Step) -> Step:
    box, head = _held(state, op.lease)
    known = state.steps.get((head.key, op.key))
    if known is not None and (known.done or (not op.done and known.data == op.data)):
        return known
    before = copy.deepcopy(vars(state))
    try:
        for child in op.opens:
            open_session(state, child, None)
        for send in op.sends:
            state.accept(send)
    except CallboardError:
        vars(state).update(before)
        raise
    step = Step(op.key, op.kind, op.ordinal, op.done, op.data, op.result)
    state.steps[head.key, op.key] = step
    for event in op.events:
        box.event(event.kind, head.key, attempt=op.lease.attempt, **event.data)
    return step


def commit_turn(state: State, op: CommitTurn, later: Later) -> Ended:
    held = _fenced(state, op.lease)
    if held is None:
        head = state.messages[state.rows[op.lease.head]]
        if head.ended is not None and head.epoch == op.lease.epoch:
            return head.ended
        raise LeaseLost("lost")
    box, head = held
    consumed = [state.messages[state.rows[row]] for row in op.consumed]
    if head not in consumed or len(set(op.consumed)) != len(op.consumed):
        raise IllegalMove("consumed")
    # What was cancelled while its turn waited to run again stays so; anything else that is not of this turn can't be consumed.
    if any(msg.box is not box or (msg.status is not Status.PROCESSING and msg.ended is not None) for msg in consumed):
        raise IllegalMove("consumed")
    if any(msg.status is Status.PENDING for msg in consumed):
        raise IllegalMove("consumed")
    consumed = [msg for msg in consumed if msg.status is Status.PROCESSING]
    for msg in consumed:
        msg.status, msg.outcome = Status.DELIVERED, op.outcome
        msg.turn, msg.epoch = head.key, op.lease.epoch
    state.put_back(box, keep=False)
    seq = None
    if op.answer:
        box.entries.append(("assistant", op.answer, head.key))
        seq = len(box.entries)
    if op.tail and op.block > box.block:
        box.event("turn.token", head.key, text=op.tail, attempt=op.lease.attempt)
    kind = "turn.stopped" if op.outcome is Outcome.STOPPED else "turn.completed"
    box.event(kind, head.key, outcome=op.outcome, attempt=op.lease.attempt, seq=seq)
    ended = Ended(End.COMMITTED, Status.DELIVERED, state.release(box), seq)
    for msg in consumed:
        msg.ended = ended
    later.append((box, CHILD_ENDS.get(op.outcome, ChildState.COMPLETED), op.answer))
    return ended


def retry(state: State, op: Retry, answer: Ended) -> Ended:
    def end(box: Box, head: Msg) -> Ended:
        head.attempts += 1
        if head.attempts >= head.op.max_attempts:
            return _fail_held(state, box, head, Reason.RETRIES_USED)
        return _return(state, box, head, End.RETRIED, op.delay)

    return _once(state, op.lease, end)


def fail(state: State, op: Fail, answer: Ended) -> Ended:
    return _once(state, op.lease, lambda box, head: _fail_held(state, box, head, op.reason))


def hand_back(state: State, op: HandBack, answer: Ended) -> Ended:
    return _once(state, op.lease, lambda box, head: _return(state, box, head, End.HANDED_BACK, op.delay))


def _once(state: State, lease: Lease, end: Callable[[Box, Msg], Ended]) -> Ended:
    """What this attempt's end without a commit does, or did the first time."""
    held = _fenced(state, lease)
    if held is None:
        known = box_of(state, lease).ends.get(lease.epoch)
        if known is None:
            raise LeaseLost("lost")
        return known
    ended = held[0].ends[lease.epoch] = end(*held)
    return ended


def _return(state: State, box: Box, head: Msg, end: End, delay: float) -> Ended:
    state.put_back(box, keep=True)
    head.available = state.now + delay
    box.event("attempt.relinquished", head.key, attempt=head.claims, cause=end)
    return Ended(end, Status.PENDING, state.release(box, keep_stop=True))


def _fail_held(state: State, box: Box, head: Msg, reason: Reason) -> Ended:
    head.status, head.reason = Status.FAILED, reason
    state.put_back(box, keep=False)
    box.event("turn.failed", head.key, attempt=head.claims, reason=reason)
    ended = Ended(End.FAILED, Status.FAILED, state.release(box))
    state.end_child(box, ChildState.FAILED, f"The subagent failed: {reason}.")
    state.tell(head, reason)
    return ended


def _fenced(state: State, lease: Lease) -> tuple[Box, Msg] | None:
    """The mailbox and head of a lease that is held."""
    box = box_of(state, lease)
    if box.epoch != lease.epoch or box.holder is None or box.head is None:
        return None
    return (box, box.head) if box.head is state.messages[state.rows[lease.head]] else None


def _held(state: State, lease: Lease) -> tuple[Box, Msg]:
    found = _fenced(state, lease)
    if found is None:
        raise LeaseLost("lost")
    return found
