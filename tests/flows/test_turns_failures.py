"""Agents that fail: back-off and its end, order behind a failing head, whatever an agent may raise, `has_committed`."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from callboard import Turn
from callboard.storage.model.addresses import Sender
from callboard.storage.model.errors import Busy, CallboardError, LimitReached, Rejected, StoreDown, StoreFull
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import CommitTurn, RecordStep, Retry
from callboard.tests.flows.turn_kit import Bench, Board, Body, running


class Odd(BaseException):
    """Not an `Exception`."""


def raising(error: BaseException) -> Body[None]:
    async def run(turn: Turn) -> None:
        raise error

    return run


@pytest.mark.spec("INB-7")
async def test_a_failing_agent_is_tried_after_2_4_8_and_16_seconds_and_then_no_more(
    board: Board, autojump_clock: MockClock
) -> None:
    session, sender = await board.open(), await board.open(title="asker")
    times: list[float] = []

    async def fail(turn: Turn) -> None:
        times.append(trio.current_time())
        await trio.sleep(0.5)
        raise ValueError(f"try {turn.attempt}")

    board.plan(session, *[fail] * 9)
    mail = Sender(sender.id, "session", "asker")
    view = await board.ask(session, "do it", sender=mail, kind=Kind.AGENT_MESSAGE, message_id="m-1")
    gaps = [later - earlier - 0.5 for earlier, later in pairwise(times)]
    assert len(times) == 5
    for gap, least in zip(gaps, (2, 4, 8, 16), strict=True):
        assert least - 0.001 <= gap <= least * 1.25 + 0.001
    assert (view.status, view.reason, view.outcome) == (Status.FAILED, Reason.RETRIES_USED, None)
    assert (view.attempts, view.max_attempts, view.takeovers, view.attempt) == (5, 5, 0, 5)
    assert view.last_error == "ValueError: try 5"
    history = await board.runtime.store.reads.attempts(board.scope, view.id)
    assert [(a.attempt, a.ending, a.detail) for a in history] == [
        *((n, "retried", f"ValueError: try {n}") for n in range(1, 5)),
        (5, "failed", "ValueError: try 5"),
    ]
    (notice,) = await board.entries(sender)
    assert notice.role == "notice"
    assert notice.content == f"Your message {view.id} was not delivered: retries_used."
    await trio.sleep(300)
    assert len(times) == 5


@pytest.mark.spec("INB-6")
@pytest.mark.spec("INB-7")
async def test_what_waits_behind_a_failing_head_keeps_its_place_and_other_sessions_go_on(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open()
    board.plan(session, raising(ValueError("once")))
    first = await board.post(session, "first")
    await board.until(session, "attempt.relinquished")
    second = await board.post(session, "second", kind=Kind.URGENT)
    start = trio.current_time()
    assert (await board.ask(other)).outcome is Outcome.ANSWERED
    assert trio.current_time() == start
    assert (await board.message(second)).status is Status.PENDING
    await board.final(second)
    assert 1.9 <= trio.current_time() - start <= 2.6
    assert (await board.message(first)).attempts == 1
    assert await board.texts(session) == ["echo first", "echo second"]


@pytest.mark.spec("RT-12")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad\0text \ud800"), "ValueError: bad\ufffdtext ?"),
        (ExceptionGroup("many", [ExceptionGroup("more", [KeyError("deep")]), OSError("x")]), "KeyError: 'deep'"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError: "),
        (Odd("odd"), "Odd: odd"),
        (BaseExceptionGroup("mixed", [Odd("odd"), ValueError("x")]), "Odd: odd"),
        (StopAsyncIteration("end"), "StopAsyncIteration: end"),
        (RuntimeError("x" * 5_000), ("RuntimeError: " + "x" * 5_000)[:2_000]),
        (LimitReached("too much"), "LimitReached: too much"),
        (NotImplementedError(), "NotImplementedError: "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_an_agent_raises_is_a_failed_message_and_no_dead_dispatcher(
    board: Board, autojump_clock: MockClock, error: BaseException, told: str
) -> None:
    session = await board.open()
    board.plan(session, raising(error))
    view = await board.ask(session, max_attempts=1)
    assert (view.status, view.reason, view.last_error) == (Status.FAILED, Reason.RETRIES_USED, told)
    assert (await board.ask(session)).outcome is Outcome.ANSWERED
    assert set(board.restarts().values()) == {0}


@pytest.mark.spec("RT-12")
@pytest.mark.parametrize("result", [7, b"bytes", ["text"], object(), True])
async def test_a_result_that_is_no_text_is_a_failure(board: Board, autojump_clock: MockClock, result: object) -> None:
    session = await board.open()

    async def wrong(turn: Turn) -> str:
        return result  # type: ignore[return-value]

    board.plan(session, wrong)
    view = await board.ask(session, max_attempts=1)
    assert (view.reason, view.last_error) == (
        Reason.RETRIES_USED,
        f"TypeError: an agent returns text or None, not {type(result).__name__}",
    )


@pytest.mark.spec("RT-3")
async def test_a_hundred_failures_in_a_moment_escalate_nothing(board: Board, autojump_clock: MockClock) -> None:
    sessions = [await board.open() for _ in range(100)]
    for session in sessions:
        board.plan(session, raising(RuntimeError("all at once")))
    start = trio.current_time()
    receipts = [await board.post(session, max_attempts=1) for session in sessions]
    assert [(await board.final(receipt)).reason for receipt in receipts] == [Reason.RETRIES_USED] * 100
    assert trio.current_time() - start < 1
    assert set(board.restarts().values()) == {0}
    assert (await board.ask(sessions[0])).outcome is Outcome.ANSWERED


async def stores(turn: Turn) -> None:
    await turn.step(Bench().tool("durable"))


async def stores_among_others(turn: Turn) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await stores(turn)


@pytest.mark.spec("INB-7")
@pytest.mark.parametrize(
    "refusal", [Busy("full"), StoreDown("gone"), StoreFull("no room")], ids=lambda error: error.code
)
@pytest.mark.parametrize("body", [stores, stores_among_others], ids=lambda body: body.__name__)
async def test_what_the_store_refused_for_now_uses_no_attempt(
    board: Board, autojump_clock: MockClock, refusal: CallboardError, body: Body[str | None]
) -> None:
    session = await board.open()
    board.plan(session, *[body] * 7)
    board.gate.refusal, board.gate.broken = refusal, (RecordStep,)
    start = trio.current_time()
    receipt = await board.post(session)
    await trio.sleep(6.5)
    board.gate.broken = ()
    view = await board.final(receipt)
    assert (view.outcome, view.attempts, view.takeovers, view.attempt) == (Outcome.ANSWERED, 0, 0, 8)
    assert trio.current_time() - start == pytest.approx(7, abs=0.1)


@pytest.mark.spec("RT-12", "INB-7")
async def test_an_end_that_the_store_will_never_take_costs_an_attempt_and_no_lease(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    board.gate.refusal, board.gate.broken = Rejected("it can't be stored"), (CommitTurn,)
    receipt = await board.post(session)
    view = await board.final(receipt)
    assert (view.reason, view.attempts, view.takeovers) == (Reason.RETRIES_USED, 5, 0)
    assert "it can't be stored" in (view.last_error or "")
    board.gate.broken = (CommitTurn, Retry)
    second = await board.final(await board.post(session))
    assert (second.reason, second.takeovers, second.attempt) == (Reason.RETRIES_USED, 0, 1)
    board.gate.broken = ()
    assert (await board.ask(session)).outcome is Outcome.ANSWERED


@pytest.mark.spec("INB-8")
async def test_an_agent_with_its_own_store_is_asked_before_a_message_is_run_again(autojump_clock: MockClock) -> None:
    class Ledger:
        """Commits to its own store, then fails before its answer is ours."""

        def __init__(self) -> None:
            self.committed: list[str] = []
            self.asked: list[str] = []

        async def run(self, turn: Turn) -> str:
            assert turn.message.message_id not in self.committed
            if turn.text != "careless":
                self.committed.append(turn.message.message_id)
            if turn.attempt == 1:
                raise RuntimeError("lost after its commit")
            return "ran again"

        async def has_committed(self, message_id: str) -> bool:
            self.asked.append(message_id)
            return message_id in self.committed

    ledger = Ledger()
    async with running({"ledger": ledger}) as board:
        session = await board.open("ledger")
        view = await board.ask(session, "careful", message_id="m-1")
        assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.NO_VISIBLE_REPLY)
        assert (ledger.committed, ledger.asked) == (["m-1"], ["m-1"])
        view = await board.ask(session, "careless", message_id="m-2")
        assert view.outcome is Outcome.ANSWERED
        assert await board.texts(session) == ["ran again"]
        assert ledger.asked == ["m-1", "m-2"]


@pytest.mark.spec("INB-8")
async def test_an_agent_whose_own_store_fails_is_tried_again(autojump_clock: MockClock) -> None:
    class Broken:
        async def run(self, turn: Turn) -> str:
            if turn.attempt == 1:
                raise RuntimeError("first")
            return "never"

        async def has_committed(self, message_id: str) -> bool:
            raise OSError("its store is down")

    async with running({"broken": Broken()}) as board:
        view = await board.ask(await board.open("broken"), max_attempts=3)
        assert (view.reason, view.attempts, view.last_error) == (Reason.RETRIES_USED, 3, "OSError: its store is down")
