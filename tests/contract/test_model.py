"""Programs of ops on a real store and on a pure model, compared after every batch: answers, states, order, deadlines, markers, events."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from copy import deepcopy
from typing import Any, cast

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from trio.testing import MockClock

from callboard.storage.commit import Failure
from callboard.storage.model.addresses import Scope
from callboard.storage.model.states import Status
from callboard.storage.ops import Claim, CommitTurn, Op, PruneEvents, PruneMessages
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.store import Store, open_store
from callboard.tests.contract.model import carry_out
from callboard.tests.contract.model_program import ANN, KNOWN, LONG, STRANGER, Batch, World
from callboard.tests.contract.model_state import Box, Made, Msg, State
from callboard.tests.contract.model_strategies import programs

Lent = Callable[[], AbstractContextManager[str]]
EXAMPLES = int(os.environ.get("CALLBOARD_MODEL_EXAMPLES", "100"))
"""Programs for each database; a few thousand for a night."""


@attrs.frozen
class Database:
    """How to get an empty store, given who lends databases of a server. `slack`: by how many seconds its time may differ from the
    model's, which asks for it before each batch; 0: its time stands still."""

    opening: Callable[[Lent], AbstractAsyncContextManager[Store]]
    slack: float


@asynccontextmanager
async def _in_memory(_: Lent) -> AsyncIterator[Store]:
    async with open_store("sqlite:///:memory:", executor="inline") as store:
        yield store


@asynccontextmanager
async def _on_a_server(lend: Lent) -> AsyncIterator[Store]:
    with lend() as url:
        async with open_store(url) as store:
            yield store


DATABASES = {"sqlite": Database(_in_memory, 0.0), "postgres": Database(_on_a_server, 20.0)}


@pytest.mark.spec("INB-2", "INB-6", "INB-8", "INB-13", "EVT-2", "MSG-1")
@pytest.mark.parametrize("database", DATABASES)
@given(program=programs)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_store_does_what_the_model_says(postgres: Lent, database: str, program: list[Batch]) -> None:
    chosen = DATABASES[database]
    clock = None if chosen.slack else MockClock()
    trio.run(_run, chosen, postgres, program, clock, clock=clock)


async def _run(database: Database, lend: Lent, program: list[Batch], clock: MockClock | None) -> None:
    async with database.opening(lend) as store:
        world = World(State(Scope()))
        match = Match(store, world, database.slack)
        await match.batch([open_session(Scope(), agent) for agent in (KNOWN, KNOWN, STRANGER)])
        for batch in program:
            if batch.wait and clock is not None:
                clock.jump(LONG + 1.0)
            ops = [op for op in (make(world) for make in batch.commands) if op is not None]
            ops = [op for op in ops for _ in range(2 if batch.twice else 1)]
            for _ in range(2 if batch.again else 1):
                for part in match.parts(ops):
                    await match.batch(part)
        await match.compare_history()


class Match:
    """A store and a model that are given the same."""

    def __init__(self, store: Store, world: World, slack: float) -> None:
        self._store = store
        self._world = world
        self._slack = slack + 1e-3

    def parts(self, ops: Sequence[Op[Any]]) -> list[list[Op[Any]]]:
        """`ops` in the order in which the commit queue puts them, one list for each transaction that the store makes of them."""
        if not self._store.shared:
            return [sorted(ops, key=lambda op: (isinstance(op, Claim), op.lane))]
        apart = [op for op in ops if isinstance(op, (Claim, PruneEvents, PruneMessages))]
        return [sorted((op for op in ops if op not in apart), key=lambda op: op.lane), *([op] for op in apart)]

    async def batch(self, ops: Sequence[Op[Any]]) -> None:
        """Apply `ops` in one transaction, and compare everything."""
        if not ops:
            return
        self._world.state.now = self._store.now()
        applied = await self._store._driver.apply(ops)
        answers = [item.error if isinstance(item, Failure) else item for item in applied.outcomes]
        # A store may write turns that commit side by side one after the other, or all of them before what follows from them.
        ways = (True, False) if sum(isinstance(op, CommitTurn) for op in ops) > 1 else (True,)
        before = self._world.state
        for together in ways:
            self._world.state = deepcopy(before)
            try:
                expected = carry_out(self._world.state, ops, answers, together=together)
                for op, wanted, answer in zip(ops, expected, answers, strict=True):
                    assert self._same(wanted, answer), f"{op} answered {answer!r}, not {wanted!r}"
                await self.compare()
                break
            except AssertionError:
                if together is ways[-1]:
                    raise
        self._note(answers)

    def _note(self, answers: Sequence[Any]) -> None:
        world = self._world
        for box in world.state.boxes.values():
            if box.session not in world.sessions:
                world.sessions.append(box.session)
        for answer in answers:
            for claimed in getattr(answer, "claimed", ()):
                if claimed.lease not in world.leases:
                    world.leases.append(claimed.lease)

    def _same(self, wanted: Any, answer: Any) -> bool:
        """Whether an answer is what is wanted; times may differ by the slack."""
        if isinstance(wanted, Exception):
            return type(wanted) is type(answer)
        if isinstance(wanted, Made):
            return answer.created is wanted.created
        if isinstance(wanted, float) and isinstance(answer, float):
            return abs(wanted - answer) <= self._slack
        if isinstance(wanted, dict):
            return self._all_same(cast("dict[Any, Any]", wanted), answer)
        if attrs.has(cast("type[Any]", type(wanted))):
            return type(wanted) is type(answer) and self._all_same(_fields(wanted), _fields(answer))
        return bool(wanted == answer)

    def _all_same(self, wanted: dict[Any, Any], answer: dict[Any, Any]) -> bool:
        return set(wanted) == set(answer) and all(self._same(value, answer[key]) for key, value in wanted.items())

    # -- state ---------------------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        """What can be read of the store is what the model holds."""
        state, reads = self._world.state, self._store.reads
        views = (await reads.inbox(state.scope, limit=200)).items
        assert len(views) == len(state.messages)
        pairs = [
            (msg, view)
            for box in state.boxes.values()
            for msg, view in zip(
                box.messages, reversed([view for view in views if view.session == box.session]), strict=True
            )
        ]
        for msg, view in pairs:
            assert state.found(view.id, view.message_id) is msg, f"{view.id} is not where it was accepted"
        for msg, view in pairs:
            wanted = _shown(state, msg)
            self._compare(wanted, {name: getattr(view, name) for name in wanted}, view.id)
        for box in state.boxes.values():
            await self._compare_box(box)
        dues = [box.due for box in state.boxes.values() if box.due is not None]
        for moment in dues:
            until = moment + self._slack
            due, held = await reads.counts(until)
            assert due == sum(other <= until for other in dues), f"mailboxes due at {until}"
            assert held == sum(box.holder is not None for box in state.boxes.values())

    async def _compare_box(self, box: Box) -> None:
        state, reads = self._world.state, self._store.reads
        entries = await reads.transcript(state.scope, box.session)
        names = {key: msg.op.message_id or state.ids[key] for key, msg in state.messages.items()}
        found = [(entry.seq, entry.role, entry.content, entry.message_id or entry.in_reply_to) for entry in entries]
        wanted = [(n, role, text, names[key]) for n, (role, text, key) in enumerate(box.entries, start=1)]
        assert found == wanted, box.session
        page = await reads.events(state.scope, box.session)
        assert (page.floor, page.newest, page.closed) == (box.floor, box.last_event, box.deleted), box.session
        assert [(event.id, event.kind) for event in page.events] == [event[:2] for event in box.events], box.session
        for event, (_, _, head, data) in zip(page.events, box.events, strict=True):
            assert event.turn == (None if head is None else _turn(state, head))
            self._compare(data, {name: event.data.get(name) for name in data}, f"{box.session} {event}")
        self._compare(box.stop, await reads.stop_of(state.scope, box.session), box.session)

    def _compare(self, wanted: Any, found: Any, what: str) -> None:
        assert self._same(wanted, found), f"{what}: {found}, not {wanted}"

    async def compare_history(self) -> None:
        """Step logs, how attempts ended, and how many messages each mailbox takes for open: one more than a limit is refused."""
        state, reads = self._world.state, self._store.reads
        for msg in state.messages.values():
            steps = await reads.steps(state.scope, state.ids[msg.key])
            wanted = {key: step for (head, key), step in state.steps.items() if head == msg.key}
            self._compare(wanted, {step.key: step for step in steps}, msg.key)
        for box in state.boxes.values():
            ends = [
                (view.ending, view.status)
                for msg in box.messages
                for view in await reads.attempts(state.scope, state.ids[msg.key])
            ]
            assert sorted(ends) == sorted((ended.end, ended.status) for ended in box.ends.values())
        for box in state.boxes.values():
            depth = sum(msg.open for msg in box.messages)
            for limit in (depth, depth + 1):
                await self.batch([enqueue(state.scope, box.address, ANN, "one more", depth_limit=limit)])


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in attrs.fields(cast("type[Any]", type(value)))}


def _turn(state: State, key: str) -> str:
    return "turn_" + state.ids[key].removeprefix("msg_")


def _shown(state: State, msg: Msg) -> dict[str, Any]:
    """What a reader must see of a message."""
    box, processing = msg.box, msg.status is Status.PROCESSING
    return {
        "session": box.session,
        "kind": msg.op.kind,
        "content": "" if msg.pruned else msg.op.content,
        "status": msg.status,
        "outcome": msg.outcome,
        "reason": msg.reason,
        "seq": msg.seq,
        "attempt": msg.claims,
        "attempts": msg.attempts,
        "takeovers": msg.takeovers,
        "available_at": msg.available,
        "turn_id": _turn(state, msg.turn or msg.absorbed_by or msg.key),
        "lease_holder": box.holder if processing else None,
        "lease_until": box.due if processing else None,
        "lease_epoch": box.epoch if processing else None,
    }
