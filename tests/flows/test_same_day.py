"""The same scripted day on a file with one process and on PostgreSQL with three: nobody could tell them apart by what they left."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from callboard.tests.contract.postgres_server import session_server
from callboard.tests.flows.cli_kit import serving
from callboard.tests.flows.same_day_script import Day, Record, recorded

TEAM = "callboard.tests.flows.same_day_team:team"


async def lived(folder: Path, stores: list[str]) -> dict[str, Record]:
    """The day on a server for each of `stores`, started at once; as each of them shows it afterwards, which must be the same."""
    async with AsyncExitStack() as stack:
        servers = []
        for n, store in enumerate(stores):
            place = folder / f"{n}"
            place.mkdir(parents=True)
            servers.append(await stack.enter_async_context(serving(place, "--team", TEAM, "--store", store)))
        day = Day(servers)
        await day.live()
        found = [await recorded(day, server) for server in servers]
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.spec("RT-17", "EVT-1", "EVT-2", "EVT-3", "MSG-1", "SES-8", "SES-10", "HND-2", "HND-3", "MSG-2")
async def test_a_day_on_a_file_and_a_day_of_three_processes_are_the_same(tmp_path: Path) -> None:
    alone = await lived(tmp_path / "file", [f"sqlite:///{tmp_path}/day.db"])
    with session_server().database() as url:
        together = await lived(tmp_path / "postgres", [url] * 3)
    assert alone.keys() == together.keys()
    for name, record in alone.items():
        assert together[name].transcript == record.transcript, name
        assert together[name].events == record.events, name
    assert len({holder for record in alone.values() for holder in record.holders}) == 1
    assert len({holder for record in together.values() for holder in record.holders}) > 1, "one process did it all"
    check_handoffs(alone["/guide"])
    kinds = {kind for record in alone.values() for kind, _ in record.events}
    assert kinds >= {
        "message.created", "turn.started", "attempt.claimed", "attempt.relinquished", "turn.token", "tool.call", "tool.result",
        "approval.required", "turn.waiting", "turn.completed", "turn.stopped", "turn.failed", "turn.handoff",
    }  # fmt: skip
    assert {"child of parent-1", "child of parent-2"} <= alone.keys()


def check_handoffs(guide: Record) -> None:
    """Each handoff stands behind its pair, once; the last is the result of the turn that made it, and of no other one."""
    kinds = [kind for kind, _ in guide.events]
    handed = [n for n, kind in enumerate(kinds) if kind == "turn.handoff"]
    assert [kinds[n - 2 : n + 1] for n in handed] == [["tool.call", "tool.result", "turn.handoff"]] * 2
    body = ("path", "channel_id", "from_path", "message_id")
    assert [tuple(guide.events[n][1][name] for name in body) for n in handed] == [
        ("/echo", "/echo", "/guide", "guide-1"),
        ("/stream", "/stream", "/guide", "guide-1"),
    ]
    last = {"path": "/stream", "channel_id": "/stream", "event_id": 1}
    ends = [(data["message_id"], data.get("handoff")) for kind, data in guide.events if kind == "turn.completed"]
    assert ends == [("guide-1", last), ("guide-3", None)], "what was steered in has no end of its own"
    ((_, _, first, *_, target),), ((_, _, then, *_, none),) = guide.transcript["guide-1"], guide.transcript["guide-3"]
    assert (first.partition("; ")[2], target) == ("I wait, guide-2", last)
    assert (then, none) == ("heard: I wait, guide-3", None)
