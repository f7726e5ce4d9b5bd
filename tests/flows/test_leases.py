"""Leases: renewed in one op, trusted by the local clock only, fencing every write, and never joined by a second task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import LeaseLost, Tuning, Turn, tool
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import Claim, Enqueue, Renew, VoidLeases
from callboard.tests.flows.turn_kit import Board, lasting, running

ran: list[str] = []


@tool("pure")
async def pure(name: str) -> str:
    """A tool that may run again."""
    ran.append(name)
    return name


@tool("external")
async def external(name: str) -> str:
    """A tool that must not."""
    ran.append(name)
    return name


async def rob(board: Board, seconds: float = 3_600.0) -> Claim:
    """Let another holder take every mailbox that is held, as the next owner of the store does."""
    claim = Claim("thief", f"n-{len(board.gate.seen)}", 10, seconds, frozenset(board.runtime.agents))
    await board.runtime.store.apply(VoidLeases())
    await board.runtime.store.apply(claim)
    return claim


@pytest.mark.spec("RT-7")
async def test_all_leases_of_a_process_are_renewed_in_one_op_every_ten_seconds(
    board: Board, autojump_clock: MockClock
) -> None:
    sessions = [await board.open() for _ in range(3)]
    start = trio.current_time()
    for session in sessions:
        board.plan(session, lasting(95))
    receipts = [await board.post(session) for session in sessions]
    assert [(await board.final(receipt)).outcome for receipt in receipts] == [Outcome.ANSWERED] * 3
    renewals = [op for op in board.gate.seen if isinstance(op, Renew)]
    assert len(renewals) in (9, 10)
    assert {len(op.leases) for op in renewals} == {3}
    assert {op.lease_seconds for op in renewals} == {30.0}
    assert trio.current_time() - start == pytest.approx(95, abs=0.1)
    assert [(await board.message(receipt)).takeovers for receipt in receipts] == [0, 0, 0]


@pytest.mark.spec("RT-7")
@pytest.mark.parametrize("how", ["refused", "hanging"])
async def test_a_turn_whose_lease_is_not_renewed_ends_by_itself_and_commits_nothing_more(
    board: Board, autojump_clock: MockClock, how: str
) -> None:
    session = await board.open()
    ended: list[float] = []
    board.plan(session, lasting(3_600, ended))
    start = trio.current_time()
    receipt = await board.post(session)
    claimed = await board.until(session, "attempt.claimed")
    if how == "refused":
        board.gate.broken = (Renew,)
    else:
        board.gate.close(Renew)
    await trio.sleep(29)
    assert ended == []
    await trio.sleep(1.5)
    assert ended == [pytest.approx(start + 30, abs=0.001)]
    board.gate.broken = ()
    board.gate.open()
    view = await board.final(receipt)
    assert (view.outcome, view.attempt, view.attempts, view.takeovers) == (Outcome.ANSWERED, 2, 0, 1)
    # Not even its end was written: the next thing after its claim is that somebody took the mailbox over.
    taken = (await board.events(session))[len(claimed)]
    assert (taken.kind, taken.data["cause"], taken.data["attempt"]) == ("attempt.relinquished", "takeover", 1)
    assert await board.texts(session) == ["echo hello"]


@pytest.mark.spec("RT-7")
async def test_the_lease_is_trusted_from_before_the_request_that_took_it(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    ended: list[float] = []
    board.plan(session, lasting(3_600, ended))
    board.gate.broken = (Renew,)
    board.gate.close(Claim)
    start = trio.current_time()
    await board.post(session)
    await board.gate.waiting.wait()
    await trio.sleep(5)
    board.gate.open()
    await trio.sleep(24)
    assert ended == []
    await trio.sleep(1.5)
    assert ended == [pytest.approx(start + 30, abs=0.001)]


@pytest.mark.spec("RT-7")
async def test_the_lease_is_trusted_from_before_the_request_that_renewed_it(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    ended: list[float] = []
    board.plan(session, lasting(3_600, ended))
    board.gate.close(Renew)
    await board.post(session)
    await board.gate.waiting.wait()
    asked = trio.current_time()
    await trio.sleep(7)
    board.gate.open()
    await wait_all_tasks_blocked()
    board.gate.broken = (Renew,)
    await trio.sleep_until(asked + 29.5)
    assert ended == []
    await trio.sleep_until(asked + 31)
    assert ended == [pytest.approx(asked + 30, abs=0.001)]


@pytest.mark.spec("RT-7")
async def test_a_renewal_tells_a_turn_that_its_lease_is_gone(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    ended: list[float] = []
    board.plan(session, lasting(3_600, ended))
    await board.post(session)
    await board.until(session, "attempt.claimed")
    start = trio.current_time()
    await rob(board)
    taken = await board.events(session)
    await trio.sleep(60)
    assert len(ended) == 1
    assert ended[0] - start <= 10.1
    assert await board.events(session) == taken
    assert board.runtime.dispatcher.live == {}


CALLS: dict[str, Callable[[Turn, str], Awaitable[Any]]] = {
    "emit": lambda turn, other: turn.emit("x" * 500),
    "steered": lambda turn, other: turn.steered(),
    "step pure": lambda turn, other: turn.step(pure, name="late"),
    "step external": lambda turn, other: turn.step(external, name="late"),
    "agent": lambda turn, other: turn.tools.agent("a task"),
    "agent_list": lambda turn, other: turn.tools.agent_list(),
    "agent_read": lambda turn, other: turn.tools.agent_read(other),
    "agent_send": lambda turn, other: turn.tools.agent_send(other, "late"),
    "agent_stop": lambda turn, other: turn.tools.agent_stop(other),
    "call": lambda turn, other: turn.tools.call("agent_send", {"agent_id": other, "message": "late"}),
}


@pytest.mark.spec("RT-8")
@pytest.mark.parametrize("name", CALLS)
async def test_every_call_of_a_turn_is_fenced(board: Board, autojump_clock: MockClock, name: str) -> None:
    session, other, busy = await board.open(), await board.open(), await board.open()
    raised: list[BaseException] = []
    go_on = trio.Event()

    async def held(turn: Turn) -> None:
        await go_on.wait()

    async def robbed(turn: Turn) -> str:
        assert await turn.step(pure, name="kept") == "kept"
        await rob(board)
        before.extend(await board.events(session))
        try:
            await CALLS[name](turn, busy.id)
        except LeaseLost as error:
            raised.append(error)
        return "nobody will read this"

    before: list[Any] = []
    ran.clear()
    board.plan(session, robbed)
    board.plan(busy, held)
    await board.post(busy)
    await board.until(busy, "attempt.claimed")
    receipt = await board.post(session)
    await board.until(session, "attempt.claimed", 2)
    await trio.sleep(1)
    assert len(raised) == 1
    assert await board.events(session) == before
    assert await board.texts(session) == []
    assert (await board.kinds(other), len(await board.runtime.list_sessions())) == ([], 3)
    assert "message.created" not in (await board.kinds(busy))[3:]
    assert await board.runtime.store.reads.stop_of(board.scope, busy.id) is None
    assert ran == (["kept", "late"] if name == "step pure" else ["kept"])
    # What it had committed before stays: the new holder finds it.
    steps = await board.runtime.store.reads.steps(board.scope, receipt.id)
    assert [step.result for step in steps] == [{"ok": "kept"}]
    view = await board.message(receipt)
    assert (view.status, view.lease_holder, view.attempts) == (Status.PROCESSING, "thief", 0)
    go_on.set()


@pytest.mark.spec("RT-8")
async def test_the_end_of_a_turn_is_fenced_however_it_ends(board: Board, autojump_clock: MockClock) -> None:
    async def answer(turn: Turn) -> str:
        await rob(board)
        return "too late"

    async def fail(turn: Turn) -> str:
        await rob(board)
        raise ValueError("too late")

    for body in (answer, fail):
        session = await board.open()
        board.plan(session, body)
        receipt = await board.post(session)
        events = await board.until(session, "attempt.claimed", 2)
        await trio.sleep(5)
        assert await board.events(session) == events
        assert (await board.message(receipt)).status is Status.PROCESSING


@pytest.mark.spec("RT-8")
async def test_the_new_holder_continues_with_the_steps_that_the_old_one_left(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    ran.clear()

    async def robbed(turn: Turn) -> str:
        await turn.step(external, name="once")
        await rob(board, seconds=20.0)
        return "too late"

    async def again(turn: Turn) -> str:
        return f"{await turn.step(external, name='once')} in attempt {turn.attempt}"

    board.plan(session, robbed, again)
    view = await board.ask(session)
    assert ran == ["once"]
    assert (view.attempt, view.takeovers, view.attempts) == (3, 2, 0)
    assert await board.texts(session) == ["once in attempt 3"]


@pytest.mark.spec("RT-18")
async def test_a_claim_of_a_mailbox_whose_task_still_lives_here_is_given_back(
    board: Board, autojump_clock: MockClock
) -> None:
    """The claim was under way when the lease was voided, so it could not leave the mailbox out."""
    session, other = await board.open(), await board.open()
    at_once = most = 0

    async def slow(turn: Turn) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            await trio.sleep(20)
        finally:
            at_once -= 1
        return f"attempt {turn.attempt}"

    board.plan(session, slow, slow)
    receipt = await board.post(session)
    await board.until(session, "attempt.claimed")
    board.gate.close(Enqueue)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.post, other)
        await board.gate.waiting.wait()
        await trio.sleep(1.5)  # the dispatcher looks again: its claim waits behind the post
        nursery.start_soon(board.runtime.store.apply, VoidLeases())
        await wait_all_tasks_blocked()
        board.gate.open()
    view = await board.final(receipt)
    assert most == 1
    assert (view.outcome, view.attempts) == (Outcome.ANSWERED, 0)
    causes = [event.data.get("cause") for event in await board.events(session, "attempt.relinquished")]
    assert causes[:2] == ["takeover", "handed_back"]
    assert len(await board.texts(session)) == 1


@pytest.mark.spec("RT-7")
async def test_a_lease_can_be_set(autojump_clock: MockClock) -> None:
    async with running(tuning=Tuning(lease_seconds=6, renew_seconds=2)) as board:
        session = await board.open()
        ended: list[float] = []
        board.plan(session, lasting(3_600, ended))
        start = trio.current_time()
        await board.post(session)
        await trio.sleep(20)
        assert ended == []
        renewals = [op for op in board.gate.seen if isinstance(op, Renew)]
        assert len(renewals) in (9, 10)
        board.gate.broken = (Renew,)
        await trio.sleep(6.1)
        assert len(ended) == 1
        assert ended[0] - start <= 26


@pytest.mark.spec("RT-14")
async def test_nothing_else_waits_behind_a_holder(board: Board, autojump_clock: MockClock) -> None:
    """A renewal is in the first lane: posts that were there before it are behind it in the queue."""
    busy, target = await board.open(), await board.open()
    board.plan(busy, lasting(12))
    receipt = await board.post(busy)
    await board.until(busy, "attempt.claimed")
    board.gate.close(Enqueue)
    async with trio.open_nursery() as nursery:
        for number in range(1_100):
            nursery.start_soon(partial(board.post, target, f"m{number}", kind=Kind.NOTICE))
        await board.gate.waiting.wait()
        await trio.sleep(11)
        position = len(board.gate.seen)
        board.gate.open()
    kinds = [type(op) for op in board.gate.seen[position:]]
    assert kinds.count(Enqueue) == 1_100
    assert kinds.index(Renew) <= 512, "only the batch that had begun was before it"
    assert (await board.final(receipt)).takeovers == 0
