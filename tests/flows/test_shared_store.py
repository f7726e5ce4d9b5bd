"""Several runtimes on one PostgreSQL store: what one of them is asked reaches the turn, or the reader, that another one has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

import callboard
from callboard.storage.model.errors import Denied
from callboard.storage.model.messages import Kind
from callboard.storage.model.sessions import Session
from callboard.storage.ops import OpenSession, PruneEvents, PruneMessages, PruneProcesses
from callboard.storage.store import open_store
from callboard.supervisors.demo import demonstration
from callboard.supervisors.runtime import Runtime, open_runtime
from callboard.supervisors.team import open_places
from callboard.tests.contract.postgres_server import session_server
from callboard.tests.flows.edge_kit import AGENTS
from callboard.tests.flows.shared_kit import shared_store
from callboard.tests.flows.turn_kit import Gate

# Nothing but a hint can be as quick: leases are renewed each ten seconds, and questions looked at each five.
PROMPT_SECONDS = 3.0
TERMINAL = {"turn.completed", "turn.failed", "turn.stopped"}


@callboard.tool("external", needs_approval=True)
async def charge(amount: int) -> str:
    return f"charged {amount}"


async def cashier(turn: callboard.Turn) -> str:
    try:
        return str(await turn.step(charge, amount=5))
    except Denied as refusal:
        return f"not allowed: {refusal.message}"


async def parent(turn: callboard.Turn) -> str:
    """Starts a child that has half a second; hears of its end."""
    if turn.message.kind == Kind.SUBAGENT_RESULT:
        return f"heard: {turn.message.content}"
    await turn.tools.agent("work", agent="patient", timeout_s=0.5)
    return "started"


@pytest.mark.spec("RT-17", "RT-4")
async def test_a_stop_reaches_a_turn_that_another_process_runs(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        session = await shared.all[0].open("patient")
        await shared.all[0].post(session, "work", message_id="m-1")
        await shared.all[1].until(session, "turn.token")
        _, other = await shared.runner("m-1")
        with trio.fail_after(PROMPT_SECONDS):
            assert (await other.client.post(f"/v1/sessions/{session}/stop")).status_code == 202
            await other.until(session, "turn.stopped")
        assert (await other.runtime.receipt("m-1")).outcome == "stopped"


@pytest.mark.spec("RT-17", "EVT-6")
async def test_a_question_is_answered_in_another_process(tmp_path: Path) -> None:
    async with shared_store(tmp_path, agents={"cashier": cashier}) as shared:
        session = await shared.all[0].open("cashier")
        await shared.all[0].post(session, "go", message_id="m-1")
        await shared.all[1].until(session, "turn.waiting")
        _, other = await shared.runner("m-1")
        (asked,) = [data["approval_id"] for _, kind, data in await other.log(session) if kind == "turn.waiting"]
        with trio.fail_after(PROMPT_SECONDS):
            assert (await other.client.post(f"/v1/approvals/{asked}", json={"approve": True})).status_code == 200
            await other.until(session, "turn.completed")
        assert [entry.content for entry in await other.runtime.read(session)][-1] == "charged 5"
        # The same word again from a third one changes nothing; another one is too late.
        for served in shared.all:
            assert (await served.client.post(f"/v1/approvals/{asked}", json={"approve": True})).status_code == 200
            assert (await served.client.post(f"/v1/approvals/{asked}", json={"approve": False})).status_code == 409


@pytest.mark.spec("RT-17", "SES-8")
async def test_a_child_s_time_ends_wherever_it_runs_and_its_parent_hears_once(tmp_path: Path) -> None:
    async with shared_store(tmp_path, agents={"parent": parent, "patient": AGENTS["patient"]}) as shared:
        session = await shared.all[0].open("parent")
        await shared.all[1].post(session, "begin")
        heard = 0
        async with shared.all[2].runtime.follow(session) as events:
            async for event in events:
                heard += event.kind in TERMINAL
                if heard == 2:
                    break
        contents = [entry.content for entry in await shared.all[0].runtime.read(session)]
        assert contents[1] == "started"
        assert contents[-1] == "heard: The subagent failed: expired."
        assert contents.count("The subagent failed: expired.") == 1
        (child,) = [found for found in await shared.all[0].runtime.list_sessions() if found.parent == session]
        assert (child.child_state, child.status) == ("failed", "idle")


@pytest.mark.spec("RT-17", "INB-4")
async def test_the_same_send_to_all_processes_at_once_is_one_message(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        session = await shared.all[0].open()
        receipts: list[tuple[bool, int]] = []

        async def send(n: int) -> None:
            receipt = await shared.all[n % 3].post(session, "echo once", message_id="m-1")
            receipts.append((receipt["created"], receipt["seq"]))

        async with trio.open_nursery() as nursery:
            for n in range(9):
                nursery.start_soon(send, n)
        assert Counter(created for created, _ in receipts) == {True: 1, False: 8}
        assert {seq for _, seq in receipts} == {1}
        await shared.all[0].runtime.wait("m-1")
        assert [entry.content for entry in await shared.all[1].runtime.read(session)] == ["echo once", "once"]


@pytest.mark.spec("RT-17")
async def test_teams_that_start_at_once_have_the_same_sessions() -> None:
    team = demonstration()
    with session_server().database() as url:
        found: list[dict[str, str]] = []

        async def start() -> None:
            async with open_runtime(url, agents=team.agents) as runtime:
                await open_places(runtime, team)
                found.append({str(session.path): session.id for session in await runtime.list_sessions()})

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(start)
    assert len(found) == 3
    assert found[0].keys() == {"/", "/ops/deploy", "/research/pricing"}
    assert found[0] == found[1] == found[2]


@pytest.mark.spec("RT-17", "NS-3")
async def test_two_processes_that_use_a_new_project_at_once_find_one_root() -> None:
    """Two runtimes over one store, each with another first agent. Both have looked for the root, and found none, before either opens it."""
    agents = [{name: AGENTS["desk"]} for name in ("one", "other")]
    with session_server().database() as url:
        async with open_runtime(url, agents=agents[0]) as one, open_runtime(url, agents=agents[1]) as other:
            found: list[Session] = []
            gates: list[Gate] = []

            async def use(runtime: Runtime) -> None:
                found.append(await runtime.desk.find(runtime.scope, "/"))

            async with trio.open_nursery() as nursery:
                for runtime in (one, other):
                    gate = runtime.store._commit._driver = Gate(runtime.store._commit._driver)
                    gate.close(OpenSession)
                    gates.append(gate)
                    nursery.start_soon(use, runtime)
                    await gate.waiting.wait()
                for gate in gates:
                    gate.open()
            listed = [await runtime.list_sessions() for runtime in (one, other)]
        assert [root.path for root in found] == ["/", "/"]
        assert [[session.id for session in sessions] for sessions in listed] == [[found[0].id], [found[1].id]]
        assert found[0] == found[1]


@pytest.mark.spec("RT-17", "EVT-3", "INB-12")
async def test_janitors_of_all_processes_prune_what_there_is_once() -> None:
    with session_server().database() as url:
        async with open_runtime(url, agents={"desk": AGENTS["desk"]}) as runtime:
            session = await runtime.open_session(agent="desk", path="/")
            for n in range(20):
                await runtime.send("/", f"echo {n}", message_id=f"m-{n}")
            await runtime.wait("m-19")
            before = [entry.content for entry in await runtime.read("/")]
            events = (await runtime.store.reads.events(runtime.scope, session.id)).events
        gone: list[int] = []

        async def prune() -> None:
            async with open_store(url) as store, trio.open_nursery() as nursery:
                await nursery.start(store.run)
                while deleted := await store.apply(PruneEvents(-1.0, limit=7)):
                    gone.append(deleted)
                while True:
                    pruned = await store.apply(PruneMessages(None, -1.0, limit=3))
                    gone.append(1_000 * pruned.blanked)
                    if not pruned.more:
                        break
                await store.apply(PruneProcesses())
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(prune)
        kept = {"message.created", *TERMINAL}
        assert sum(gone) == 20_000 + sum(event.kind not in kept for event in events)
        async with open_store(url) as store:
            page = await store.reads.events(runtime.scope, session.id)
            assert [event.kind for event in page.events] == [event.kind for event in events if event.kind in kept]
            assert [entry.content for entry in await store.reads.transcript(runtime.scope, session.id)] == before


@pytest.mark.spec("OPS-4", "RT-17")
async def test_each_process_is_named_and_forgotten_when_it_leaves_in_order(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        session = await shared.all[0].open("patient")
        await shared.all[0].post(session, "work", message_id="m-1")
        await shared.all[0].until(session, "turn.token")
        own, other = await shared.runner("m-1")
        for served in shared.all:
            report = (await served.client.get("/v1/doctor")).json()
            listed = {process["name"]: process for process in report["processes"]}
            assert listed.keys() == {each.runtime.process for each in shared.all}
            assert all(0 <= process["seen_seconds"] < 10 for process in listed.values())
            assert {name: process["turns"] for name, process in listed.items()} == {
                name: int(name == own.runtime.process) for name in listed
            }
            checks = {check["name"]: check["detail"] for check in report["checks"]}
            assert "1 held" in checks["leases"]
            assert "is open, accepted" in checks["oldest"]
            assert shared.url.partition("?")[0].rpartition("/")[2] in checks["store"]
        # What the store holds is told by each alike; how many turns live, of its own alone.
        for served, live in ((own, 1.0), (other, 0.0)):
            metrics = (await served.client.get("/metrics")).text.splitlines()
            assert "callboard_leases 1.0" in metrics
            assert f"callboard_turns_live {live}" in metrics
        await other.client.post(f"/v1/sessions/{session}/stop")
        await other.until(session, "turn.stopped")
        async with open_runtime(shared.url, agents=AGENTS) as passing:
            name = passing.process
            while name not in {process.name for process in await own.runtime.store.reads.processes(0.0)}:
                await trio.lowlevel.checkpoint()
        left = {process.name for process in await own.runtime.store.reads.processes(0.0)}
        assert left == {each.runtime.process for each in shared.all}
