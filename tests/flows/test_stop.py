"""Stopping a turn: stored, seen at the next checkpoint, enforced after its grace, and never run again (RT-4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Turn
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import Inactive
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops import Absorb, Claim, DeleteSession, EmitTokens, RequestStop
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.store import open_store
from callboard.tests.flows.turn_kit import Board, Body, lasting, running

pytestmark = pytest.mark.spec("RT-4")


async def test_the_turn_sees_the_request_at_once_and_ends_by_itself(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    begun = trio.Event()
    seen: list[float] = []

    async def polite(turn: Turn) -> str:
        await turn.emit("one two ")
        begun.set()
        assert not turn.stop_requested
        assert await turn.sleep(3_600) is False
        assert turn.stop_requested
        seen.append(trio.current_time())
        assert await turn.sleep(5) is False
        return "one two (stopped)"

    board.plan(session, polite)
    receipt = await board.post(session, message_id="m-1")
    await begun.wait()
    asked = trio.current_time()
    assert await board.runtime.stop(session.id) == f"turn_{receipt.id.removeprefix('msg_')}"
    view = await board.final(receipt)
    assert seen == [asked]
    assert (view.status, view.outcome, view.reason, view.attempts) == (Status.DELIVERED, Outcome.STOPPED, None, 0)
    assert await board.texts(session) == ["one two (stopped)"]
    (stopped,) = await board.events(session, "turn.stopped")
    assert stopped.data["outcome"] == "stopped"
    assert stopped.data["content"] == "one two (stopped)"
    await trio.sleep(120)
    assert board.runs(session) == 1


async def test_an_agent_that_only_looks_sees_it_too(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    begun = trio.Event()

    async def counting(turn: Turn) -> str:
        begun.set()
        number = 0
        while not turn.stop_requested:
            number += 1
            await turn.emit(f"{number} ")
            await trio.sleep(0.1)
        return f"stopped at {number}"

    board.plan(session, counting)
    receipt = await board.post(session)
    await begun.wait()
    await trio.sleep(1.05)
    await board.runtime.stop(session.id)
    assert (await board.final(receipt)).outcome is Outcome.STOPPED
    assert await board.texts(session) == ["stopped at 11"]


@pytest.mark.parametrize("grace", [None, 0.0, 3.0])
async def test_an_agent_that_goes_on_is_cancelled_after_the_grace_and_its_partial_text_is_kept(
    board: Board, autojump_clock: MockClock, grace: float | None
) -> None:
    session = await board.open()
    begun, cancelled = trio.Event(), trio.Event()

    async def deaf(turn: Turn) -> None:
        await turn.emit("committed block " + "x" * 200)
        await turn.emit(" and a tail")
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    board.plan(session, deaf)
    receipt = await board.post(session)
    await begun.wait()
    asked = trio.current_time()
    await board.runtime.desk.stop(board.scope, session.id, grace=grace)
    await cancelled.wait()
    assert trio.current_time() - asked == pytest.approx(10.0 if grace is None else grace)
    view = await board.final(receipt)
    assert (view.status, view.outcome, view.attempts) == (Status.DELIVERED, Outcome.STOPPED, 0)
    text = "committed block " + "x" * 200 + " and a tail"
    assert await board.texts(session) == [text]
    assert "".join(event.data["text"] for event in await board.events(session, "turn.token")) == text
    await trio.sleep(120)
    assert board.runs(session) == 1


@pytest.mark.spec("RT-5")
@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(lambda: ValueError("while stopping"), id="an error"),
        pytest.param(lambda: SystemExit(1), id="an exit"),
        pytest.param(None, id="an error beside its cancel"),
    ],
)
async def test_a_stop_outranks_what_the_agent_raises(
    board: Board, autojump_clock: MockClock, ending: Callable[[], BaseException] | None
) -> None:
    session = await board.open()
    begun = trio.Event()

    async def fails_in_the_nursery() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was cancelled")

    async def agent(turn: Turn) -> None:
        await turn.emit("so far")
        begun.set()
        if ending is not None:
            await turn.sleep(3_600)
            raise ending()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_in_the_nursery)
            nursery.start_soon(trio.sleep_forever)

    board.plan(session, agent)
    receipt = await board.post(session)
    await begun.wait()
    await board.runtime.stop(session.id)
    view = await board.final(receipt)
    assert (view.outcome, view.attempts, view.attempt) == (Outcome.STOPPED, 0, 1)
    assert await board.texts(session) == ["so far"]


async def test_queued_messages_stay_and_are_not_stopped_with_it(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    begun = trio.Event()
    board.plan(session, waiting(begun))
    first = await board.post(session, "first")
    await begun.wait()
    second, third = await board.post(session, "second"), await board.post(session, "third")
    await board.runtime.stop(session.id)
    outcomes = [(await board.final(receipt)).outcome for receipt in (first, second, third)]
    assert outcomes == [Outcome.STOPPED, Outcome.ANSWERED, Outcome.ANSWERED]
    assert await board.texts(session) == ["echo second", "echo third"]


async def test_queued_messages_are_dropped_on_request_and_their_senders_told(
    board: Board, autojump_clock: MockClock
) -> None:
    session, asker = await board.open(), await board.open()
    begun = trio.Event()
    board.plan(session, waiting(begun))
    first = await board.post(session, "first")
    await begun.wait()
    mail = Sender(asker.id, "session", "asker")
    queued = [await board.post(session, "second"), await board.post(session, "3", sender=mail, kind=Kind.AGENT_MESSAGE)]
    stopping = await board.runtime.desk.stop(board.scope, session.id, drop_queued=True)
    assert stopping.dropped == 2
    for receipt in queued:
        view = await board.message(receipt)
        assert (view.status, view.reason, view.attempt) == (Status.FAILED, Reason.DROPPED, 0)
    assert (await board.final(first)).outcome is Outcome.STOPPED
    (notice,) = await board.texts(asker, "notice")
    assert "dropped" in notice
    assert (await board.ask(session, "later")).outcome is Outcome.ANSWERED
    assert await board.texts(session) == ["echo later"]


async def test_steered_messages_go_with_the_turn_if_it_saw_them_and_back_if_not(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    begun, look = trio.Event(), trio.Event()

    async def steered(turn: Turn) -> None:
        begun.set()
        await look.wait()
        assert [message.content for message in await turn.steered()] == ["seen"]
        await turn.sleep(3_600)
        # The second look is committed, but its answer does not reach the agent before its grace is over.
        await turn.steered()

    board.plan(session, steered)
    head = await board.post(session, "head")
    await begun.wait()
    seen = await board.post(session, "seen")
    look.set()
    await wait_all_tasks_blocked()
    unseen = await board.post(session, "unseen")
    board.gate.close(Absorb)
    await board.runtime.desk.stop(board.scope, session.id, grace=2)
    await board.gate.waiting.wait()
    await trio.sleep(3)
    board.gate.open()
    assert [(await board.final(receipt)).outcome for receipt in (head, seen, unseen)] == [
        Outcome.STOPPED,
        Outcome.STOPPED,
        Outcome.ANSWERED,
    ]
    assert await board.texts(session) == ["echo unseen"]
    assert (await board.message(seen)).attempt == 0
    view = await board.message(unseen)
    assert (view.attempt, view.takeovers) == (1, 0)


async def test_the_first_request_stands_and_an_idle_session_has_nothing_to_stop(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open(path="/desk")
    with pytest.raises(Inactive):
        await board.runtime.stop("/desk")
    begun = trio.Event()
    board.plan(session, waiting(begun, deaf=True))
    receipt = await board.post(session)
    await begun.wait()
    asked = trio.current_time()
    first = await board.runtime.desk.stop(board.scope, session.id, grace=4)
    again = await board.runtime.desk.stop(board.scope, session.id, grace=0)
    assert first == again
    await board.final(receipt)
    assert trio.current_time() - asked == pytest.approx(4)
    with pytest.raises(Inactive):
        await board.runtime.stop("/desk")
    assert (await board.ask(session)).outcome is Outcome.ANSWERED


async def test_a_stop_that_comes_while_the_attempt_fails_still_holds(board: Board, autojump_clock: MockClock) -> None:
    """The failure is decided when the stop is stored: the message waits for its next attempt, which must not run."""
    session = await board.open()

    async def fail(turn: Turn) -> None:
        await turn.emit("so far")
        await trio.sleep(0.1)  # it is committed
        await board.runtime.store.apply(RequestStop(board.scope, f"session:{session.id}"))
        raise ValueError("and over")

    board.plan(session, fail)
    view = await board.ask(session)
    assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.STOPPED)
    assert board.runs(session) == 1
    assert await board.texts(session) == ["so far"]


def waiting(begun: trio.Event, *, deaf: bool = False) -> Body[None]:
    async def run(turn: Turn) -> None:
        begun.set()
        if deaf:
            await trio.sleep_forever()
        await turn.sleep(3_600)

    return run


async def test_a_stop_outlives_the_process_that_ran_the_turn(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Another process held the mailbox, had streamed and steered, was asked to stop, and is gone without a word."""
    url = f"sqlite:///{tmp_path}/store.db"
    scope, ann = Scope(), Sender("ann", "member", "Ann")
    async with open_store(url, executor="inline") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        session = (await store.apply(open_session(scope, "agent"))).session
        address = f"session:{session.id}"
        for name, kind in (("notice", Kind.NOTICE), ("head", Kind.MEMBER_MESSAGE), ("steered", Kind.MEMBER_MESSAGE)):
            await store.apply(enqueue(scope, address, ann, name, kind=kind, message_id=name))
        claims = await store.apply(Claim("dead", "n-1", 10, 30.0, frozenset({"agent"})))
        lease = claims.claimed[0].lease
        await store.apply(Absorb(lease, "steer:1", 1))
        await store.apply(EmitTokens(lease, 1, "half an "))
        await store.apply(EmitTokens(lease, 2, "answer"))
        await store.apply(enqueue(scope, address, ann, "queued", message_id="queued"))
        await store.apply(RequestStop(scope, address))
        nursery.cancel_scope.cancel()
    async with running(url=url) as board:
        views = {name: await board.runtime.desk.wait(scope, name) for name in ("notice", "head", "steered", "queued")}
        assert {name: view.outcome for name, view in views.items()} == {
            "notice": Outcome.STOPPED,
            "head": Outcome.STOPPED,
            "steered": Outcome.STOPPED,
            "queued": Outcome.ANSWERED,
        }
        assert board.puppet.runs == {session.id: 1}
        assert await board.texts(session) == ["half an answer", "echo queued"]


@pytest.mark.spec("INB-11", "RT-8")
async def test_a_turn_whose_session_is_deleted_is_cut_off_at_once(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    ended: list[float] = []
    board.plan(session, lasting(60, ended))
    receipt = await board.post(session)
    await board.until(session, "attempt.claimed")
    start = trio.current_time()
    await board.runtime.store.apply(DeleteSession(board.scope, session.id, board.ann))
    view = await board.final(receipt)
    await trio.sleep(1.5)
    assert view.reason is Reason.TARGET_DELETED
    assert [at - start <= 1.0 for at in ended] == [True]
