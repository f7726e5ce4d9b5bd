"""Places in a running board: who may write to whom, the root that is always there, opening and renaming, rules and directory over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from callboard import InvalidField, PathTaken, Tuning, Turn, UnknownTarget, open_runtime
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import NotPermitted
from callboard.storage.model.messages import Kind
from callboard.storage.model.policies import AgentsMay, By, Edge
from callboard.storage.ops.namespace import set_policy
from callboard.tests.flows.access_kit import Key, add_member, make_key, member_key
from callboard.tests.flows.edge_kit import AGENTS, Served
from callboard.tests.flows.shared_kit import shared_store
from callboard.tests.flows.turn_kit import Board, Body, calling, running


async def send_to(target: str, turn: Turn) -> str:
    return (await turn.tools.agent_send(target, "are you there?"))["status"]


def sending(target: str) -> Body[Any]:
    return partial(send_to, target)


@pytest.mark.spec("NS-4")
async def test_what_is_no_message_between_two_agents_goes_through(autojump_clock: MockClock) -> None:
    async with running(tuning=Tuning(edge=Edge.HANDOFF_ONLY)) as board:
        desk, other = await board.open(path="/"), await board.open(path="/other")
        with pytest.raises(NotPermitted):
            await board.inside(desk, sending("/other"))
        # A member's post, the start of a child, a word to it, a word from it, its result, a notice.
        assert (await board.ask(other, "hello")).outcome == "answered"
        made = await board.inside(desk, calling("agent", task="work"))
        child = await board.runtime.store.reads.session(board.scope, made["agent_id"])
        await board.until(child, "turn.completed")
        assert await board.inside(desk, sending(child.id)) == "pending"
        assert await board.inside(child, sending(desk.id)) == "pending"
        with pytest.raises(NotPermitted):
            await board.inside(child, sending(other.id))
        await board.post(other, "something", sender=board.ann, kind=Kind.NOTICE)
        texts = await board.texts(desk, "notice")
        assert texts == ["echo work"], "the child's result"
        # A project's own rule stands above the installation's setting.
        await board.runtime.store.apply(set_policy(board.scope, "/", edge=Edge.COLLABORATE))
        assert await board.inside(desk, sending("/other")) == "pending"


@pytest.mark.spec("NS-4")
async def test_a_rule_for_a_prefix_is_about_both_ends(board: Board, autojump_clock: MockClock) -> None:
    desk, deploy, free = [await board.open(path=path) for path in ("/", "/ops/deploy", "/free")]
    await board.runtime.store.apply(set_policy(board.scope, "/ops", edge=Edge.HANDOFF_ONLY))
    for source, target in ((desk, deploy), (deploy, desk)):
        with pytest.raises(NotPermitted):
            await board.inside(source, sending(target.id))
    assert await board.inside(desk, sending("/free")) == "pending"
    await board.runtime.desk.rename(board.scope, free.id, path="/ops/free")
    with pytest.raises(NotPermitted):
        await board.inside(desk, sending("/free"))


@pytest.mark.spec("NS-4")
async def test_a_child_goes_by_the_rules_of_the_session_that_it_was_started_for(
    board: Board, autojump_clock: MockClock
) -> None:
    deploy, research = await board.open(path="/ops/deploy"), await board.open(path="/research")
    await board.runtime.store.apply(set_policy(board.scope, "/ops", edge=Edge.HANDOFF_ONLY))
    started = await board.inside(deploy, calling("agent", task="look around"))
    child = await board.runtime.store.reads.session(board.scope, started["agent_id"])
    for source, target in ((child, research), (research, child)):
        with pytest.raises(NotPermitted, match="connect_user"):
            await board.inside(source, sending(target.id))
    assert await board.inside(child, sending(deploy.id)) == "pending"


@pytest.mark.spec("NS-3")
async def test_the_root_is_there_at_its_first_use_with_the_default_agent(store_url: str) -> None:
    """ "Must it always exist, what is its bot, is it where an unrouted conversation starts": at its first use, whoever comes later."""
    async with running({"second": AGENTS["silent"]}, url=store_url) as board:
        runtime = board.runtime
        assert await runtime.list_sessions() == ()
        receipt = await runtime.send("/", "hello")
        assert (await runtime.wait(receipt.message_id)).outcome == "answered"
        (root,) = await runtime.list_sessions()
        assert (root.path, root.agent) == ("/", "agent")
        # Another project has one as soon as there is such a project, and not before.
        unknown, known = Scope(project="unknown"), Scope(project="known")
        with pytest.raises(UnknownTarget):
            await runtime.desk.find(unknown, "/")
        assert not await runtime.store.reads.project_known(unknown)
        await runtime.desk.open(known, "second")
        assert (await runtime.desk.find(known, "/")).agent == "agent"
        with pytest.raises(PathTaken):
            await runtime.desk.open(known, "second", path="/", by=By.MEMBER)
        third = Scope(project="third")
        opened = await runtime.desk.open(third, "second", path="/")
        assert opened.session.agent == "second", "the operator's choice"
        assert (await runtime.desk.find(third, "/")).agent == "second"
    # Another process, whose first agent is another one, finds the same.
    async with open_runtime(store_url, agents={"other": AGENTS["silent"], "agent": AGENTS["silent"]}) as later:
        assert (await later.desk.find(later.scope, "/")).id == root.id
        assert [session.agent for session in await later.list_sessions() if session.path == "/"] == ["agent"]


@pytest.mark.spec("NS-3")
async def test_an_agent_opens_and_renames_as_the_rules_say(board: Board, autojump_clock: MockClock) -> None:
    desk = await board.open(path="/")

    async def create(turn: Turn) -> str | None:
        return (await turn.desk.open(turn.scope, "agent", path="/made")).session.path

    async def rename(turn: Turn) -> str | None:
        made = await turn.desk.find(turn.scope, "/made")
        return (await turn.desk.rename(turn.scope, made.id, path="/moved")).path

    with pytest.raises(NotPermitted):
        await board.inside(desk, create)
    await board.runtime.store.apply(set_policy(board.scope, "/", agents=AgentsMay.CREATE))
    assert await board.inside(desk, create) == "/made"
    with pytest.raises(NotPermitted):
        await board.inside(desk, rename)
    await board.runtime.store.apply(set_policy(board.scope, "/", agents=AgentsMay.RENAME))
    assert await board.inside(desk, rename) == "/moved"


@pytest.mark.spec("NS-3", "NS-1")
async def test_a_rename_over_http_keeps_the_id_and_the_old_path_leads_there(served: Served) -> None:
    ann = await member_key(served, "ann")
    session, taken = await served.open(path="/ops/deploy"), await served.open(path="/taken")
    await served.say(session, "echo before")
    url = f"/v1/sessions/{session}"
    changed = await served.client.patch(url, json={"path": "/ops/release", "title": "Release"}, headers=ann.headers)
    assert changed.status_code == 200
    assert (changed.json()["id"], changed.json()["path"], changed.json()["title"]) == (
        session,
        "/ops/release",
        "Release",
    )
    found = (await served.client.get("/v1/sessions", params={"path": "/ops/deploy"})).json()["sessions"]
    assert [(one["id"], one["path"], one["moved_from"]) for one in found] == [(session, "/ops/release", "/ops/deploy")]
    (now,) = (await served.client.get("/v1/sessions", params={"path": "/ops/release"})).json()["sessions"]
    assert "moved_from" not in now
    transcript = (await served.client.get(f"{url}/transcript")).json()["entries"]
    assert [entry["content"] for entry in transcript] == ["echo before", "before"]
    root = (await served.client.get("/v1/sessions", params={"path": "/"})).json()["sessions"][0]["id"]
    await served.refused("PATCH", url, 409, "path_taken", json={"path": "/taken"})
    await served.refused("PATCH", f"/v1/sessions/{root}", 409, "conflict", json={"path": "/elsewhere"})
    await served.refused("PATCH", f"/v1/sessions/{taken}", 409, "conflict", json={"path": "/"})
    for wrong, path in (
        ({}, "title"),
        ({"path": "/Ops"}, "path"),
        ({"path": ""}, "path"),
        ({"path": "/a", "x": 1}, "x"),
    ):
        error = await served.refused("PATCH", url, 400, "invalid_field", json=wrong)
        assert error["path"] == path
    # What was given up is the operator's to give away.
    member = {"agent": "desk", "path": "/ops/deploy"}
    await served.refused("POST", "/v1/sessions", 409, "path_taken", json=member, headers=ann.headers)
    given = await served.client.post("/v1/sessions", json=member)
    assert given.status_code == 201
    (now,) = (await served.client.get("/v1/sessions", params={"path": "/ops/deploy"})).json()["sessions"]
    assert now["id"] == given.json()["id"]


@pytest.fixture
async def shop(served: Served) -> Key:
    """A member of a project in which nothing was ever opened."""
    await add_member(served, "bea", "shop")
    return await make_key(served, member="bea")


@pytest.mark.spec("NS-3")
async def test_a_members_new_project_has_its_root_at_first_use(served: Served, shop: Key) -> None:
    (root,) = (await served.client.get("/v1/sessions", params={"path": "/"}, headers=shop.headers)).json()["sessions"]
    assert (root["path"], root["agent"]) == ("/", "desk")
    taking = {"agent": "counter", "path": "/"}
    await served.refused("POST", "/v1/sessions", 409, "path_taken", json=taking, headers=shop.headers)
    posted = await served.client.post(
        f"/v1/sessions/{root['id']}/messages", json={"content": "echo hi"}, headers=shop.headers
    )
    assert posted.status_code == 202
    # A name that nobody has used is not made by asking.
    nobody = {"Callboard-Project": "never-used"}
    for path in ("/v1/directory", "/v1/sessions?path=/"):
        answer = (await served.client.get(path, headers=nobody)).json()
        assert answer.get("entries", answer.get("sessions")) == []
    assert not await served.runtime.store.reads.project_known(Scope(project="never-used"))


@pytest.mark.spec("NS-3", "NS-5")
async def test_the_directory_has_the_root_first_and_ends_at_the_project(served: Served, shop: Key) -> None:
    deploy = await served.open("broken", path="/ops/deploy", title="Deploy")
    await served.open(path="/a")
    await served.open()
    await served.client.put("/v1/policy", json={"prefix": "/ops", "confirm": True})
    answer = (await served.client.get("/v1/directory")).json()
    assert (answer["has_more"], answer["next"]) == (False, None)
    assert [entry["path"] for entry in answer["entries"]] == ["/", "/a", "/ops/deploy"]
    assert answer["entries"][2] == {
        "path": "/ops/deploy", "session": deploy, "agent": "broken", "purpose": "", "title": "Deploy", "confirm": True,
    }  # fmt: skip
    page = (await served.client.get("/v1/directory", params={"limit": 2})).json()
    assert [entry["path"] for entry in page["entries"]] == ["/", "/a"]
    rest = (await served.client.get("/v1/directory", params={"limit": 2, "cursor": page["next"]})).json()
    assert ([entry["path"] for entry in rest["entries"]], rest["has_more"]) == (["/ops/deploy"], False)
    await served.refused("GET", "/v1/directory?cursor=x", 400, "invalid_field")
    theirs = (await served.client.get("/v1/directory", headers=shop.headers)).json()["entries"]
    assert [(entry["path"], entry["agent"]) for entry in theirs] == [("/", "desk")]


@pytest.mark.spec("NS-4")
async def test_rules_over_http(served: Served) -> None:
    project = {"edge": "collaborate", "agents": "none", "handoff": True, "confirm": False}
    assert (await served.client.get("/v1/policy")).json() == {"rules": [], "project": project}
    await served.client.put("/v1/policy", json={"prefix": "/ops", "confirm": True, "handoff": False})
    answer = await served.client.put("/v1/policy", json={"prefix": "/", "edge": "handoff_only", "agents": "rename"})
    expected: dict[str, Any] = {
        "rules": [
            {"prefix": "/", "edge": "handoff_only", "agents": "rename"},
            {"prefix": "/ops", "handoff": False, "confirm": True},
        ],
        "project": {**project, "edge": "handoff_only", "agents": "rename"},
    }
    assert (answer.status_code, answer.json()) == (200, expected)
    assert (await served.client.get("/v1/policy")).json() == expected
    await served.open(path="/ops/deploy")
    asked = await served.open()
    await served.say(asked, "ask /ops/deploy echo hi")
    (said,) = [entry.content for entry in await served.runtime.read(asked) if entry.role == "assistant"]
    assert "connect_user" in said
    gone = await served.client.put("/v1/policy", json={"prefix": "/ops"})
    assert gone.json()["rules"] == expected["rules"][:1]
    for wrong, path in (
        ({"prefix": "/ops/"}, "prefix"),
        ({"prefix": "/", "edge": "sometimes"}, "edge"),
        ({"prefix": "/", "confirm": 1}, "confirm"),
        ({"edge": "collaborate"}, "prefix"),
        ({"prefix": "/", "more": 1}, "more"),
    ):
        error = await served.refused("PUT", "/v1/policy", 400, "invalid_field", json=wrong)
        assert error["path"] == path


async def test_what_is_not_asked_for_properly_names_the_field(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open(path="/here")
    with pytest.raises(InvalidField) as caught:
        await board.runtime.desk.rename(board.scope, session.id, path="/There")
    assert caught.value.path == "path"


@pytest.mark.spec("NS-3", "NS-4", "RT-17")
async def test_a_rename_and_a_rule_hold_in_every_process(tmp_path: Path) -> None:
    async with shared_store(tmp_path, size=2) as shared:
        one, two = shared.all
        deploy, asker = await one.open(path="/ops/deploy"), await one.open()
        await one.client.patch(f"/v1/sessions/{deploy}", json={"path": "/ops/release"})
        (found,) = (await two.client.get("/v1/sessions", params={"path": "/ops/deploy"})).json()["sessions"]
        assert (found["id"], found["path"], found["moved_from"]) == (deploy, "/ops/release", "/ops/deploy")
        await two.client.put("/v1/policy", json={"prefix": "/", "edge": "handoff_only"})
        for served in shared.all:
            await served.say(asker, "ask /ops/deploy echo hi")
        said = [entry.content for entry in await two.runtime.read(asker) if entry.role == "assistant"]
        assert len(said) == 2
        assert all("connect_user" in text for text in said)
        await one.client.put("/v1/policy", json={"prefix": "/", "edge": "collaborate"})
        await two.say(asker, "ask /ops/deploy echo hi")
        assert (await one.runtime.read(deploy))[0].content == "echo hi"
