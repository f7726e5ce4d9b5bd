"""Claims and commits whose outcome stays unknown: asked again or read back, never run twice, never left lying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.storage.commit import Applied
from callboard.storage.model.errors import OutcomeUnknown, StoreFull
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import Claim, CommitTurn, Op, Renew
from callboard.tests.flows.turn_kit import Board, lasting


@pytest.mark.spec("RT-7")
async def test_what_a_claim_of_unknown_outcome_took_is_found_by_asking_again(
    board: Board, autojump_clock: MockClock
) -> None:
    """The database hangs for longer than a claim waits: the mailboxes that it took must not lie until their leases end."""
    session = await board.open()
    board.gate.close(Claim)
    receipt = await board.post(session)
    await board.gate.waiting.wait()
    await trio.sleep(12)
    board.gate.open()
    start = trio.current_time()
    view = await board.final(receipt)
    assert (view.outcome, view.takeovers, view.attempt) == (Outcome.ANSWERED, 0, 1)
    assert trio.current_time() - start <= 2


@pytest.mark.spec("RT-7")
async def test_such_a_claim_is_trusted_for_what_is_left_of_its_lease(board: Board, autojump_clock: MockClock) -> None:
    session, ended = await board.open(), list[float]()
    board.plan(session, lasting(3_600, ended))
    board.gate.broken = (Renew,)
    inner = board.gate._inner.apply
    taken = trio.Event()

    async def late(ops: Sequence[Op[Any]]) -> Applied:
        applied = await inner(ops)
        if (
            any(isinstance(op, Claim) and applied.outcomes[n].claimed for n, op in enumerate(ops))
            and not taken.is_set()
        ):
            taken.set()
            await trio.sleep(12)  # it is committed, and nobody hears of it in time
        return applied

    board.gate._inner.apply = late  # type: ignore[method-assign]
    start = trio.current_time()
    await board.post(session)
    await taken.wait()
    await trio.sleep_until(start + 29)
    assert (ended, board.runs(session)) == ([], 1)
    await trio.sleep_until(start + 30.1)
    assert ended == [pytest.approx(start + 30, abs=0.01)]


@pytest.mark.spec("RT-7")
async def test_a_store_that_was_down_for_long_costs_the_next_turn_nothing(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    board.plan(session, lasting(5))
    board.gate.broken = (Claim,)
    receipt = await board.post(session)
    await trio.sleep(120)
    board.gate.broken = ()
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.takeovers) == (Outcome.ANSWERED, 1, 0)


@pytest.mark.spec("RT-7")
async def test_a_commit_of_unknown_outcome_that_lands_late_is_not_repeated(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    board.gate.close(CommitTurn)
    receipt = await board.post(session)
    await board.gate.waiting.wait()
    await trio.sleep(15)
    board.gate.open()
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.takeovers) == (Outcome.ANSWERED, 1, 0)
    await trio.sleep(120)
    assert board.runtime.dispatcher.live == {}
    assert board.runs(session) == 1
    assert await board.texts(session) == ["echo hello"]
    events = (await board.runtime.store.reads.events(board.scope, session.id)).events
    assert "turn.reconciling" not in [event.kind for event in events]


@pytest.mark.spec("EVT-6", "INB-8")
async def test_an_unknown_outcome_is_read_back_and_told_before_the_end_is_sent_again(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    board.gate.refusal = OutcomeUnknown("the connection broke in the commit")
    board.gate.broken = (CommitTurn,)
    receipt = await board.post(session)
    await board.until(session, "turn.reconciling")
    assert (await board.message(receipt)).status is Status.PROCESSING
    await trio.sleep(5)
    board.gate.broken = ()
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.takeovers) == (Outcome.ANSWERED, 1, 0)
    assert board.runs(session) == 1
    kinds = [event.kind for event in (await board.runtime.store.reads.events(board.scope, session.id)).events]
    assert kinds.count("turn.reconciling") == 1
    assert kinds[-1] == "turn.completed"


@pytest.mark.spec("INB-7", "INB-8")
async def test_an_end_that_has_no_room_is_sent_again_and_the_agent_is_not_run_again(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    board.gate.refusal = StoreFull("no room")
    board.gate.broken = (CommitTurn,)
    receipt = await board.post(session)
    await trio.sleep(12)
    board.gate.broken = ()
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.attempts, view.takeovers) == (Outcome.ANSWERED, 1, 0, 0)
    assert board.runs(session) == 1
