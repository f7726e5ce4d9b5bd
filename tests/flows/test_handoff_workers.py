"""connect_user on workers that have nothing: no workspace, no other tool, and no idea of the agent that they bring people to.

Through a model: what it is offered in its first request, and what the next one tells it. Not here: the recorded pair (`test_handoff`), the
event on its way (`test_handoff_streams`). The workers are runtimes over one store: side by side on PostgreSQL, one after the other on a
file, which one process has at a time.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from callboard import ChatAgent
from callboard.actors.session.tools import SCHEMAS
from callboard.storage.ops.namespace import set_policy
from callboard.tests.flows.chat_kit import WrittenModel, asks, chatting, results, text
from callboard.tests.flows.turn_kit import running

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


async def test_why_not_is_what_the_next_request_tells(store_url: str) -> None:
    """ "Its result tells the model whether the path exists and the handoff was recorded, or why not (unknown path, not permitted)"."""
    asked = ("/nowhere", "/secret", "/desk", "/Ops/", "/open")
    async with chatting(url=store_url) as chat:
        board = chat.board
        await board.open(path="/secret")
        opened = await board.open(path="/open")
        await board.runtime.store.apply(set_policy(board.scope, "/secret", handoff=False))
        calls = asks(*(("connect_user", {"path": path}) for path in asked))
        assert await chat.ask(calls, text("Only /open is open.")) == "Only /open is open."
        handed = [event.data["path"] for event in await board.events(chat.desk, "turn.handoff")]
    told = [result for _, result in results(chat.model.prompts[1])]
    codes = [result.get("error", {}).get("code") for result in told]
    assert codes == ["unknown_target", "not_permitted", "self_target", "invalid_field", None]
    assert told[-1] == {"status": "recorded", "path": "/open", "channel_id": opened.id}
    assert handed == ["/open"]


@pytest.mark.spec("HND-5", "NS-3")
def test_no_tool_searches_renames_or_goes_back_or_up() -> None:
    """ "Going back up the namespace: who owns it (client or a tool)"; "who can create and rename paths": no model is offered a tool for them."""
    assert SCHEMAS.keys() == {"agent", "agent_list", "agent_read", "agent_send", "agent_stop", "connect_user"}
    fields = {name: set(schema["parameters"]["properties"]) for name, schema in SCHEMAS.items()}
    assert fields["connect_user"] == {"path"}
    assert fields["agent"] == {"task", "agent", "title", "timeout_s"}, "a child has no path"
