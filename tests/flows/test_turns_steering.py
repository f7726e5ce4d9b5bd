"""What joins a turn: posts that are steered in, notices that come along; what does not takes part starts the next turn (INB-10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from callboard import Turn
from callboard.storage.model.messages import WAKE, Kind, Wake
from callboard.storage.model.states import Outcome, Status
from callboard.tests.flows.turn_kit import Board

pytestmark = pytest.mark.spec("INB-10")


@pytest.mark.spec("MSG-2")
async def test_posts_to_a_running_turn_that_takes_part_are_answered_by_it(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()

    async def attentive(turn: Turn) -> str:
        assert await turn.steered() == ()
        first = await board.post(session, "second")
        await board.post(session, "third", kind=Kind.URGENT)
        taken = await turn.steered()
        assert [(m.content, m.kind, m.steered) for m in taken] == [
            ("second", "member_message", True),
            ("third", "urgent", True),
        ]
        # It moved before the agent saw it, and says so.
        view = await board.message(first)
        assert (view.status, "surfaced" in view.stages) == (Status.PROCESSING, True)
        assert await turn.steered() == ()
        return " ".join(message.content for message in turn.messages)

    board.plan(session, attentive)
    await board.ask(session, "first")
    assert await board.texts(session) == ["first second third"]
    assert [entry.state for entry in await board.entries(session)] == ["delivered"] * 4
    assert board.runs(session) == 1
    assert (await board.kinds(session)).count("turn.completed") == 1
    for item in (await board.runtime.store.reads.inbox(board.scope, target=session.id)).items:
        assert (item.outcome, item.attempts) == (Outcome.ANSWERED, 0)


@pytest.mark.spec("MSG-2")
async def test_without_taking_part_a_post_starts_the_next_turn(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def inattentive(turn: Turn) -> str:
        await board.post(session, "second")
        await trio.sleep(5)
        return f"only {' '.join(message.content for message in turn.messages)}"

    board.plan(session, inattentive)
    await board.ask(session, "first")
    await board.until(session, "turn.completed", 2)
    assert await board.texts(session) == ["only first", "echo second"]


@pytest.mark.parametrize("kind", Kind)
async def test_only_what_steers_is_taken(board: Board, autojump_clock: MockClock, kind: Kind) -> None:
    session = await board.open()

    async def attentive(turn: Turn) -> str:
        await board.post(session, "more", kind=kind)
        return f"took {len(await turn.steered())}"

    board.plan(session, attentive)
    receipt = await board.post(session, "head")
    await board.final(receipt)
    await trio.sleep(5)
    steers, wakes = WAKE[kind] is Wake.STEER, WAKE[kind] is not Wake.NEXT
    assert await board.texts(session) == [f"took {int(steers)}", *([] if steers or not wakes else ["echo more"])]
    more = (await board.entries(session))[1]
    assert more.state == ("delivered" if wakes else "pending")


async def test_what_is_steered_keeps_its_order_and_passes_what_only_wakes(
    board: Board, autojump_clock: MockClock
) -> None:
    """FIFO holds per wake mode: a post may pass an agent's message that waits for a turn of its own."""
    session = await board.open()

    async def attentive(turn: Turn) -> str:
        for name, kind in (("a", Kind.MEMBER_MESSAGE), ("mail", Kind.AGENT_MESSAGE), ("b", Kind.MEMBER_MESSAGE)):
            await board.post(session, name, kind=kind)
        return "".join(message.content for message in await turn.steered())

    board.plan(session, attentive)
    await board.ask(session, "head")
    await board.until(session, "turn.completed", 2)
    assert await board.texts(session) == ["ab", "echo mail"]


async def test_a_crowd_is_taken_in_bounded_gulps(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def attentive(turn: Turn) -> str:
        for number in range(40):
            await board.post(session, f"m{number}")
        gulps = [await turn.steered() for _ in range(3)]
        assert [message.content for gulp in gulps for message in gulp] == [f"m{number}" for number in range(40)]
        return " ".join(str(len(gulp)) for gulp in gulps)

    board.plan(session, attentive)
    await board.ask(session, "head")
    assert await board.texts(session) == ["32 8 0"]


async def test_notices_wake_nobody_and_come_along_with_the_next_turn(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    early = [await board.post(session, f"notice {number}", kind=Kind.NOTICE) for number in range(2)]
    await trio.sleep(600)
    assert board.runs(session) == 0
    late: list[Status] = []

    async def carrying(turn: Turn) -> str:
        behind = await board.post(session, "a later notice", kind=Kind.NOTICE)
        assert await turn.steered() == ()
        late.append((await board.message(behind)).status)
        assert turn.message.content == turn.text == "head"
        headers = [message.header for message in turn.attributed()]
        assert headers == ["[system notice]", "[system notice]", ""]
        return ", ".join(message.content for message in turn.messages)

    board.plan(session, carrying)
    await board.ask(session, "head")
    assert await board.texts(session) == ["notice 0, notice 1, head"]
    for receipt in early:
        view = await board.message(receipt)
        assert (view.status, view.outcome) == (Status.DELIVERED, Outcome.ANSWERED)
    assert late == [Status.PENDING]
    await board.ask(session, "next")
    assert [entry.state for entry in await board.entries(session)] == ["delivered"] * 7
    await trio.sleep(600)
    assert board.runs(session) == 2


async def test_a_failed_attempt_returns_what_came_along_in_its_place(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    seen: list[list[str]] = []

    async def failing(turn: Turn) -> None:
        if turn.attempt == 1:
            await board.post(session, "post")
        await turn.steered()
        seen.append([message.content for message in turn.messages])
        raise ValueError

    board.plan(session, failing, failing)
    notice = await board.post(session, "notice", kind=Kind.NOTICE)
    head = await board.post(session, "head", max_attempts=2)
    await board.until(session, "attempt.relinquished")
    assert (await board.message(notice)).status is Status.PENDING
    assert (await board.final(head)).status is Status.FAILED
    await board.until(session, "turn.completed")
    assert seen == [["notice", "head", "post"]] * 2
    # The head failed for good; what came along was never answered, so the next turn has it.
    assert await board.texts(session) == ["echo post"]
    assert [(entry.content, entry.state) for entry in await board.entries(session)] == [
        ("notice", "delivered"),
        ("head", "failed"),
        ("post", "delivered"),
        ("echo post", "delivered"),
    ]


@pytest.mark.spec("INB-10")
async def test_a_signal_wakes(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def silent(turn: Turn) -> None:
        assert turn.message.kind == "signal"

    board.plan(session, silent)
    view = await board.ask(session, "the workflow is done", kind=Kind.SIGNAL)
    assert view.outcome is Outcome.NO_VISIBLE_REPLY
    assert [entry.role for entry in await board.entries(session)] == ["notice"]
