"""The five agent tools at work: bounded listings and reading, sending without waiting, stopping, and what is full."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import MailboxFull, Tuning, Turn
from callboard.actors.session.tools import visible
from callboard.storage.model.errors import Inactive, UnknownAgent
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import Session
from callboard.storage.model.states import Outcome
from callboard.storage.ops import Claim
from callboard.tests.flows.turn_kit import Board, calling, running


@pytest.mark.spec("SES-4")
async def test_agent_list_tells_who_is_active_and_what_each_is(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(path="/ops/deploy", title="Deploys"), await board.open()
    await board.ask(other)
    quiet = await board.open()
    listed = await board.inside(session, calling("agent_list"))
    assert listed["has_more"] is False
    (record,) = listed["agents"]
    updated = record.pop("updated")
    assert record == {
        "agent_id": session.id,
        "title": "Deploys",
        "kind": "interactive",
        "status": "active",
        "project": "default",
        "parent": None,
        "path": "/ops/deploy",
    }
    assert updated.endswith("Z")
    assert len(updated) == len("2025-01-01T00:00:00.000Z")
    recent = (await board.inside(session, calling("agent_list", status="recent")))["agents"]
    assert {record["agent_id"]: record["status"] for record in recent} == {
        session.id: "active",
        other.id: "idle",
        quiet.id: "idle",
    }


@pytest.mark.spec("SES-4")
async def test_a_live_child_counts_as_active_and_makes_its_parent_so(autojump_clock: MockClock) -> None:
    """The child waits for its first turn, the parent's turn is over: both are busy all the same."""
    async with running(tuning=Tuning(live_turns=1)) as board:
        parent, watcher = await board.open(path="/parent"), await board.open()

        async def start(turn: Turn) -> str:
            return (await turn.tools.agent("a task"))["agent_id"]

        async def look(turn: Turn) -> list[tuple[str, str | None, str]]:
            records = (await turn.tools.agent_list())["agents"]
            return [(record["agent_id"], record["parent"], record["status"]) for record in records]

        board.plan(parent, start)
        started = await board.post(parent)
        looking = trio.Event()
        seen: list[list[tuple[str, str | None, str]]] = []

        async def watch(turn: Turn) -> None:
            looking.set()
            await trio.sleep(1)
            seen.append(await look(turn))

        board.plan(watcher, watch)
        await board.post(watcher)
        await looking.wait()
        await board.final(started)
        await board.until(watcher, "turn.completed")
        child = (await board.texts(parent))[0]
        assert sorted(seen[0]) == sorted(
            [(child, parent.id, "active"), (parent.id, None, "active"), (watcher.id, None, "active")]
        )


@pytest.mark.spec("SES-4")
async def test_agent_list_gives_the_newest_first_and_says_if_there_are_more(
    board: Board, autojump_clock: MockClock
) -> None:
    sessions: list[Session] = []
    for _ in range(55):
        sessions.append(await board.open())
        await trio.sleep(1)
    newest = [session.id for session in reversed(sessions)]

    async def listed(**arguments: Any) -> tuple[list[str], bool]:
        result = await board.inside(sessions[-1], calling("agent_list", status="recent", **arguments))
        return [record["agent_id"] for record in result["agents"]], result["has_more"]

    assert await listed() == (newest[:20], True)
    assert await listed(limit=1) == (newest[:1], True)
    assert await listed(limit=50) == (newest[:50], True)
    await board.ask(sessions[0])
    ids, _ = await listed(limit=2)
    assert ids == [sessions[-1].id, sessions[0].id], "a change moves a session to the front"
    for session in sessions[1:6]:
        await board.runtime.desk.delete(board.scope, session.id, board.ann)
    ids, more = await listed(limit=50)
    assert (len(ids), more) == (50, False)


@pytest.mark.spec("SES-5")
async def test_agent_read_shows_what_people_see_and_nothing_else(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open(path="/other")

    async def work(turn: Turn) -> str:
        await turn.emit("thinking aloud ")
        await turn.tools.agent_list("recent")
        return "the answer"

    board.plan(other, work)
    await board.ask(other, "the question")
    await board.post(other, "a notice", kind=Kind.NOTICE)
    read = await board.inside(session, calling("agent_read", agent_id="/other"))
    assert read == {
        "agent_id": other.id,
        "messages": [{"role": "user", "content": "the question"}, {"role": "assistant", "content": "the answer"}],
        "count": 2,
        "omitted": 0,
        "truncated": False,
    }


@pytest.mark.spec("SES-5")
async def test_agent_read_keeps_the_newest_within_its_budget(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open(path="/other")

    async def long(turn: Turn) -> str:
        return turn.text.upper()

    for letter in "abcd":
        board.plan(other, long)
        await board.ask(other, letter * 4_000)
    read = await board.inside(session, calling("agent_read", agent_id="/other"))
    assert [message["content"][0] for message in read["messages"]] == ["B", "c", "C", "d", "D"]
    assert sum(len(message["content"]) for message in read["messages"]) == 20_000
    assert (read["count"], read["omitted"], read["truncated"]) == (8, 3, False)


@pytest.mark.spec("SES-5")
@pytest.mark.parametrize("extra", [1, 17, 100_000])
def test_an_over_long_message_is_cut_from_its_front_and_says_by_how_much(extra: int) -> None:
    content = "a" * extra + "z" * 20_000
    read = visible([("user", "older"), ("assistant", content)], 2)
    (message,) = read["messages"]
    mark, _, kept = message["content"].partition("]")
    assert len(message["content"]) == 20_000
    assert set(kept) == {"z"}
    assert mark == f"[… {len(content) - len(kept)} characters cut"
    assert (read["count"], read["omitted"], read["truncated"]) == (2, 1, True)


@pytest.mark.spec("SES-5")
def test_what_just_fits_is_not_cut() -> None:
    read = visible([("user", "a" * 5_000), ("assistant", "b" * 15_000)], 2)
    assert [len(message["content"]) for message in read["messages"]] == [5_000, 15_000]
    assert (read["omitted"], read["truncated"]) == (0, False)
    read = visible([("user", "a" * 5_001), ("assistant", "b" * 15_000)], 2)
    assert [len(message["content"]) for message in read["messages"]] == [15_000]
    assert (read["omitted"], read["truncated"]) == (1, False)
    assert visible([], 0) == {"messages": [], "count": 0, "omitted": 0, "truncated": False}


@pytest.mark.spec("SES-5")
async def test_agent_read_of_a_long_transcript_counts_what_it_leaves_out(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open(path="/other")
    board.gate.broken = (Claim,)
    for number in range(260):
        await board.post(other, f"m{number}")
    board.gate.broken = ()
    read = await board.inside(session, calling("agent_read", agent_id="/other"))
    assert read["count"] >= 260
    assert read["count"] - read["omitted"] == len(read["messages"]) == 200


@pytest.mark.spec("SES-6")
async def test_agent_send_returns_at_once_with_the_messages_id(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open(path="/other")
    go_on = await board.keep_busy(other)

    async def send(turn: Turn) -> tuple[dict[str, Any], float]:
        start = trio.current_time()
        return await turn.tools.agent_send("/other", "  trimmed \n"), trio.current_time() - start

    sent, took = await board.inside(session, send)
    assert took == 0
    assert set(sent) == {"message_id", "agent_id", "status"}
    assert sent["status"] == "pending"
    view = await board.runtime.desk.receipt(board.scope, sent["message_id"])
    assert (view.content, view.sender.id, view.sender.kind, view.kind) == (
        "trimmed",
        session.id,
        "session",
        "agent_message",
    )
    assert (view.session, view.stages.keys()) == (other.id, {"accepted"})
    go_on.set()
    assert (await board.runtime.desk.wait(board.scope, view.id)).outcome is Outcome.ANSWERED


@pytest.mark.spec("SES-6")
@pytest.mark.parametrize("size", [1, 20_000])
async def test_agent_send_takes_one_to_twenty_thousand_characters(
    board: Board, autojump_clock: MockClock, size: int
) -> None:
    session, other = await board.open(), await board.open(path="/other")
    await board.inside(session, calling("agent_send", agent_id="/other", message=" " * 50 + "é" * size + "\n" * 50))
    assert await board.texts(other, "user") == ["é" * size]


@pytest.mark.spec("RT-14")
async def test_agent_send_to_a_full_mailbox_is_refused_and_notices_are_not(autojump_clock: MockClock) -> None:
    async with running(tuning=Tuning(mailbox_depth=3)) as board:
        session, other = await board.open(), await board.open(path="/other")
        go_on = await board.keep_busy(other)

        async def send(turn: Turn) -> int:
            for number in range(10):
                try:
                    await turn.tools.agent_send("/other", f"m{number}")
                except MailboxFull:
                    return number
            return 10

        assert await board.inside(session, send) == 2
        await board.post(other, "a notice", kind=Kind.NOTICE, depth_limit=None)
        go_on.set()
        await board.until(other, "turn.completed", 3)
        assert await board.inside(session, send) >= 1


@pytest.mark.spec("SES-7")
async def test_agent_stop_stops_a_running_turn_and_refuses_an_idle_session(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open(path="/other")
    with pytest.raises(Inactive):
        await board.inside(session, calling("agent_stop", agent_id="/other"))
    await board.keep_busy(other)
    assert await board.inside(session, calling("agent_stop", agent_id="/other")) == {
        "agent_id": other.id,
        "status": "stopping",
    }
    events = await board.until(other, "turn.stopped")
    assert events[-1].data["outcome"] == "stopped"
    with pytest.raises(Inactive):
        await board.inside(session, calling("agent_stop", agent_id="/other"))


@pytest.mark.spec("SES-8")
async def test_an_unknown_agent_can_be_no_child(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    with pytest.raises(UnknownAgent, match="known: agent"):
        await board.inside(session, calling("agent", task="x", agent="nobody"))
    assert len(await board.runtime.list_sessions()) == 1
