"""The events of a session: their kinds, their exact data, and what every one of them carries (EVT-1)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Event, Turn, tool
from callboard.storage.model.addresses import Sender
from callboard.storage.model.events import TERMINAL, EventKind
from callboard.storage.model.messages import Kind, Receipt
from callboard.storage.model.sessions import Session
from callboard.storage.ops import Claim, VoidLeases
from callboard.tests.flows.turn_kit import Board

pytestmark = pytest.mark.spec("EVT-1")


@tool("external")
async def weigh(what: str) -> int:
    """A tool of the agent's own."""
    return len(what)


def carried(receipt: Receipt, attempt: int, **more: Any) -> dict[str, Any]:
    """The data of a turn.* event: what every one carries, and `more`."""
    turn = f"turn_{receipt.id.removeprefix('msg_')}"
    return {"turn_id": turn, "message_id": receipt.message_id, "attempt": attempt, **more}


def told(events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    return [(event.kind, event.data) for event in events]


async def test_a_turn_from_its_message_to_its_answer(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def work(turn: Turn) -> str:
        await turn.emit("let me see… ")
        await trio.sleep(1)
        assert await turn.step(weigh, what="stone") == 5
        with pytest.raises(Exception, match="no session"):
            await turn.tools.agent_send("/nowhere", "hello")
        await turn.emit("five")
        return "It weighs five."

    board.plan(session, work)
    receipt = await board.post(session, "how heavy is a stone?", message_id="m-1")
    await board.final(receipt)
    events = await board.events(session)
    actions = [event.data["action_id"] for event in events if event.kind == "tool.call"]
    arguments = {"agent_id": "/nowhere", "message": "hello"}
    refused = {"code": "unknown_target", "message": "no session has this path", "path": "path"}
    assert told(events) == [
        (
            "message.created",
            {
                "id": receipt.id,
                "message_id": "m-1",
                "kind": "member_message",
                "role": "user",
                "seq": 1,
                "sender": {"id": "ann", "label": "Ann", "kind": "member"},
                "content": "how heavy is a stone?",
            },
        ),
        ("turn.started", carried(receipt, 1)),
        ("attempt.claimed", carried(receipt, 1, holder=board.runtime.process)),
        ("turn.token", carried(receipt, 1, text="let me see… ")),
        ("tool.call", carried(receipt, 1, tool="weigh", action_id=actions[0], arguments={"what": "stone"})),
        ("tool.result", carried(receipt, 1, tool="weigh", action_id=actions[0], result={"ok": 5})),
        ("tool.call", carried(receipt, 1, tool="agent_send", action_id=actions[1], arguments=arguments)),
        ("tool.result", carried(receipt, 1, tool="agent_send", action_id=actions[1], result={"refused": refused})),
        ("turn.token", carried(receipt, 1, text="five")),
        ("turn.completed", carried(receipt, 1, outcome="answered", seq=2, content="It weighs five.")),
    ]
    assert [event.id for event in events] == list(range(1, 11))
    assert {event.turn for event in events[1:]} == {f"turn_{receipt.id.removeprefix('msg_')}"}
    assert events[0].turn is None
    assert all(earlier.at <= later.at for earlier, later in pairwise(events))
    view = await board.message(receipt)
    assert (view.turn_id, view.message_id, view.attempt) == (events[1].turn, "m-1", 1)


async def test_a_turn_without_a_visible_reply(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def silent(turn: Turn) -> None:
        return

    board.plan(session, silent)
    receipt = await board.post(session)
    await board.final(receipt)
    assert told(await board.events(session, "turn.completed")) == [
        ("turn.completed", carried(receipt, 1, outcome="no_visible_reply", seq=None))
    ]


async def test_attempts_that_fail_and_the_one_that_is_the_last(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def fail(turn: Turn) -> None:
        raise ValueError(f"try {turn.attempt}")

    board.plan(session, fail, fail)
    receipt = await board.post(session, max_attempts=2)
    await board.final(receipt)
    events = (await board.events(session))[1:]
    holder = board.runtime.process
    retry_at = events[2].data["retry_at"]
    assert told(events) == [
        ("turn.started", carried(receipt, 1)),
        ("attempt.claimed", carried(receipt, 1, holder=holder)),
        ("attempt.relinquished", carried(receipt, 1, cause="retried", detail="ValueError: try 1", retry_at=retry_at)),
        ("attempt.claimed", carried(receipt, 2, holder=holder)),
        ("turn.failed", carried(receipt, 2, reason="retries_used", error="ValueError: try 2")),
    ]
    assert 2 <= retry_at - events[2].at <= 2.5
    assert events[3].at >= retry_at


async def test_an_attempt_that_is_taken_over(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def robbed(turn: Turn) -> str:
        await turn.emit("half an answer, in a block of its own " + "." * 200)
        await board.runtime.store.apply(VoidLeases())
        await board.runtime.store.apply(Claim("thief", "n-1", 1, 20.0, frozenset({"agent"})))
        await trio.sleep_forever()
        return "never"

    board.plan(session, robbed)
    receipt = await board.post(session)
    await board.final(receipt)
    events = (await board.events(session))[2:]
    kinds = [
        (event.kind, event.data["attempt"], event.data.get("cause") or event.data.get("holder")) for event in events
    ]
    assert kinds == [
        ("attempt.claimed", 1, board.runtime.process),
        ("turn.token", 1, None),
        ("attempt.relinquished", 1, "takeover"),
        ("attempt.claimed", 2, "thief"),
        ("attempt.relinquished", 2, "takeover"),
        ("attempt.claimed", 3, board.runtime.process),
        ("turn.completed", 3, None),
    ]
    assert set(events[2].data) == {"turn_id", "message_id", "attempt", "cause", "retry_at"}
    view = await board.message(receipt)
    assert (view.attempt, view.takeovers, view.attempts) == (3, 2, 0)


async def test_a_stopped_turn(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    begun = trio.Event()

    async def work(turn: Turn) -> None:
        await turn.emit("half")
        begun.set()
        await turn.sleep(60)

    board.plan(session, work)
    receipt = await board.post(session)
    await begun.wait()
    await board.runtime.stop(session.id)
    await board.final(receipt)
    assert told(await board.events(session))[-2:] == [
        ("turn.token", carried(receipt, 1, text="half")),
        ("turn.stopped", carried(receipt, 1, outcome="stopped", seq=2, content="half")),
    ]


async def failing_ways(board: Board, session: Session, asker: Sender) -> dict[str, Receipt]:
    """Messages that fail while they wait behind a running turn, by the reason."""
    begun = trio.Event()

    async def hold(turn: Turn) -> None:
        begun.set()
        await turn.sleep(3_600)

    board.plan(session, hold)
    await board.post(session)
    await begun.wait()
    receipts = {
        reason: await board.post(session, reason, sender=asker, kind=Kind.AGENT_MESSAGE)
        for reason in ("cancelled", "dropped", "target_deleted")
    }
    await board.runtime.desk.cancel(board.scope, receipts["cancelled"].id)
    return receipts


async def test_messages_that_fail_without_a_turn_end_too(board: Board, autojump_clock: MockClock) -> None:
    """A turn stream of such a message must end: it has a terminal event that carries the same, and no text of an answer."""
    session, other = await board.open(), await board.open()
    receipts = await failing_ways(board, session, Sender(other.id, "session", "other"))
    cancelled = await board.events(session, "turn.failed")
    assert told(cancelled) == [("turn.failed", carried(receipts["cancelled"], 0, reason="cancelled"))]
    await board.runtime.desk.stop(board.scope, session.id, drop_queued=True)
    events = {event.data["message_id"]: event for event in await board.events(session, "turn.failed")}
    assert events[receipts["dropped"].id].data == carried(receipts["dropped"], 0, reason="dropped")
    third = await board.open()
    begun = trio.Event()

    async def hold(turn: Turn) -> None:
        begun.set()
        await turn.sleep(3_600)

    board.plan(third, hold)
    await board.post(third)
    await begun.wait()
    waiting = await board.post(third, "waiting")
    await board.runtime.desk.delete(board.scope, third.id, board.ann)
    failed = [event for event in await board.events(third, "turn.failed") if event.turn == f"turn_{waiting.id[4:]}"]
    assert told(failed) == [("turn.failed", carried(waiting, 0, reason="target_deleted"))]


async def test_a_notice_is_created_like_any_message(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    receipt = await board.post(session, "for your information", kind=Kind.NOTICE)
    (event,) = await board.events(session)
    assert (event.kind, event.data["kind"], event.data["role"], event.data["content"]) == (
        "message.created",
        "notice",
        "notice",
        "for your information",
    )
    assert event.data["id"] == event.data["message_id"] == receipt.id


def test_the_vocabulary_is_that_of_the_specification() -> None:
    assert {str(kind) for kind in EventKind} == {
        *(
            "message.created",
            "turn.started",
            "attempt.claimed",
            "model.request",
            "turn.token",
            "tool.call",
            "tool.result",
        ),
        *("turn.waiting", "approval.required", "attempt.relinquished", "turn.handoff", "turn.completed", "turn.failed"),
        *("turn.stopped", "turn.reconciling"),
    }
    assert {str(kind) for kind in TERMINAL} == {"turn.completed", "turn.failed", "turn.stopped"}


async def test_every_event_of_a_turn_has_a_known_kind_and_carries_the_same(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()

    async def fail(turn: Turn) -> None:
        await turn.emit("x")
        await turn.step(weigh, what="it")
        raise ValueError

    board.plan(session, fail)
    await board.ask(session)
    for event in await board.events(session):
        assert event.kind in set(EventKind)
        if event.kind != "message.created":
            assert {"turn_id", "message_id", "attempt"} <= set(event.data)
            assert event.data["turn_id"] == event.turn
