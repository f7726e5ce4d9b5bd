"""Claims of a process that is slow or full: what came too late is given back at once, and a full process still says that it lives."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from callboard import Tuning
from callboard.storage.model.states import Outcome
from callboard.storage.ops import Claim
from callboard.tests.flows.turn_kit import lasting, running


@pytest.mark.spec("RT-7")
async def test_leases_that_came_too_late_to_be_trusted_are_given_back_at_once(autojump_clock: MockClock) -> None:
    """Left alone, they would be missed until they run out, and count as lost by a dead process."""
    async with running(tuning=Tuning(lease_seconds=3.0, renew_seconds=1.0)) as board:
        session = await board.open()
        board.gate.close(Claim)
        start = trio.current_time()
        receipt = await board.post(session)
        await board.gate.waiting.wait()
        await trio.sleep(4.0)
        board.gate.open()
        view = await board.final(receipt)
        assert view.outcome is Outcome.ANSWERED
        assert (view.takeovers, view.attempts) == (0, 0)
        assert trio.current_time() - start < 5.0
        kinds = [event.kind for event in await board.events(session)]
        assert kinds.count("attempt.claimed") == 2
        assert kinds.count("attempt.relinquished") == 1


@pytest.mark.spec("OPS-4")
async def test_a_process_that_is_full_is_seen_to_live(autojump_clock: MockClock) -> None:
    async with running(tuning=Tuning(live_turns=1)) as board:
        reads, now = board.runtime.store.reads, board.runtime.store.now
        busy, waiting = await board.open(), await board.open()
        board.plan(busy, lasting(100))
        receipts = [await board.post(busy), await board.post(waiting)]
        for _ in range(5):
            await trio.sleep(15)
            (process,) = await reads.processes(now())
            assert process.name == board.runtime.process
            assert now() - process.seen_at < 2.0
            assert (process.held, process.run_out) == (1, 0)
        assert [(await board.final(receipt)).outcome for receipt in receipts] == [Outcome.ANSWERED] * 2
