"""Claims, renewals and voiding, as the model does them. A claim is given what the store chose: the rows that it named are learned from it."""

from __future__ import annotations

from typing import cast

from callboard.storage.model.limits import UNKNOWN_AGENT_DELAY_SECONDS
from callboard.storage.model.states import Status
from callboard.storage.model.turns import Claimed, Lease, StopRequest
from callboard.storage.ops import Claim, Renew, VoidLeases
from callboard.storage.ops.leases import Claims, Renewed
from callboard.tests.contract.model_state import Box, Msg, State


def claim(state: State, op: Claim, answer: object) -> Claims:
    assert isinstance(answer, Claims), f"a claim was refused: {answer!r}"
    rows = {claimed.lease.recipient: claimed for claimed in answer.claimed}
    if state.nonces.get(op.holder) == op.nonce:
        held = [box for box in state.boxes.values() if (box.holder, box.nonce) == (op.holder, op.nonce)]
        assert set(rows) == {box.address for box in held}, "a repeated claim gives what it still holds"
        return Claims(answer.claimed, _next_due(state, answer))
    state.nonces[op.holder] = op.nonce
    excluded = {state.mailboxes[row] for row in op.exclude}
    most = op.limit + len(op.exclude)
    due = sorted(
        (box for box in state.boxes.values() if box.due is not None and box.due <= state.now),
        key=lambda box: (box.due, box.order),
    )[:most]
    taken: list[Box] = []
    for box in due:
        if box.session in excluded or len(taken) >= op.limit:
            continue
        head = box.first()
        assert head is not None, "a mailbox is due and has nothing that wakes it"
        if box.agent in op.agents:
            _take(state, op, box, head)
            taken.append(box)
        else:
            _put_off(state, box, head)
    assert set(rows) == {box.address for box in taken}, "the store claimed others than are due"
    for box in taken:
        _compare_claim(state, box, rows[box.address])
    return Claims(answer.claimed, state.now if len(due) == most else _next_due(state, answer))


def _next_due(state: State, answer: Claims) -> float | None:
    dues = [box.due for box in state.boxes.values() if box.due is not None]
    if answer.next_due is not None and answer.next_due < state.now + 1.0 and min(dues) <= state.now:
        return answer.next_due  # what is due and was left may be worth another look soon
    return min((due for due in dues if due > state.now), default=None)


def _take(state: State, op: Claim, box: Box, head: Msg) -> None:
    lost = head.status is Status.PROCESSING
    if box.head is not None and box.head is not head:
        box.stop = None
    if lost:
        head.takeovers += 1
        box.event("attempt.relinquished", head.key, attempt=head.claims, cause="takeover")
    head.claims += 1
    if head.claims == 1:
        box.event("turn.started", head.key, attempt=1)
    box.event("attempt.claimed", head.key, attempt=head.claims, holder=op.holder)
    for msg in box.messages:
        if (
            msg is head
            or (msg.open and msg.absorbed_by == head.key)
            or (msg.open and not msg.wakes and msg.place < head.place)
        ):
            msg.status = Status.PROCESSING
    box.epoch += 1
    box.holder, box.nonce, box.head, box.block = op.holder, op.nonce, head, 0
    box.due = state.now + op.lease_seconds


def _put_off(state: State, box: Box, head: Msg) -> None:
    later = state.now + UNKNOWN_AGENT_DELAY_SECONDS
    if head.status is Status.PROCESSING:
        state.put_back(box, keep=True)
        head.takeovers += 1
        box.event("attempt.relinquished", head.key, attempt=head.claims, cause="takeover")
        box.nonce = box.head = None
    head.available = later
    box.due, box.holder = later, None


def _compare_claim(state: State, box: Box, claimed: Claimed) -> None:
    head = cast("Msg", box.head)
    assert state.found(claimed.head.id, claimed.head.message_id) is head, "a claim takes the oldest waking message"
    carried = [state.found(one.id, one.message_id) for one in claimed.carried]
    assert carried == [msg for msg in box.of_turn() if msg is not head], "a claim takes along what belongs to the turn"
    for one in (claimed.head, *claimed.carried):
        state.rows[one.row] = state.found(one.id, one.message_id).key
    state.mailboxes[claimed.lease.mailbox] = box.session
    found = (claimed.lease.epoch, claimed.lease.attempt, claimed.attempts, claimed.takeovers)
    assert found == (box.epoch, head.claims, head.attempts, head.takeovers), "what a claim hands over"
    assert (claimed.stop is None) == (box.stop is None), "a claim hands over the stop of its turn"


def renew(state: State, op: Renew, answer: Renewed) -> Renewed:
    until, lost, stops = state.now + op.lease_seconds, set[int](), dict[int, StopRequest]()
    for lease in op.leases:
        box = box_of(state, lease)
        if box.epoch != lease.epoch or box.holder is None:
            lost.add(lease.mailbox)
            continue
        box.due = max(box.due or until, until)
        if box.stop is not None:
            stops[lease.mailbox] = box.stop
    return Renewed(frozenset(lost), stops, until)


def void_leases(state: State, op: VoidLeases, answer: int) -> int:
    held = [box for box in state.boxes.values() if box.holder is not None]
    for box in held:
        box.due, box.holder = state.now, None
    return len(held)


def box_of(state: State, lease: Lease) -> Box:
    return state.boxes[lease.recipient.removeprefix("session:")]
