"""The commands on paths and rules: the same answers from a running server and from the store itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.supervisors.demo import demonstration
from callboard.supervisors.team import open_places
from callboard.tests.flows.cli_kit import Here, Local, serving
from callboard.tests.unit.hostile_kit import TITLES


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """A folder whose store has the team's sessions."""

    async def seed() -> None:
        team = demonstration()
        async with callboard.open_runtime(f"sqlite:///{tmp_path}/callboard.db", agents=team.agents) as runtime:
            await open_places(runtime, team)

    trio.run(seed)
    return tmp_path


PROJECT = {"edge": "collaborate", "agents": "none", "handoff": True, "confirm": False}


@pytest.mark.spec("NS-2", "NS-3")
def test_a_rename_and_the_tree(seeded: Path, local: Local) -> None:
    before = local("sessions", "list", "--tree", folder=seeded).out.splitlines()
    assert before == [
        "/            front-desk",
        "  ops",
        "    deploy   deploy",
        "  research",
        "    pricing  pricing",
    ]
    local("policy", "set", "/ops", "--confirm", folder=seeded)
    changed = local("sessions", "rename", "/ops/deploy", "/ops/release", "--title", "Release", folder=seeded)
    assert changed.out == "/ops/release: Release\n"
    after = local("sessions", "list", "--tree", folder=seeded).out.splitlines()
    assert after[2] == "    release  deploy (asks first)  Release"
    moved = local("sessions", "list", "--path", "/ops/deploy", "--json", folder=seeded).json["sessions"]
    assert [(one["path"], one["moved_from"]) for one in moved] == [("/ops/release", "/ops/deploy")]
    assert local("sessions", "read", "/ops/deploy", "--json", folder=seeded).json == {"entries": []}
    assert "root" in local("sessions", "rename", "/", "/main", folder=seeded).refusal
    assert (
        "names another session"
        in local("sessions", "rename", "/ops/release", "/research/pricing", folder=seeded).refusal
    )
    assert "required" in local("sessions", "rename", "/ops/release", folder=seeded).refusal
    assert "must not end with /" in local("sessions", "rename", "/ops/release", "/ops/", folder=seeded).refusal


def test_a_title_stays_on_its_line(seeded: Path, local: Local) -> None:
    """ "Template syntax, markup, control characters, right-to-left marks and 10,000-character titles stay inert": no line is made by one."""
    for title in TITLES:
        changed = local("sessions", "rename", "/ops/deploy", "--title", title, folder=seeded).out
        tree = local("sessions", "list", "--tree", folder=seeded).out
        listed = local("sessions", "list", folder=seeded).out
        for shown, lines in ((changed, 1), (tree, 5), (listed, 4)):
            assert (shown.count("\n"), len(shown.splitlines())) == (lines, lines), title
            assert shown.replace("\n", "").isprintable(), title
        (place,) = [line for line in tree.splitlines() if line.startswith("    deploy ")]
        assert place.startswith("    deploy   deploy  ")
        told = local("sessions", "list", "--path", "/ops/deploy", "--json", folder=seeded).json["sessions"][0]
        assert told["title"] == title, "a program is told the title as it is"
    refused = local("sessions", "rename", "/ops/deploy", "--title", "t" * 10_000, folder=seeded).refusal
    assert refused.startswith("title: ")
    assert len(refused) < 100


@pytest.mark.spec("NS-4")
async def test_the_answers_are_the_same_with_a_server_and_without(seeded: Path, here: Here) -> None:
    commands = (
        ("policy", "list"),
        ("policy", "set", "/", "--edge", "handoff_only", "--agents", "create"),
        ("policy", "set", "/ops", "--no-handoff", "--confirm"),
        ("policy", "list"),
        ("policy", "set", "/ops"),
        ("policy", "set", "/", "--project", "shop", "--confirm"),
        ("policy", "list", "--project", "shop"),
        ("policy", "set", "/", "--project", "shop"),
        ("policy", "set", "/"),
    )
    online: list[Any] = []
    async with serving(seeded):
        for command in commands:
            online.append((await here(*command, "--json", folder=seeded)).json)
        renamed = (await here("sessions", "rename", "/ops/deploy", "/ops/release", "--json", folder=seeded)).json
        tree = (await here("sessions", "list", "--tree", "--json", folder=seeded)).json["entries"]
    assert (renamed["path"], [entry["path"] for entry in tree]) == (
        "/ops/release",
        ["/", "/ops/release", "/research/pricing"],
    )
    assert tree[1]["purpose"] == "Pretends to deploy things."
    offline = [(await here(*command, "--json", folder=seeded)).json for command in commands]
    assert offline == online
    assert online[0] == online[-1] == {"rules": [], "project": PROJECT}
    assert online[3]["rules"] == [
        {"prefix": "/", "edge": "handoff_only", "agents": "create"},
        {"prefix": "/ops", "handoff": False, "confirm": True},
    ]
    assert online[6]["project"] == {**PROJECT, "confirm": True}
    assert online[7]["rules"] == []
    shown = await here("policy", "set", "/ops", "--no-handoff", folder=seeded)
    assert [line.split() for line in shown.out.splitlines()] == [
        ["PREFIX", "EDGE", "AGENTS", "MAY", "HANDOFF", "CONFIRM"],
        ["/ops", "-", "-", "no", "-"],
        ["(project)", "collaborate", "none", "yes", "no"],
    ]


@pytest.mark.spec("NS-4")
async def test_the_setting_holds_where_no_rule_does(seeded: Path, here: Here) -> None:
    async with serving(seeded, CALLBOARD_EDGE_POLICY="handoff_only") as server:
        assert (await here("policy", "list", "--json", folder=seeded)).json["project"]["edge"] == "handoff_only"
        await server.post("/", "ask /ops/deploy echo hi")
        await server.until("/", lambda kind, data: "connect_user" in data.get("content", ""))
        assert await server.transcript("/ops/deploy") == []
        await here("policy", "set", "/", "--edge", "collaborate", folder=seeded)
        await server.post("/", "ask /ops/deploy echo hi")
        await server.until("/", lambda _, data: data.get("content") == "/ops/deploy answered: hi")


@pytest.mark.spec("NS-3")
async def test_a_rename_keeps_no_server_from_starting(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.http as http:
        for old, new in (("/ops/deploy", "/ops/ship"), ("/research/pricing", "/ops/deploy")):
            moved = await http.patch(f"/v1/sessions/{await server.session(old)}", json={"path": new})
            assert moved.status_code == 200
    async with serving(tmp_path) as server, server.http as http:
        entries = (await http.get("/v1/directory")).json()["entries"]
        found = {entry["path"]: entry["agent"] for entry in entries}
    assert found == {"/": "front-desk", "/ops/ship": "deploy", "/ops/deploy": "pricing"}
