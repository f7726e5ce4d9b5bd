"""A turn from its message to its answer: addresses, stages, order, the transcript, and what is left when a session rests."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Turn, UnknownTarget
from callboard.actors.dispatch.delivery import Delivery
from callboard.actors.tail import Feed, Tail
from callboard.storage.model.addresses import Scope
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Status
from callboard.storage.ops import Claim, Enqueue
from callboard.tests.flows.turn_kit import Board, Body, running


def tasks() -> int:
    """How many tasks this Trio run has."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, waiting = 0, [root]
    while waiting:
        task = waiting.pop()
        found += 1
        waiting.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


def living(*kinds: type[Any]) -> Counter[type[Any]]:
    """How many objects of each of `kinds` there are."""
    gc.collect()
    things: list[object] = gc.get_objects()
    return Counter(type(thing) for thing in things if type(thing) in kinds)


@pytest.mark.spec("RT-1")
async def test_a_session_with_work_is_a_supervised_actor_under_its_address(
    board: Board, autojump_clock: MockClock
) -> None:
    first, second = await board.open(), await board.open()
    both = trio.Event()

    async def held(turn: Turn) -> str:
        if board.runs(first) == board.runs(second) == 1:
            both.set()
        await both.wait()
        live = {delivery.address: delivery for delivery in board.runtime.dispatcher.live.values()}
        assert set(live) == {f"session:{first.id}", f"session:{second.id}"}
        assert len({id(delivery.scope) for delivery in live.values()}) == 2
        assert {node.name for node in board.children("sessions")} == set(live)
        return turn.session.id

    board.plan(first, held)
    board.plan(second, held)
    one, two = await board.post(first), await board.post(second)
    assert [(await board.final(one)).status, (await board.final(two)).status] == [Status.DELIVERED] * 2
    assert await board.texts(first) == [first.id]
    assert board.runtime.dispatcher.address == f"dispatcher:{board.runtime.process}"


@pytest.mark.spec("RT-1")
async def test_cancelling_one_actor_ends_it_alone_and_its_message_is_not_lost(
    board: Board, autojump_clock: MockClock
) -> None:
    first, second = await board.open(), await board.open()
    begun, go_on = trio.Event(), trio.Event()

    async def cancelled(turn: Turn) -> None:
        begun.set()
        await trio.sleep_forever()

    async def patient(turn: Turn) -> str:
        await go_on.wait()
        return "patient"

    board.plan(first, cancelled)
    board.plan(second, patient)
    one, two = await board.post(first, "one"), await board.post(second)
    await begun.wait()
    (victim,) = [d for d in board.runtime.dispatcher.live.values() if d.address == f"session:{first.id}"]
    victim.scope.cancel()
    view = await board.final(one)
    go_on.set()
    assert (await board.final(two)).outcome is Outcome.ANSWERED
    assert (view.outcome, view.attempts, view.takeovers) == (Outcome.ANSWERED, 0, 0)
    assert await board.texts(first) == ["echo one"]


@pytest.mark.spec("RT-1")
@pytest.mark.parametrize(("tenant", "project"), [("default", "other"), ("other", "default")])
async def test_a_scope_sees_and_wakes_only_its_own(
    board: Board, autojump_clock: MockClock, tenant: str, project: str
) -> None:
    elsewhere = Scope(tenant, project)
    mine = await board.open(path="/here")
    theirs = (await board.runtime.desk.open(elsewhere, "agent", path="/here")).session
    assert mine.id != theirs.id
    desk = board.runtime.desk
    receipt = await desk.send(elsewhere, theirs.id, "over there", board.ann, message_id="m-1")
    assert (await desk.wait(elsewhere, receipt.id)).outcome is Outcome.ANSWERED
    mine_too = await desk.send(board.scope, mine.id, "over here", board.ann, message_id="m-1")
    assert mine_too.created
    assert await board.texts(mine) in ([], ["echo over here"])
    for scope, name in ((board.scope, theirs.id), (elsewhere, mine.id)):
        with pytest.raises(UnknownTarget):
            await desk.find(scope, name)
        with pytest.raises(UnknownTarget):
            await desk.send(scope, name, "hello", board.ann)
        with pytest.raises(UnknownTarget):
            await desk.transcript(scope, name)
        with pytest.raises(UnknownTarget):
            await desk.stop(scope, name)


@pytest.mark.spec("SES-10")
@pytest.mark.parametrize(
    ("reply", "outcome", "entries"),
    [
        ("hello", Outcome.ANSWERED, ["hello"]),
        (None, Outcome.NO_VISIBLE_REPLY, []),
        ("", Outcome.NO_VISIBLE_REPLY, []),
        (" \n\t", Outcome.NO_VISIBLE_REPLY, []),
        (" padded \n", Outcome.ANSWERED, [" padded \n"]),
        ("nul \0 and half a pair \ud800.", Outcome.ANSWERED, ["nul \ufffd and half a pair ?."]),
    ],
)
async def test_what_the_agent_returns_is_the_answer(
    board: Board, autojump_clock: MockClock, reply: str | None, outcome: Outcome, entries: list[str]
) -> None:
    session = await board.open()

    async def answer(turn: Turn) -> str | None:
        return reply

    board.plan(session, answer)
    view = await board.ask(session)
    assert (view.status, view.outcome) == (Status.DELIVERED, outcome)
    assert await board.texts(session) == entries


@pytest.mark.spec("SES-10")
async def test_what_was_streamed_is_the_answer_if_nothing_is_returned(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def stream(turn: Turn) -> None:
        await turn.emit("one ")
        await trio.sleep(1)
        await turn.emit("two")

    board.plan(session, stream)
    assert (await board.ask(session)).outcome is Outcome.ANSWERED
    assert await board.texts(session) == ["one two"]


@pytest.mark.spec("SES-10")
async def test_the_sender_can_read_every_stage_as_it_comes(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    begun, go_on = trio.Event(), trio.Event()

    async def held(turn: Turn) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    board.plan(session, held)
    board.gate.close(Claim)
    receipt = await board.post(session, message_id="m-1")
    await board.gate.waiting.wait()
    assert set((await board.message(receipt)).stages) == {"accepted"}
    await trio.sleep(1)
    board.gate.open()
    await begun.wait()
    view = await board.message(receipt)
    assert set(view.stages) == {"accepted", "leased", "surfaced"}
    assert (view.status, view.lease_holder, view.attempt) == (Status.PROCESSING, board.runtime.process, 1)
    await trio.sleep(1)
    go_on.set()
    view = await board.final(receipt)
    stages = view.stages
    assert list(stages) == ["accepted", "leased", "surfaced", "committed"]
    assert stages["leased"] - stages["accepted"] == pytest.approx(1, abs=0.01)
    assert stages["committed"] - stages["surfaced"] == pytest.approx(1, abs=0.01)
    assert (view.outcome, view.lease_holder) == (Outcome.ANSWERED, None)


@pytest.mark.spec("MSG-2")
@pytest.mark.spec("MSG-1")
async def test_posts_to_a_busy_session_run_one_after_the_other_and_none_is_lost(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    running_now = most = 0

    async def slow(turn: Turn) -> str:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await trio.sleep(0.5)
        running_now -= 1
        return f"re {turn.text}"

    board.plan(session, *[slow] * 20)

    async def poster(name: str) -> None:
        for number in range(5):
            await board.post(session, f"{name}{number}")
            await trio.sleep(0.3)

    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(poster, name)
    await board.until(session, "turn.completed", 20)
    entries = await board.entries(session)
    assert most == 1
    assert [entry.seq for entry in entries] == list(range(1, 41))
    asked = [entry for entry in entries if entry.role == "user"]
    answered = [entry for entry in entries if entry.role == "assistant"]
    assert sorted(entry.content for entry in asked) == sorted(f"{name}{n}" for name in "abcd" for n in range(5))
    assert [entry.content for entry in answered] == [f"re {entry.content}" for entry in asked]
    assert [entry.in_reply_to for entry in answered] == [entry.message_id for entry in asked]


@pytest.mark.spec("MSG-1")
async def test_a_message_has_its_entry_from_the_moment_it_is_accepted(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    board.gate.close(Claim)
    receipt = await board.post(session, "early")
    (entry,) = await board.entries(session)
    assert (entry.seq, entry.role, entry.content, entry.state) == (receipt.seq, "user", "early", "pending")
    board.gate.open()
    await board.final(receipt)
    asked, answer = await board.entries(session)
    assert (asked.state, answer.state, answer.in_reply_to) == ("delivered", "delivered", receipt.id)
    assert (answer.sender.id, answer.sender.kind) == (session.id, "session")


@pytest.mark.spec("MSG-1")
async def test_a_failed_message_keeps_its_entry_with_that_state(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def fail(turn: Turn) -> None:
        raise ValueError("no")

    board.plan(session, fail)
    await board.ask(session, "try me", max_attempts=1)
    await board.ask(session, "and me")
    assert [(e.seq, e.content, e.state) for e in await board.entries(session)] == [
        (1, "try me", "failed"),
        (2, "and me", "delivered"),
        (3, "echo and me", "delivered"),
    ]


@pytest.mark.spec("RT-13")
async def test_a_session_at_rest_has_no_task_and_no_memory(board: Board, autojump_clock: MockClock) -> None:
    await board.ask(await board.open())
    await trio.sleep(5)
    at_rest, kept = tasks(), living(Delivery, Turn, Tail, Feed)
    sessions = [await board.open() for _ in range(20)]
    for session in sessions:
        for number in range(3):
            await board.post(session, f"m{number}")
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(board.until, session, "turn.completed", 3)
    await trio.sleep(5)
    assert tasks() == at_rest
    assert board.children("sessions") == board.children("tails") == ()
    assert board.runtime.dispatcher.live == {}
    assert living(Delivery, Turn, Tail, Feed) <= kept
    assert board.restarts() == dict.fromkeys(board.restarts(), 0)


@pytest.mark.spec("MSG-2")
async def test_a_claim_that_meets_the_end_of_a_turn_starts_the_next_one_at_once(
    board: Board, autojump_clock: MockClock
) -> None:
    """Commit and claim in one batch: whichever task wakes first, the next turn is neither put off nor counted as a failed start."""
    session, other = await board.open(), await board.open()
    board.gate.apart = True
    signals = [(trio.Event(), trio.Event()) for _ in range(16)]

    def held(begun: trio.Event, go_on: trio.Event) -> Body[str]:
        async def run(turn: Turn) -> str:
            begun.set()
            await go_on.wait()
            return "done"

        return run

    board.plan(session, *[held(*pair) for pair in signals])
    receipts = [await board.post(session, f"m{number}") for number in range(16)]
    async with trio.open_nursery() as nursery:
        for begun, go_on in signals:
            await begun.wait()
            board.gate.close(Enqueue)
            nursery.start_soon(board.post, other, "keeps the flusher busy")
            await board.gate.waiting.wait()
            await trio.sleep(1.5)  # the dispatcher looks again
            go_on.set()
            await wait_all_tasks_blocked()
            assert board.runtime.store.statistics()["depth"] >= 2
            board.gate.open()
    await board.final(receipts[-1])
    assert [(await board.message(receipt)).attempt for receipt in receipts] == [1] * 16
    assert await board.events(session, "attempt.relinquished") == []


@pytest.mark.spec("RT-16")
async def test_two_runtimes_in_one_program_know_nothing_of_each_other(autojump_clock: MockClock) -> None:
    async with running() as one, running() as two:
        here, there = await one.open(path="/desk"), await two.open(path="/desk")
        first, second = (
            await one.post(here, "first", message_id="m-1"),
            await two.post(there, "second", message_id="m-1"),
        )
        assert (await one.final(first)).outcome is (await two.final(second)).outcome is Outcome.ANSWERED
        assert (await one.texts(here), await two.texts(there)) == (["echo first"], ["echo second"])
        assert one.runtime.process != two.runtime.process
        with pytest.raises(UnknownTarget):
            await one.runtime.read(there.id)
    async with running() as one:
        async with running() as two:
            there = await two.open()
            await two.ask(there)
        here = await one.open()
        assert (await one.ask(here)).outcome is Outcome.ANSWERED


async def test_a_message_is_taken_in_the_batch_that_accepts_it_and_the_next_one_in_the_batch_that_ends_its_turn(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    await wait_all_tasks_blocked()
    before = board.runtime.store.statistics()["batches"]
    await board.ask(session)
    await wait_all_tasks_blocked()
    assert board.runtime.store.statistics()["batches"] - before == 2
    begun, go_on = trio.Event(), trio.Event()

    async def held(turn: Turn) -> str:
        begun.set()
        await go_on.wait()
        return "first"

    board.plan(session, held)
    await board.post(session, "first")
    await begun.wait()
    last = await board.post(session, "second", kind=Kind.AGENT_MESSAGE)
    await wait_all_tasks_blocked()
    before = board.runtime.store.statistics()["batches"]
    go_on.set()
    assert (await board.final(last)).outcome is Outcome.ANSWERED
    await wait_all_tasks_blocked()
    assert board.runtime.store.statistics()["batches"] - before == 2
