"""The end of a runtime around running turns: grace, hand-back without an attempt, and what outranks what (RT-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from callboard import Runtime, Turn, open_runtime
from callboard.storage.model.addresses import Scope
from callboard.storage.model.messages import MessageView
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import Claim, RequestStop, VoidLeases
from callboard.storage.store import open_store
from callboard.tests.flows.turn_kit import running

pytestmark = pytest.mark.spec("RT-5")

SCOPE = Scope()
Agent = Callable[[Turn], Awaitable[str | None]]


class House:
    """A store file that outlives its runtimes."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/store.db"
        self.begun = trio.Event()

    @asynccontextmanager
    async def open(self, agent: Agent) -> AsyncIterator[Runtime]:
        async with open_runtime(self.url, agents={"agent": agent}, executor="inline") as runtime:
            yield runtime

    async def closed_over(self, agent: Agent, before: Callable[[Runtime, str], Awaitable[None]] | None = None) -> float:
        """Send one message, close the runtime once its turn has begun, and tell how long closing took."""
        async with self.open(agent) as runtime:
            session = await runtime.open_session(path="/", agent="agent")
            await runtime.send("/", "do it", message_id="m-1")
            await self.begun.wait()
            if before is not None:
                await before(runtime, session.id)
            start = trio.current_time()
        return trio.current_time() - start

    async def message(self) -> MessageView:
        """The message as the closed store has it."""
        async with open_store(self.url, executor="inline") as store:
            # What another process would find: it voids leases of the dead, but there must be none.
            return await store.reads.message(SCOPE, "m-1")

    async def history(self) -> list[tuple[int, str, str | None]]:
        async with open_store(self.url, executor="inline") as store:
            view = await store.reads.message(SCOPE, "m-1")
            return [(a.attempt, a.ending, a.detail) for a in await store.reads.attempts(SCOPE, view.id)]

    async def answered(self) -> list[str]:
        """What the next runtime answers, and when: at once."""

        async def well(turn: Turn) -> str:
            return f"attempt {turn.attempt}"

        start = trio.current_time()
        async with self.open(well) as runtime:
            view = await runtime.desk.wait(SCOPE, "m-1")
            assert (view.status, view.attempts, view.takeovers) == (Status.DELIVERED, 0, 0)
            assert trio.current_time() - start < 1
            return [entry.content for entry in await runtime.read("/") if entry.role == "assistant"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_turn_that_ends_in_its_grace_is_handed_back_and_answered_by_the_next_runtime(
    house: House, autojump_clock: MockClock
) -> None:
    async def polite(turn: Turn) -> str:
        house.begun.set()
        assert await turn.sleep(3_600) is False
        assert turn.stop_requested
        await trio.sleep(4)
        return "too late to count"

    assert await house.closed_over(polite) == pytest.approx(4, abs=0.01)
    view = await house.message()
    assert (view.status, view.attempts, view.takeovers, view.attempt) == (Status.PENDING, 0, 0, 1)
    assert await house.history() == [(1, "handed_back", "shutdown")]
    assert await house.answered() == ["attempt 2"]


async def test_a_turn_that_does_not_is_cancelled_after_the_grace(house: House, autojump_clock: MockClock) -> None:
    async def deaf(turn: Turn) -> None:
        house.begun.set()
        await trio.sleep_forever()

    assert await house.closed_over(deaf) == pytest.approx(10, abs=0.01)
    assert (await house.message()).status is Status.PENDING
    assert await house.answered() == ["attempt 2"]


async def test_shutdown_outranks_what_the_agent_raises(house: House, autojump_clock: MockClock) -> None:
    async def failing(turn: Turn) -> None:
        house.begun.set()
        await turn.sleep(3_600)
        raise ValueError("in its grace")

    await house.closed_over(failing)
    assert (await house.message()).attempts == 0
    assert await house.history() == [(1, "handed_back", "shutdown")]
    assert await house.answered() == ["attempt 2"]


async def test_a_stop_outranks_a_shutdown(house: House, autojump_clock: MockClock) -> None:
    async def polite(turn: Turn) -> str:
        house.begun.set()
        await turn.sleep(3_600)
        await trio.sleep(2)
        return "stopped in time"

    async def stop(runtime: Runtime, session: str) -> None:
        await runtime.stop(session)

    await house.closed_over(polite, stop)
    view = await house.message()
    assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.STOPPED)


async def test_a_lost_lease_outranks_a_stop(autojump_clock: MockClock) -> None:
    """Both are known when the turn ends: the other holder's turn stands, and nothing of this one is written."""
    async with running() as board:
        session = await board.open()

        async def robbed(turn: Turn) -> str:
            store = board.runtime.store
            await store.apply(RequestStop(board.scope, f"session:{session.id}"))
            assert await turn.sleep(3_600) is False
            await store.apply(VoidLeases())
            (claimed,) = (await store.apply(Claim("thief", "n-1", 1, 3_600.0, frozenset({"agent"})))).claimed
            assert claimed.session == session.id
            await trio.sleep(11)  # this process learns of it by its next renewal
            return "too late"

        board.plan(session, robbed)
        receipt = await board.post(session)
        await board.until(session, "attempt.claimed", 2)
        before = await board.events(session)
        await trio.sleep(60)
        assert board.runtime.dispatcher.live == {}
        assert await board.events(session) == before
        view = await board.message(receipt)
        assert (view.status, view.lease_holder) == (Status.PROCESSING, "thief")


async def test_nothing_is_claimed_once_the_end_has_begun(house: House, autojump_clock: MockClock) -> None:
    late: list[str] = []

    async def polite(turn: Turn) -> None:
        house.begun.set()
        late.append(turn.text)
        await turn.sleep(3_600)
        await trio.sleep(5)

    async def more(runtime: Runtime, session: str) -> None:
        other = await runtime.open_session(agent="agent")

        async def post() -> None:
            await trio.sleep(2)
            await runtime.send(other.id, "after the end has begun", message_id="m-2")

        runtime.dispatcher._sessions.start("poster", post)

    await house.closed_over(polite, more)
    assert late == ["do it"]
    async with open_store(house.url, executor="inline") as store:
        view = await store.reads.message(SCOPE, "m-2")
        assert (view.status, view.attempt) == (Status.PENDING, 0)


async def test_a_program_that_is_cancelled_hands_its_turns_back_too(house: House, autojump_clock: MockClock) -> None:
    async def deaf(turn: Turn) -> None:
        house.begun.set()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with house.open(deaf) as runtime:
            await runtime.open_session(path="/", agent="agent")
            await runtime.send("/", "do it", message_id="m-1")
            await house.begun.wait()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert (await house.message()).status is Status.PENDING
    assert await house.answered() == ["attempt 2"]


async def test_an_error_of_the_program_comes_out_as_it_is(house: House, autojump_clock: MockClock) -> None:
    async def deaf(turn: Turn) -> None:
        house.begun.set()
        await trio.sleep_forever()

    async def failing(runtime: Runtime, session: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await house.closed_over(deaf, failing)
    assert await house.history() == [(1, "handed_back", "shutdown")]
    assert await house.answered() == ["attempt 2"]
