"""connect_user on workers that have nothing: no workspace, no other tool, and no idea of the agent that they bring people to.

Through a model: what it is offered in its first request, and what the next one tells it. Not here: the recorded pair (`test_handoff`), the
event on its way (`test_handoff_streams`). The workers are runtimes over one store: side by side on PostgreSQL, one after the other on a
file, which one process has at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from callboard import ChatAgent, Turn
from callboard.actors.session.tools import SCHEMAS
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import NotPermitted
from callboard.storage.model.sessions import Session
from callboard.storage.ops import RecordStep
from callboard.storage.ops.namespace import set_policy
from callboard.tests.contract.postgres_server import session_server
from callboard.tests.flows.chat_kit import WrittenModel, asks, results, text
from callboard.tests.flows.turn_kit import Board, running

pytestmark = pytest.mark.spec("HND-1")


async def test_a_worker_without_workspace_or_the_targets_agent_hands_over(store_url: str) -> None:
    """ "Schema registered on every owner"; "it needs no computer, so a computerless worker runs it".

    Its result tells the model that the path exists and the handoff was recorded. The one worker knows the agent `deploy` and all agent tools;
    the other has neither, and no workspace: it has connect_user alone, with the same schema, from its first request on.
    """
    full, bare = WrittenModel([text("I deploy.")]), WrittenModel()
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(running({"deploy": ChatAgent(full)}, url=store_url))
        deploy = await owner.open("deploy", path="/ops/deploy")
        await owner.ask(deploy, "who are you?")
        if store_url.startswith("sqlite"):
            await stack.aclose()
        async with running({"desk": ChatAgent(bare, agent_tools=False)}, url=store_url) as worker:
            assert "deploy" not in worker.runtime.desk.agents
            desk = await worker.open("desk", path="/desk")
            bare.answers += [asks(("connect_user", {"path": "/ops/deploy"})), text("Taking you to deploy.")]
            view = await worker.ask(desk, "take me to deploy")
            (handed,) = await worker.events(desk, "turn.handoff")
            kinds = await worker.kinds(desk)
    assert view.outcome == "answered"
    assert [result for _, result in results(bare.prompts[1])] == [
        {"status": "recorded", "path": "/ops/deploy", "channel_id": deploy.id}
    ]
    assert (handed.data["path"], handed.data["channel_id"], handed.data["from_path"]) == (
        "/ops/deploy",
        deploy.id,
        "/desk",
    )
    assert [kind for kind in kinds if kind.startswith("tool.") or kind == "turn.handoff"] == [
        *("tool.call", "tool.result", "turn.handoff")
    ]
    first = [{spec.name: spec for spec in model.prompts[0].tools} for model in (full, bare)]
    assert (first[0].keys(), first[1].keys()) == (SCHEMAS.keys(), {"connect_user"})
    assert first[0]["connect_user"] == first[1]["connect_user"]
    # It tells of the place, but not of what it is for: this process does not know its agent.
    assert bare.blocks(0)["directory"].splitlines()[1:] == ["- /ops/deploy (deploy)"]


@pytest.mark.spec("HND-2", "NS-3")
async def test_why_not_is_what_the_next_request_tells_also_of_what_another_process_has_changed(store_url: str) -> None:
    """ "Its result tells the model whether the path exists and the handoff was recorded, or why not (unknown path, not permitted)".

    "The server resolves the path to a channel_id and checks permission before emitting": the owner makes the places and, behind handoffs of
    the worker's to all of them, a rule, a rename, a rename to below the rule, and a deletion; then it lifts the rule.
    """
    paths = ("/ops/deploy", "/secret", "/free", "/gone")
    model, ids, told = WrittenModel(), dict[str, str](), list[list[dict[str, Any]]]()
    handed: list[tuple[str, str]] = []
    desks: list[Session] = []

    async def opens(owner: Board) -> None:
        for path in paths:
            ids[path] = (await owner.open(path=path)).id
        await owner.runtime.desk.open(Scope(project="other"), "agent", path="/theirs")

    async def changes(owner: Board) -> None:
        desk, scope = owner.runtime.desk, owner.scope
        await owner.runtime.store.apply(set_policy(scope, "/secret", handoff=False))
        await desk.rename(scope, ids["/ops/deploy"], path="/ops/release")
        await desk.rename(scope, ids["/free"], path="/secret/free")
        await desk.delete(scope, ids["/gone"], owner.ann)

    async def lifts(owner: Board) -> None:
        await owner.runtime.store.apply(set_policy(owner.scope, "/secret", handoff=True))

    async def asked(worker: Board, *others: str) -> None:
        called = (*paths, *others)
        model.answers += [asks(*(("connect_user", {"path": path}) for path in called)), text("That is all.")]
        if not desks:
            desks.append(await worker.open("desk", path="/desk"))
        view = await worker.ask(desks[0], "where can I go?")
        told.append([result for _, result in results(model.prompts[-1])][-len(called) :])
        handed[:] = [
            (event.data["path"], event.data["channel_id"]) for event in await worker.events(desks[0], "turn.handoff")
        ]
        assert view.outcome == "answered"

    async def asked_more(worker: Board) -> None:
        await asked(worker, "/theirs", "/nowhere", "/desk", "/Ops/")

    await take_turns(store_url, model, opens, asked, changes, asked_more, lifts, asked)

    def recorded(path: str, now: str) -> dict[str, Any]:
        return {"status": "recorded", "path": now, "channel_id": ids[path]}

    release = recorded("/ops/deploy", "/ops/release")
    assert told[0] == [recorded(path, path) for path in paths]
    assert told[1][0] == release
    assert [result["error"]["code"] for result in told[1][1:]] == [
        *("not_permitted", "not_permitted", "unknown_target", "unknown_target", "unknown_target", "self_target", "invalid_field"),
    ]  # fmt: skip
    assert told[2][:3] == [release, recorded("/secret", "/secret"), recorded("/free", "/secret/free")]
    assert told[2][3]["error"]["code"] == "unknown_target"
    # What was refused has left no event: those that are there are of what was recorded.
    assert handed == [
        (result["path"], result["channel_id"]) for answers in told for result in answers if "error" not in result
    ]


@pytest.mark.spec("HND-2")
async def test_a_rule_that_another_process_makes_while_the_pair_is_being_committed_is_kept() -> None:
    """ "The server … checks permission before emitting": at the commit, by the rule of that moment. On PostgreSQL: a file is one process's."""

    async def hands_over(turn: Turn) -> str:
        try:
            return (await turn.tools.connect_user("/secret"))["status"]
        except NotPermitted as refused:
            return refused.code

    with session_server().database() as url:
        async with running(url=url) as owner, running({"mine": hands_over}, url=url) as worker:
            desk, secret = await worker.open("mine", path="/desk"), await owner.open(path="/secret")
            worker.gate.close(RecordStep)
            held = await worker.post(desk)
            await worker.gate.waiting.wait()
            await owner.runtime.store.apply(set_policy(owner.scope, "/secret", handoff=False))
            worker.gate.open()
            await worker.final(held)
            assert await worker.events(desk, "turn.handoff") == []
            await owner.runtime.store.apply(set_policy(owner.scope, "/secret", handoff=True))
            await worker.ask(desk)
            (handed,) = await worker.events(desk, "turn.handoff")
            assert handed.data["channel_id"] == secret.id
            assert await worker.texts(desk) == ["not_permitted", "recorded"]


@pytest.mark.spec("HND-5", "NS-3")
def test_no_tool_searches_renames_or_goes_back_or_up() -> None:
    """ "Going back up the namespace: who owns it (client or a tool)"; "who can create and rename paths": no model is offered a tool for them."""
    assert SCHEMAS.keys() == {"agent", "agent_list", "agent_read", "agent_send", "agent_stop", "connect_user"}
    fields = {name: set(schema["parameters"]["properties"]) for name, schema in SCHEMAS.items()}
    assert fields["connect_user"] == {"path"}
    assert fields["agent"] == {"task", "agent", "title", "timeout_s"}, "a child has no path"


async def take_turns(url: str, model: WrittenModel, *steps: Callable[[Board], Awaitable[None]]) -> None:
    """The owner's step, the worker's, the owner's again, …: the worker is the one whose agent `desk` asks `model`.

    On PostgreSQL both are there from the first step to the last; on a file each has it for the time of a step.
    """
    worker = {"desk": ChatAgent(model, agent_tools=False)}
    async with AsyncExitStack() as stack:
        beside: list[Board] = []
        if url.startswith("postgres"):
            beside = [await stack.enter_async_context(running(agents, url=url)) for agents in ({}, worker)]
        for number, step in enumerate(steps):
            if beside:
                await step(beside[number % 2])
                continue
            async with running(({}, worker)[number % 2], url=url) as board:
                await step(board)
