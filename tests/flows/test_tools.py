"""The five agent tools inside a turn: frozen schemas, exact input, the project as the boundary, bounded listings and reading."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from callboard import InvalidField, NotFound, UnknownTarget
from callboard.actors.session.tools import SCHEMAS
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import SelfTarget
from callboard.storage.model.sessions import Session, SessionKind
from callboard.storage.ops.sessions import open_session
from callboard.tests.flows.turn_kit import Board, calling

GOLDEN = Path(__file__).with_name("golden") / "tools.json"


@pytest.mark.spec("SES-3")
def test_the_schemas_are_frozen() -> None:
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == SCHEMAS
    assert list(SCHEMAS) == ["agent", "agent_list", "agent_read", "agent_send", "agent_stop", "connect_user"]
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
    (
        "agent_send",
        {"agent_id": "/other", "message": "\ud800"},
        "agent_send.message",
        "must not contain a lone surrogate",
    ),
    ("agent_send", {"agent_id": "", "message": "x"}, "agent_id", "must not be empty"),
    ("agent_read", {"agent_id": "/Other"}, "path", "has a segment that is not"),
    ("agent_read", {"agent_id": "/other/"}, "path", "must not end with /"),
    ("connect_user", {"path": "/other", "message": "x"}, "connect_user.message", "is not a known field"),
    ("connect_user", {}, "connect_user.path", "is required"),
    ("connect_user", {"path": 5}, "connect_user.path", "must be a string"),
    ("connect_user", {"path": "other"}, "path", "must start with /"),
    ("connect_user", {"path": "/other/"}, "path", "must not end with /"),
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
    go_on = await board.keep_busy(other)
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
