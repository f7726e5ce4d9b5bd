"""Health and readiness: whether work can be taken, and what stands in the way; and the tree for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio

from callboard.actors.edges.app import make_app
from callboard.actors.edges.auth import Auth, Principal
from callboard.actors.edges.edge import Edge, Pace
from callboard.actors.ports import Tuning
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import StoreFull
from callboard.supervisors.tree import Node, State
from callboard.tests.flows.edge_kit import AGENTS, DEADLINE, Served, serving_runtime


@pytest.mark.spec("OPS-4")
async def test_health_needs_no_token_and_names_nothing_else(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=DEADLINE) as nobody:
        answer = await nobody.get("/healthz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "failing": [], "stuck": []})
        answer = await nobody.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
        assert (await nobody.get("/healthz?verbose=1")).status_code == 400


@attrs.frozen
class Tree:
    """A tree as a test wants it."""

    states: dict[str, str]

    def snapshot(self) -> Node:
        children: Any = tuple(Node(name, "worker", state, 0, 0.0) for name, state in self.states.items())  # type: ignore[arg-type]
        return Node("callboard", "supervisor", "running", 0, 0.0, children)  # type: ignore[arg-type]


async def ask_app(edge: Edge, path: str, *, stopping: bool = False) -> httpx.Response:
    """Ask the application without a front before it."""
    event = trio.Event()
    if stopping:
        event.set()

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await make_app(edge)({**scope, "state": {"stopping": event}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_state), base_url="http://test") as client:
        return await client.get(path)


@pytest.mark.spec("OPS-4")
async def test_a_part_that_does_not_run_is_named(served: Served) -> None:
    auth = Auth("x", Principal(Sender("x", "member"), Scope()), served.runtime.store)
    for state in set(State) - {State.RUNNING, State.STOPPING}:
        edge = Edge(desk=served.runtime.desk, tree=Tree({"store": "running", "dispatcher": state}), auth=auth)
        answer = await ask_app(edge, "/healthz")
        found = answer.status_code, answer.json()
        assert found == (503, {"status": "failing", "failing": ["dispatcher"], "stuck": []}), state
        assert answer.headers["retry-after"] == "1"
        assert (await ask_app(edge, "/readyz")).status_code == 503


@pytest.mark.spec("OPS-4")
async def test_a_process_that_ends_is_healthy_but_not_ready(served: Served) -> None:
    auth = Auth("x", Principal(Sender("x", "member"), Scope()), served.runtime.store)
    edge = Edge(desk=served.runtime.desk, tree=Tree({"store": "running", "front": "stopping"}), auth=auth)
    assert (await ask_app(edge, "/healthz")).status_code == 200
    assert (await ask_app(edge, "/readyz")).status_code == 200
    assert (await ask_app(edge, "/readyz", stopping=True)).status_code == 503
    await served.runtime.dispatcher.shut_down(0)
    assert (await served.client.get("/healthz")).status_code == 200
    answer = await served.client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not_ready"})


@pytest.mark.spec("OPS-4")
async def test_a_store_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_runtime(tmp_path, pace=Pace(health=0.05)) as served:
        with monkeypatch.context() as patch:
            patch.setattr(served.runtime.store.reads, "stuck", trio.sleep_forever)
            answer = await served.client.get("/healthz")
            assert (answer.status_code, answer.json()["failing"]) == (503, ["store_slow"])
            assert (await served.client.get("/readyz")).status_code == 503
        assert (await served.client.get("/healthz")).status_code == 200


@pytest.mark.spec("RT-6")
async def test_health_names_a_stuck_session(tmp_path: Path) -> None:
    release = trio.Event()

    async def stubborn(turn: Any) -> None:
        await turn.emit("started")
        with trio.CancelScope(shield=True):
            await release.wait()

    tuning = Tuning(stop_grace_seconds=0.05, stuck_after_seconds=0.05)
    async with serving_runtime(tmp_path, agents={**AGENTS, "stubborn": stubborn}, tuning=tuning) as served:
        session = await served.open("stubborn")
        await served.post(session, "work")
        await served.until(session, "turn.token")
        await served.client.post(f"/v1/sessions/{session}/stop")
        await served.until(session, "turn.stopped")
        answer = await served.client.get("/healthz")
        assert (answer.status_code, answer.json()["stuck"]) == (200, [session])
        release.set()


async def test_the_tree_is_shown(served: Served) -> None:
    tree = (await served.client.get("/v1/tree")).json()
    assert (tree["name"], tree["kind"], tree["state"]) == ("callboard", "supervisor", "running")
    assert set(tree) == {"name", "kind", "state", "restarts", "since", "children"}
    names = [child["name"] for child in tree["children"]]
    assert names[0] == "store"
    assert names[-2:] == ["connections", "front"]
    connections = tree["children"][-2]["children"]
    assert len(connections) == 1
    assert connections[0]["name"].startswith("connection-")


@pytest.mark.spec("OPS-4")
async def test_a_store_that_refuses_every_batch_is_no_health(served: Served) -> None:
    commit = served.runtime.store._commit
    driver = commit._driver

    class Full:
        rides = False

        async def apply(self, ops: Any, meanwhile: Any = None) -> Any:
            raise StoreFull("no space is left", path="/somewhere/secret.db")

    commit._driver = Full()
    answer = await served.client.post("/v1/sessions", json={"agent": "desk"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_full")
    assert int(answer.headers["Retry-After"]) >= 1
    assert "secret" not in answer.text
    health = await served.client.get("/healthz")
    assert (health.status_code, health.json()["failing"]) == (503, ["store_full"])
    assert (await served.client.get("/readyz")).status_code == 503
    commit._driver = driver
    assert (await served.client.post("/v1/sessions", json={"agent": "desk"})).status_code == 201
    assert (await served.client.get("/healthz")).status_code == 200
