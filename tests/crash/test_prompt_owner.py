"""A chat turn whose owner ends while its model answers: the second owner asks with the same bytes, or says what has changed since.

Real processes, and a model's service of other people's, whose record of the requests is what is compared. Not here: kills at each commit
(`test_rounds_killed`).
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from callboard.tests.flows.cli_kit import Serving, serving
from callboard.tests.flows.model_kit import ModelServer, breaks, calls, says
from callboard.tests.flows.test_prompt_rendering import everything_in

TEAM = """
from callboard import ChatAgent, ChatModel, Team, tool
from callboard.tests.flows.prompt_day import stand_still

stand_still()

@tool("pure")
async def look() -> str:
    '''Looks.'''
    return "looked"

async def plain(turn):
    return "ok"

desk = ChatAgent(ChatModel("URL", "small-1"), "You are the desk.", tools=[look], purpose="Greets.")
team = Team(agents={"desk": desk, "plain": plain}, sessions={"/": "desk", "/plain": "plain"})
"""
LONG = "word " * 80
GOES_ON = breaks("stall", 0, stall_seconds=0)
STALLS = breaks("stall", 60, stall_seconds=600)
SETTINGS = """
team = "desks:team"
store = "URL"
lease_seconds = 3
stop_grace_seconds = 0
"""


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.mark.spec("CTX-1", "CTX-4", "CTX-6", "RT-17")
async def test_a_second_owner_asks_with_the_same_bytes_but_for_what_has_changed(
    tmp_path: Path, store_url: str, model: ModelServer
) -> None:
    """ "A turn that continues on a second owner re-renders there; the deterministic order and unchanged data give the same bytes."

    The first turn's owner is killed in its second round. The second turn's owner is stopped there, after a session was opened, which changes
    the directory and nothing else. On PostgreSQL the next process serves already: it takes over when the lease has run out, or what it is
    handed back; a file is free for it only then. And "rendered text is not stored": neither owner's, in no row of any table.
    """
    await model.reset()
    await model.plan(*(calls(("look", {})), says(LONG), says("One."), calls(("look", {})), says(LONG), says("Two.")))
    await model.plan(GOES_ON, STALLS, GOES_ON, GOES_ON, STALLS, GOES_ON)
    alone = store_url.startswith("sqlite")
    async with AsyncExitStack() as stack:

        async def owner(name: str, before: Serving | None = None, by: signal.Signals = signal.SIGKILL) -> Serving:
            """The next process; the one before is ended as soon as it may be."""
            folder = tmp_path / name
            folder.mkdir()
            (folder / "desks.py").write_text(TEAM.replace("URL", model.url))
            (folder / "callboard.toml").write_text(SETTINGS.replace("URL", store_url))
            if before is not None and alone:
                await end(before, by)
            opened = await stack.enter_async_context(serving(folder))
            if before is not None and not alone:
                await end(before, by)
            return opened

        first = await owner("first")
        one = await first.post("/", "first")
        await first.until("/", of(one, "turn.token"))  # in the second round, as the first one has no text
        second = await owner("second", first)
        await second.until("/", of(one, "turn.completed"))
        two = await second.post("/", "second")
        await second.until("/", of(two, "turn.token"))
        async with second.http as http:
            assert (await http.post("/v1/sessions", json={"agent": "plain", "path": "/new"})).status_code == 201
        third = await owner("third", second, signal.SIGTERM)
        asked: list[tuple[str, int, int, str]] = []

        def over(kind: str, data: dict[str, Any]) -> bool:
            if kind == "model.request":
                asked.append((data["message_id"], data["round"], data["attempt"], data["request_hash"]))
            return of(two, "turn.completed")(kind, data)

        await third.until("/", over)
        entries = await third.transcript("/")
    assert [entry["content"] for entry in entries if entry["role"] == "assistant"] == ["One.", "Two."]
    _, killed, again, *_, before, after = [request["body"] for request in await model.requests()]
    assert json.dumps(killed) == json.dumps(again)
    assert {name: before[name] == after[name] for name in before} == {name: name != "messages" for name in before}, (
        "the tools are the same"
    )
    hashes = [request_hash for *_, request_hash in asked]
    assert [rest for *rest, _ in asked] == [
        [message, round_, attempt] for message in (one, two) for round_, attempt in ((1, 1), (2, 1), (2, 2))
    ]
    assert (hashes[1] == hashes[2], hashes[4] == hashes[5]) == (True, False)
    changed = [pair for pair in zip(before["messages"], after["messages"], strict=True) if pair[0] != pair[1]]
    ((was, is_now),) = changed
    assert before["messages"].index(was) == 2, "behind the system's message and the date"
    assert is_now["content"].splitlines() == [*was["content"].splitlines()[:2], "- /new (plain)", "- /plain (plain)"]
    stored = everything_in(store_url)
    assert ("looked" in stored, "/new" in stored) == (True, True)
    for block in (killed["messages"][1], was, is_now):
        assert block["content"].startswith("[context: ")
        for line in block["content"].splitlines():
            assert line not in stored


def of(message: str, kind: str) -> Callable[[str, dict[str, Any]], bool]:
    """An event of a message's turn."""
    return lambda found, data: found == kind and data["message_id"] == message


async def end(server: Serving, by: signal.Signals) -> None:
    server.command.signal(by)
    assert (await server.command.end()).code == (-by if by == signal.SIGKILL else 0)
