"""The five agent tools inside a turn: frozen schemas, exact input, the project as the boundary, bounded listings and reading."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import InvalidField, MailboxFull, NotFound, Tuning, Turn, UnknownTarget
from callboard.actors.session.tools import SCHEMAS, visible
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import Inactive, SelfTarget, UnknownAgent
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import Session, SessionKind
from callboard.storage.model.states import Outcome
from callboard.storage.ops import Claim
from callboard.storage.ops.sessions import open_session
from callboard.tests.flows.turn_kit import Board, Body, running

GOLDEN = Path(__file__).with_name("golden") / "tools.json"


def calling(name: str, **arguments: Any) -> Body[Any]:
    """A body that calls a tool as a model does."""

    async def run(turn: Turn) -> Any:
        return await turn.tools.call(name, arguments)

    return run


async def busy(board: Board, session: Session) -> trio.Event:
    """Keep a turn of the session running until the event is set."""
    begun, go_on = trio.Event(), trio.Event()

    async def held(turn: Turn) -> None:
        begun.set()
        while not (turn.stop_requested or go_on.is_set()):
            await trio.sleep(0.1)

    board.plan(session, held)
    await board.post(session, "keep busy")
    await begun.wait()
    return go_on


@pytest.mark.spec("SES-3")
def test_the_schemas_are_frozen() -> None:
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == SCHEMAS
    assert list(SCHEMAS) == ["agent", "agent_list", "agent_read", "agent_send", "agent_stop"]
    assert all(schema["parameters"]["additionalProperties"] is False for schema in SCHEMAS.values())


FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "agent_send",
        {"agent_id": "/other", "message": "x", "priority": 1},
        "agent_send.priority",
        "is not a known field",
    ),
    ("agent_list", {"project": "other"}, "agent_list.project", "is not a known field"),
    ("agent_read", {"agent_id": "/other", "limit": 5}, "agent_read.limit", "is not a known field"),
    ("agent_stop", {"agent_id": "/other", "sender": "x"}, "agent_stop.sender", "is not a known field"),
    ("agent", {"task": "x", "parent": "ses_1"}, "agent.parent", "is not a known field"),
    ("agent_send", {"agent_id": "/other"}, "agent_send.message", "is required"),
    ("agent_send", {"message": "x"}, "agent_send.agent_id", "is required"),
    ("agent_read", {}, "agent_read.agent_id", "is required"),
    ("agent", {}, "agent.task", "is required"),
    ("agent_send", {"agent_id": "/other", "message": 5}, "agent_send.message", "must be a string"),
    ("agent_send", {"agent_id": None, "message": "x"}, "agent_send.agent_id", "must be a string"),
    ("agent_list", {"limit": "5"}, "agent_list.limit", "must be a whole number"),
    ("agent_list", {"limit": True}, "agent_list.limit", "must be a whole number"),
    ("agent_list", {"limit": 1.5}, "agent_list.limit", "must be a whole number"),
    ("agent_list", {"limit": 0}, "limit", "must be 1 to 50"),
    ("agent_list", {"limit": 51}, "limit", "must be 1 to 50"),
    ("agent_list", {"status": "idle"}, "status", "must be active or recent"),
    ("agent", {"task": ""}, "task", "must not be empty"),
    ("agent", {"task": " \n"}, "task", "must not be empty"),
    ("agent", {"task": "x" * 20_001}, "task", "has 20001 characters, 20000 are allowed"),
    ("agent", {"task": "x", "timeout_s": 0}, "timeout_s", "must be 0.001 to 86400"),
    ("agent", {"task": "x", "timeout_s": 86_401}, "timeout_s", "must be 0.001 to 86400"),
    ("agent", {"task": "x", "timeout_s": "5"}, "agent.timeout_s", "must be a number"),
    ("agent", {"task": "x", "timeout_s": float("nan")}, "agent.timeout_s", "must be"),
    ("agent", {"task": "x", "title": "t" * 201}, "title", "has 201 characters, 200 are allowed"),
    ("agent_send", {"agent_id": "/other", "message": "   "}, "message", "must not be empty"),
    (
        "agent_send",
        {"agent_id": "/other", "message": "x" * 20_001},
        "message",
        "has 20001 characters, 20000 are allowed",
    ),
    ("agent_send", {"agent_id": "/other", "message": "a\0b"}, "message", "must not contain NUL"),
    ("agent_send", {"agent_id": "/other", "message": "\ud800"}, "agent_send.message", "must not contain a lone surrogate"),
    ("agent_send", {"agent_id": "", "message": "x"}, "agent_id", "must not be empty"),
    ("agent_read", {"agent_id": "/Other"}, "path", "has a segment that is not"),
    ("agent_read", {"agent_id": "/other/"}, "path", "must not end with /"),
    ("agent_delete", {"agent_id": "/other"}, "tool", "there is no tool 'agent_delete'"),
]


@pytest.mark.spec("SES-3")
@pytest.mark.parametrize(
    ("name", "arguments", "path", "reason"), FAULTS, ids=[f"{f[0]}-{f[2]}-{f[3][:20]}" for f in FAULTS]
)
async def test_input_is_exact_and_a_fault_is_named(
    board: Board, autojump_clock: MockClock, name: str, arguments: dict[str, Any], path: str, reason: str
) -> None:
    session, other = await board.open(), await board.open(path="/other")
    with pytest.raises(InvalidField) as caught:
        await board.inside(session, calling(name, **arguments))
    assert caught.value.path == path
    assert caught.value.message.startswith(reason)
    assert await board.entries(other) == []
    assert len(await board.runtime.list_sessions()) == 2


SPELLINGS: dict[str, Callable[[Session], str]] = {
    "id": lambda session: session.id,
    "address": lambda session: f"session:{session.id}",
    "path": lambda session: session.path or "",
}


@pytest.mark.spec("SES-3")
@pytest.mark.spec("SES-6")
@pytest.mark.spec("SES-7")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["agent_send", "agent_read", "agent_stop"])
async def test_itself_is_refused_in_every_spelling(
    board: Board, autojump_clock: MockClock, name: str, spelling: str
) -> None:
    session = await board.open(path="/ops/deploy")
    arguments = {"agent_id": SPELLINGS[spelling](session)}
    if name == "agent_send":
        arguments["message"] = "to myself"
    with pytest.raises(SelfTarget, match="your own session"):
        await board.inside(session, calling(name, **arguments))
    assert await board.texts(session, "user") == ["hello"], "nothing was stored"
    assert await board.runtime.store.reads.stop_of(board.scope, session.id) is None


@pytest.mark.spec("SES-3")
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_another_is_found_in_every_spelling_and_answered_by_its_id(
    board: Board, autojump_clock: MockClock, spelling: str
) -> None:
    session, other = await board.open(), await board.open(path="/other")
    name = SPELLINGS[spelling](other)
    sent = await board.inside(session, calling("agent_send", agent_id=name, message="hello"))
    assert sent["agent_id"] == other.id
    await board.until(other, "turn.completed")
    read = await board.inside(session, calling("agent_read", agent_id=name))
    assert read["agent_id"] == other.id
    go_on = await busy(board, other)
    stopped = await board.inside(session, calling("agent_stop", agent_id=name))
    assert stopped == {"agent_id": other.id, "status": "stopping"}
    go_on.set()


async def other_project(board: Board) -> Session:
    return (await board.runtime.desk.open(Scope("default", "other"), "agent", path="/hidden")).session


async def other_tenant(board: Board) -> Session:
    return (await board.runtime.desk.open(Scope("other", "default"), "agent", path="/hidden")).session


async def internal(board: Board) -> Session:
    op = open_session(board.scope, "agent", kind=SessionKind.INTERNAL, path="/hidden")
    return (await board.runtime.store.apply(op)).session


async def deleted(board: Board) -> Session:
    session = await board.open(path="/hidden")
    await board.runtime.desk.delete(board.scope, session.id, board.ann)
    return session


def shape(error: BaseException) -> tuple[Any, ...]:
    assert isinstance(error, NotFound)
    return type(error), error.code, error.message, error.path


@pytest.mark.spec("SES-2")
@pytest.mark.parametrize("name", ["agent_send", "agent_read", "agent_stop"])
@pytest.mark.parametrize("make", [other_project, other_tenant, internal, deleted])
async def test_what_may_not_be_seen_answers_exactly_as_what_does_not_exist(
    board: Board, autojump_clock: MockClock, make: Callable[[Board], Awaitable[Session]], name: str
) -> None:
    session = await board.open()
    more = {"message": "hello"} if name == "agent_send" else {}
    unknown: dict[str, tuple[Any, ...]] = {}
    for spelling, address in {"id": "ses_" + "0" * 32, "address": "session:ses_" + "0" * 32, "path": "/hidden"}.items():
        with pytest.raises(UnknownTarget) as missing:
            await board.inside(session, calling(name, agent_id=address, **more))
        unknown[spelling] = shape(missing.value)
    hidden = await make(board)
    before = await board.runtime.store.reads.counts(board.runtime.store.now())
    for spelling, address in SPELLINGS.items():
        with pytest.raises(UnknownTarget) as refused:
            await board.inside(session, calling(name, agent_id=address(hidden), **more))
        assert shape(refused.value) == unknown[spelling]
    assert await board.runtime.store.reads.counts(board.runtime.store.now()) == before


@pytest.mark.spec("SES-2")
async def test_listings_end_at_the_project(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    for make in (other_project, other_tenant, internal):
        await make(board)
    for status in ("active", "recent"):
        listed = await board.inside(session, calling("agent_list", status=status))
        assert [record["agent_id"] for record in listed["agents"]] == [session.id]


@pytest.mark.spec("SES-3")
async def test_an_unpaired_peer_is_unknown(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    for name, more in (("agent_send", {"message": "x"}), ("agent_read", {}), ("agent_stop", {})):
        with pytest.raises(UnknownTarget, match="peer"):
            await board.inside(session, calling(name, agent_id="peer:0123456789ab", **more))


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
    go_on = await busy(board, other)

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
        go_on = await busy(board, other)

        async def send(turn: Turn) -> int:
            for number in range(10):
                try:
                    await turn.tools.agent_send("/other", f"m{number}")
                except MailboxFull as full:
                    assert full.status == 429
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
    await busy(board, other)
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
