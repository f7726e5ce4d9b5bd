"""What is done to sessions and messages from outside a turn, as the model does it."""

from __future__ import annotations

from callboard.storage.model.errors import IllegalMove, Inactive, NotFound, TooManyChildren, UnknownTarget
from callboard.storage.model.limits import CHILDREN_PER_PARENT
from callboard.storage.model.messages import Kind, Receipt, digest
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import Reason, Status
from callboard.storage.model.turns import StopRequest
from callboard.storage.ops import (
    Cancel,
    DeleteSession,
    Enqueue,
    OpenSession,
    PruneEvents,
    PruneMessages,
    RequestStop,
    Requeue,
)
from callboard.storage.ops.sessions import Opened
from callboard.storage.ops.upkeep import Pruned, Stopping
from callboard.tests.contract.model_state import Box, Made, Msg, State

KEPT = {"message.created", "turn.completed", "turn.failed", "turn.stopped"}


def accept(state: State, op: Enqueue, answer: Receipt) -> Receipt:
    return state.accept(op)


def _message(state: State, id: str) -> Msg:
    known = [state.messages[key] for key in state.messages if state.ids.get(key, key) == id]
    if not known:
        raise NotFound("unknown")
    return known[0]


def cancel(state: State, op: Cancel, answer: None) -> None:
    msg = _message(state, op.id)
    if (msg.status, msg.reason) == (Status.FAILED, Reason.CANCELLED):
        return
    if msg.status is not Status.PENDING:
        raise IllegalMove("status")
    box = msg.box
    state.fail(msg, Reason.CANCELLED)
    if msg.claims:
        box.stop = box.stop if box.head is not None else None
        for other in box.messages:
            if other.open and other.absorbed_by == msg.key:
                other.absorbed_by = None
    state.settle(box)
    state.tell(msg, Reason.CANCELLED)
    if msg.seq == 1:
        state.end_child(box, ChildState.FAILED, None)


def requeue(state: State, op: Requeue, answer: Receipt) -> Receipt:
    old = _message(state, op.id)
    if old.open or old.pruned:
        raise IllegalMove("status")
    was = old.op
    exempt = was.kind in {Kind.NOTICE, Kind.SUBAGENT_RESULT}
    new = Enqueue(
        scope=state.scope, recipient=was.recipient, sender=was.sender, kind=was.kind, content=was.content,
        payload=was.payload, id=op.new_id, message_id=None, digest=digest(was.recipient, was.kind, was.content, was.payload),
        chain=op.new_id, max_attempts=was.max_attempts, depth_limit=None if exempt else op.depth_limit,
    )  # fmt: skip
    return state.accept(new)


def request_stop(state: State, op: RequestStop, answer: Stopping) -> Stopping:
    box = state.boxes.get(op.recipient.removeprefix("session:"))
    if box is None or box.deleted:
        raise UnknownTarget("unknown")
    if op.key is not None and box.stop_key is not None and box.stop_key[0] == op.key:
        return Stopping(box.stop_key[1], 0)
    if box.head is None:
        raise Inactive("idle")
    turn = "turn_" + state.ids.get(box.head.key, box.head.key).removeprefix("msg_")
    if op.key is not None:
        box.stop_key = op.key, turn
    box.stop = box.stop or StopRequest(state.now, op.grace)
    dropped = [msg for msg in box.messages if msg.status is Status.PENDING] if op.drop_queued else []
    for msg in dropped:
        state.fail(msg, Reason.DROPPED)
    if dropped:
        state.settle(box)
    for msg in dropped:
        state.tell(msg, Reason.DROPPED)
    return Stopping(turn, len(dropped))


def delete_session(state: State, op: DeleteSession, answer: None) -> None:
    box = state.boxes.get(op.id)
    if box is None:
        raise UnknownTarget("unknown")
    if box.deleted:
        return
    box.deleted = True
    running = box.child is ChildState.RUNNING
    box.epoch += 1
    box.due = box.holder = box.nonce = box.head = box.stop = box.stop_key = None
    failed = [msg for msg in box.messages if msg.open]
    for msg in failed:
        state.fail(msg, Reason.TARGET_DELETED)
    for msg in failed:
        state.tell(msg, Reason.TARGET_DELETED)
    if running:
        state.end_child(box, ChildState.DELETED, None)


def open_session(state: State, op: OpenSession, answer: Opened | None) -> Made:
    known = state.boxes.get(op.id)
    if known is not None:
        if known.deleted:
            raise UnknownTarget("deleted")
        return Made(created=False)
    if op.parent is not None:
        parent = state.boxes.get(op.parent)
        if parent is None or parent.deleted:
            raise UnknownTarget("parent")
        running = [box for box in state.boxes.values() if box.parent == op.parent and box.child is ChildState.RUNNING]
        if len(running) >= CHILDREN_PER_PARENT:
            raise TooManyChildren("many")
    child = None if op.parent is None else ChildState.RUNNING
    state.boxes[op.id] = Box(op.id, op.agent, op.parent, child, len(state.boxes))
    return Made(created=True)


def prune_events(state: State, op: PruneEvents, answer: int) -> int:
    gone = 0
    for box in state.boxes.values():
        old = [event for event in box.events if event[1] not in KEPT]
        gone += len(old)
        box.floor = max((box.floor, *(event[0] for event in old)))
        box.events = [event for event in box.events if event[1] in KEPT]
    return gone


def prune_messages(state: State, op: PruneMessages, answer: Pruned) -> Pruned:
    final = [msg for msg in state.messages.values() if not msg.open and not msg.pruned]
    for msg in final:
        msg.pruned = True
        for place in [place for place in state.steps if place[0] == msg.key]:
            del state.steps[place]
    return Pruned(len(final), 0, more=False)
