"""Random lives: whatever workers, operators and senders do in whatever order, every accepted message ends once and nothing is left asleep."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import IllegalMove, Inactive, LeaseLost, TooManyChildren, UnknownTarget
from callboard.storage.model.messages import Kind, MessageView
from callboard.storage.model.sessions import ChildState
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import (
    Absorb,
    Cancel,
    DeleteSession,
    EmitTokens,
    Fail,
    HandBack,
    Op,
    RequestStop,
    Requeue,
    Retry,
    VoidLeases,
)

if TYPE_CHECKING:
    from conftest import Kit

    from callboard.storage.model.sessions import Session
    from callboard.storage.model.turns import Claimed

EXPECTED = (IllegalMove, Inactive, LeaseLost, TooManyChildren, UnknownTarget)


class Life:
    """A store and what a bystander knows of it: who holds what, and which claims have been superseded."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self.kit = kit
        self.chance = random.Random(seed)
        self.sessions: list[Session] = []
        self.every: list[Session] = []
        self.sent: list[str] = []
        self.claims: list[Claimed] = []
        self.live: dict[str, Claimed] = {}
        self.children: dict[str, str] = {}
        self.step = 0

    async def open(self) -> None:
        session = await self.kit.open()
        self.sessions.append(session)
        self.every.append(session)

    async def post(self) -> None:
        target, source = self.chance.choice(self.sessions), self.chance.choice(self.sessions)
        sender = self.kit.ann if self.chance.random() < 0.5 or source is target else self.kit.as_sender(source)
        kind = self.chance.choice([Kind.MEMBER_MESSAGE, Kind.AGENT_MESSAGE, Kind.NOTICE, Kind.SIGNAL])
        receipt = await self.kit.post(target, f"{self.step}", sender=sender, kind=kind, max_attempts=3)
        self.sent.append(receipt.id)

    async def child(self) -> None:
        parent = self.chance.choice(self.sessions)
        child = await self.kit.child(parent)
        self.children[child.id] = parent.id
        self.sessions.append(child)
        self.every.append(child)

    async def claim(self) -> None:
        seconds = self.chance.choice([30, 30, -1])
        for claimed in await self.kit.claims(
            f"worker-{self.step % 3}", limit=self.chance.randrange(1, 4), seconds=seconds
        ):
            self.claims.append(claimed)
            self.live[claimed.session] = claimed

    async def write(self) -> None:
        """Something that a turn does. Whoever still holds its lease must be able to; whoever lost it must not."""
        claimed = self.chance.choice(self.claims[-6:])
        end = self.chance.choice(
            ["commit", "commit", "stopped", "retry", "hand back", "fail", "absorb", "absorb", "tokens"]
        )
        held = self.live.get(claimed.session) is claimed
        ops: dict[str, Op[Any]] = {
            "commit": await self.commit(claimed),
            "stopped": await self.commit(claimed, Outcome.STOPPED),
            "retry": Retry(claimed.lease, "boom", 0),
            "hand back": HandBack(claimed.lease, "shutdown"),
            "fail": Fail(claimed.lease, Reason.UNDECODABLE, "not readable"),
            "absorb": Absorb(claimed.lease, f"steer:{self.step}", self.step, limit=2),
            "tokens": EmitTokens(claimed.lease, self.step, "x"),
        }
        try:
            await self.kit.store.apply(ops[end])
        except LeaseLost:
            assert not held, f"{end} was refused to the holder"
            return
        if self.chance.random() < 0.3:
            await self.kit.store.apply(ops[end])
        if end not in ("absorb", "tokens") and held:
            del self.live[claimed.session]

    async def commit(self, claimed: Claimed, outcome: Outcome = Outcome.ANSWERED) -> Op[Any]:
        """As a session does it: what it was given, and what its step log says that it took in."""
        steps = await self.kit.store.reads.steps(self.kit.scope, claimed.head.id)
        absorbed = [message["row"] for step in steps for message in step.result or ()]
        rows = dict.fromkeys([claimed.head.row, *(message.row for message in claimed.carried), *absorbed])
        return self.kit.commit_op(claimed, f"answer to {claimed.head.id}", outcome=outcome, consumed=tuple(rows))

    async def meddle(self) -> None:
        session = self.chance.choice(self.sessions)
        target = self.chance.choice(self.sent)
        op: Op[Any] = self.chance.choice(
            [
                Cancel(self.kit.scope, target),
                Cancel(self.kit.scope, target),
                Requeue(self.kit.scope, target),
                RequestStop(self.kit.scope, session_address(session.id)),
                RequestStop(self.kit.scope, session_address(session.id), drop_queued=True),
                VoidLeases(),
            ]
        )
        await self.kit.store.apply(op)
        if isinstance(op, VoidLeases):
            self.live.clear()

    async def delete(self) -> None:
        if len(self.sessions) > 2:
            session = self.sessions.pop(self.chance.randrange(len(self.sessions)))
            await self.kit.store.apply(DeleteSession(self.kit.scope, session.id, self.kit.ann))
            self.live.pop(session.id, None)

    async def run(self, steps: int) -> None:
        for _ in range(3):
            await self.open()
        await self.post()
        acts = (
            [self.post] * 6
            + [self.claim] * 5
            + [self.write] * 8
            + [self.meddle] * 2
            + [self.child, self.delete, self.open]
        )
        for self.step in range(1, steps):
            act = self.chance.choice(acts)
            if act != self.write or self.claims:
                try:
                    await act()
                except EXPECTED:
                    assert act not in (self.open, self.post, self.claim, self.delete)
        await self.kit.store.apply(VoidLeases())
        while claims := await self.kit.claims():
            for claimed in claims:
                await self.kit.store.apply(await self.commit(claimed))

    async def messages(self) -> list[MessageView]:
        found: list[MessageView] = []
        cursor = None
        while True:
            page = await self.kit.store.reads.inbox(self.kit.scope, limit=200, cursor=cursor)
            found += page.items
            cursor = page.next
            if cursor is None:
                return found


@pytest.mark.spec("INB-2", "INB-6", "INB-8", "EVT-2", "MSG-1", "SES-8")
@pytest.mark.parametrize("seed", range(5))
async def test_every_message_ends_once_and_nothing_stays_asleep(kit: Kit, seed: int) -> None:
    life = Life(kit, seed)
    await life.run(220)
    messages = await life.messages()
    ended: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for session in life.every:
        events = (await kit.store.reads.events(kit.scope, session.id, limit=2_000)).events
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        entries = await kit.store.reads.transcript(kit.scope, session.id, limit=2_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        ended.update(str(event.turn) for event in events if event.kind in ("turn.completed", "turn.stopped"))
        failed.update(event.data["message_id"] for event in events if event.kind == "turn.failed")
        answers = [entry.content for entry in entries if entry.role == "assistant"]
        assert len(answers) == len(set(answers))
    for view in messages:
        if view.status is Status.PENDING:
            assert view.kind == Kind.NOTICE, "a message that wakes was left asleep"
        assert view.status is not Status.PROCESSING
        assert failed[view.message_id] == (view.status is Status.FAILED)
        assert (view.outcome is not None) == (view.status is Status.DELIVERED)
    assert ended == Counter({view.turn_id for view in messages if view.status is Status.DELIVERED})
    living = {session.id for session in life.sessions}
    results = Counter(
        view.message_id for view in messages if view.kind == Kind.SUBAGENT_RESULT and not view.requeued_from
    )
    for child, parent in life.children.items():
        if child in living:
            assert (await kit.store.reads.session(kit.scope, child)).child_state is not ChildState.RUNNING
        assert results[f"subagent-result-{child}"] <= 1
        if parent in living:
            assert results[f"subagent-result-{child}"] == 1
    # The depth that limits a mailbox is what is really open in it.
    for session in life.sessions:
        waiting = sum(view.status is Status.PENDING for view in messages if view.session == session.id)
        assert (await kit.post(attrs.evolve(session), depth_limit=waiting + 1)).created
