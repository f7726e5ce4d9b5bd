"""What the pure model of a store holds: mailboxes and messages as plain values, and what every op does to them.

Here: state and the moves that several ops share (accepting, giving a lease back, failing, telling). Not here: the ops (`model`). There is
no SQL, no transaction and no batch in it: it says what must come out, in the simplest way that it can be said.

Messages that the store itself makes (notices, results of children) have ids that nobody can foretell: in the model their key is their
message id, and `ids` learns what the store called them.
"""

from __future__ import annotations

from typing import Any

import attrs

from callboard.storage.model.addresses import SYSTEM, Scope, Sender, session_address
from callboard.storage.model.errors import LimitReached, MailboxFull, MessageConflict, UnknownTarget
from callboard.storage.model.messages import WAKE, Kind, Receipt, Wake, role_of
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import OPEN, Outcome, Reason, Status
from callboard.storage.model.turns import Step, StopRequest
from callboard.storage.ops import Enqueue
from callboard.storage.ops.deliveries import Ended
from callboard.storage.ops.inbox import enqueue as build


@attrs.frozen
class Made:
    """What opening a session answers: the store says more than the model can know."""

    created: bool


@attrs.define(eq=False)
class Msg:
    """A message. `place` is its order of acceptance in the store; `turn` is the key of the message whose turn has it, or had it."""

    key: str
    op: Enqueue
    box: Box
    place: int
    seq: int
    at: float
    available: float
    status: Status = Status.PENDING
    outcome: Outcome | None = None
    reason: Reason | None = None
    attempts: int = 0
    takeovers: int = 0
    claims: int = 0
    absorbed_by: str | None = None
    turn: str | None = None
    epoch: int | None = None
    ended: Ended | None = None
    pruned: bool = False

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def wakes(self) -> bool:
        return WAKE[self.op.kind] is not Wake.NEXT

    @property
    def steers(self) -> bool:
        return WAKE[self.op.kind] is Wake.STEER


@attrs.define(eq=False)
class Box:
    """A session with its mailbox. Of an event: number, kind, key of its turn's head, and what its data must hold."""

    session: str
    agent: str
    parent: str | None
    child: ChildState | None
    order: int
    messages: list[Msg] = attrs.field(factory=list[Msg])
    entries: list[tuple[str, str, str]] = attrs.field(factory=list[tuple[str, str, str]])
    events: list[tuple[int, str, str | None, dict[str, Any]]] = attrs.field(
        factory=list[tuple[int, str, str | None, dict[str, Any]]]
    )
    last_event: int = 0
    floor: int = 0
    due: float | None = None
    epoch: int = 0
    holder: str | None = None
    nonce: str | None = None
    head: Msg | None = None
    block: int = 0
    stop: StopRequest | None = None
    stop_key: tuple[str, str] | None = None
    ends: dict[int, Ended] = attrs.field(factory=dict[int, Ended])
    deleted: bool = False

    @property
    def address(self) -> str:
        return session_address(self.session)

    def first(self) -> Msg | None:
        """The oldest open waking message."""
        return next((msg for msg in self.messages if msg.open and msg.wakes), None)

    def of_turn(self) -> list[Msg]:
        return [msg for msg in self.messages if msg.status is Status.PROCESSING]

    def event(self, kind: str, turn: str | None, /, **data: Any) -> None:
        self.last_event += 1
        self.events.append((self.last_event, kind, turn, data))


class State:
    """All of a store in one scope, at store time `now`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.now = 0.0
        self.boxes: dict[str, Box] = {}
        self.messages: dict[str, Msg] = {}
        self.names: dict[tuple[str, str], Msg] = {}
        self.nonces: dict[str, str] = {}
        self.steps: dict[tuple[str, str], Step] = {}
        self.rows: dict[int, str] = {}
        self.mailboxes: dict[int, str] = {}
        self.ids: dict[str, str] = {}

    def found(self, id: str, message_id: str) -> Msg:
        """The message that the store calls so."""
        for key, known in self.ids.items():
            if known == id:
                return self.messages[key]
        msg = self.messages.get(id) or self.messages[message_id]
        self.ids[msg.key] = id
        return msg

    # -- accepting -----------------------------------------------------------------------------------------------------

    def accept(self, op: Enqueue, key: str | None = None) -> Receipt:
        """Accept a message, or know it again, or refuse it."""
        box = self.boxes.get(op.recipient.removeprefix("session:"))
        if box is None:
            raise UnknownTarget("unknown")
        named = None if op.message_id is None else self.names.get((op.message_id, op.sender.principal))
        known = named or self.messages.get(key or op.id)
        if known is not None:
            if known.box is not box or known.op.digest != op.digest:
                raise MessageConflict("taken")
            return self._receipt(known, created=False)
        self._check_limits(op, box)
        msg = Msg(key or op.id, op, box, len(self.messages), len(box.entries) + 1, self.now, self.now)
        self.messages[msg.key] = msg
        if op.message_id is not None:
            self.names[op.message_id, op.sender.principal] = msg
        box.messages.append(msg)
        box.entries.append((role_of(op.kind), op.content, msg.key))
        box.event("message.created", None, seq=msg.seq, kind=op.kind, content=op.content)
        if msg.wakes and box.due is None:
            box.due = self.now
        return self._receipt(msg, created=True)

    def _check_limits(self, op: Enqueue, box: Box) -> None:
        if box.deleted:
            raise UnknownTarget("deleted")
        if op.depth_limit is not None and sum(msg.open for msg in box.messages) >= op.depth_limit:
            raise MailboxFull("full")
        if op.pair_limit:
            lately = [
                msg
                for msg in box.messages
                if msg.op.sender.id == op.sender.id
                and msg.op.kind is Kind.AGENT_MESSAGE
                and msg.op.kind is op.kind
                and msg.at > self.now - 60.0
            ]
            if len(lately) >= op.pair_limit:
                raise LimitReached("pair")

    def _receipt(self, msg: Msg, *, created: bool) -> Receipt:
        name = msg.op.message_id or self.ids.get(msg.key, msg.key)
        return Receipt(self.ids.get(msg.key, msg.key), name, msg.box.session, created, msg.status, msg.seq)

    # -- what several ops do -------------------------------------------------------------------------------------------

    def release(self, box: Box, *, keep_stop: bool = False) -> float | None:
        """The lease is given back; when the mailbox is due."""
        first = box.first()
        box.holder = box.nonce = box.head = None
        box.stop = box.stop if keep_stop else None
        box.due = None if first is None else max(first.available, self.now)
        return box.due

    def settle(self, box: Box) -> None:
        """Messages have left a mailbox from outside a turn."""
        if box.holder is None:
            first = box.first()
            box.due = None if first is None else first.available

    def put_back(self, box: Box, *, keep: bool) -> None:
        """What a turn has taken and not consumed waits again, in its place. `keep`: the same turn will run again."""
        for msg in box.of_turn():
            msg.status = Status.PENDING
            if not keep:
                msg.absorbed_by = None

    def fail(self, msg: Msg, reason: Reason) -> None:
        """A message that no living turn holds fails."""
        msg.status, msg.reason, msg.absorbed_by = Status.FAILED, reason, None
        msg.box.event("turn.failed", msg.key, reason=reason, attempt=msg.claims)

    def tell(self, msg: Msg, reason: Reason) -> None:
        """The session that has sent a message hears that it has failed."""
        sender = self.boxes.get(msg.op.sender.id) if msg.op.sender.kind == "session" else None
        if sender is None or sender.deleted or msg.op.kind in {Kind.NOTICE, Kind.SUBAGENT_RESULT}:
            return
        text, name = f"Your message {msg.key} was not delivered: {reason}.", f"non-delivery-{msg.key}"
        payload = {"message": msg.key, "reason": reason}
        notice = build(
            self.scope,
            sender.address,
            SYSTEM,
            text,
            kind=Kind.NOTICE,
            message_id=name,
            payload=payload,
            depth_limit=None,
        )
        self.accept(notice, name)

    def end_child(self, box: Box, state: ChildState, answer: str | None) -> None:
        """A running child has ended: its parent hears of it, if it is there."""
        if box.child is not ChildState.RUNNING:
            return
        box.child = state
        parent = self.boxes.get(box.parent or "")
        if parent is None or parent.deleted:
            return
        text = answer or f"The subagent ended without an answer: {state}."
        name = f"subagent-result-{box.session}"
        result = build(
            self.scope, parent.address, Sender(box.session, "session", box.agent), text, kind=Kind.SUBAGENT_RESULT,
            message_id=name, payload={"child": box.session, "state": state}, depth_limit=None,
        )  # fmt: skip
        self.accept(result, name)
