"""The public API as a user's program uses it; mypy and basedpyright read this in their strictest modes, nothing runs it."""

from __future__ import annotations

import re
from typing import Any, Literal, assert_type

import trio

import callboard
from callboard import (
    Agent,
    Block,
    Budget,
    Call,
    CallboardError,
    ChatAgent,
    ChatModel,
    Entry,
    Event,
    Handoff,
    Interrupted,
    LeaseLost,
    MailboxFull,
    MessageView,
    ModelLimits,
    Receipt,
    Rule,
    Runtime,
    Scripted,
    Session,
    Team,
    Tool,
    Tuning,
    Turn,
    open_portal,
    standard_blocks,
    tool,
)


class FrontDesk(Agent):
    """The example of the design."""

    purpose = "Greets people and takes them to the right desk."

    async def run(self, turn: Turn) -> str | None:
        if "invoice" in turn.text:
            await turn.tools.agent_send("/billing", f"Please look at: {turn.text}")
            return "I asked billing; their answer will come here."
        return f"You said: {turn.text}"


async def billing(turn: Turn) -> None:
    """A plain function is an agent too."""
    await turn.tools.agent_send(turn.message.sender, "Paid on Friday.")


@tool("external")
async def charge(amount: int, call: Call) -> dict[str, Any]:
    """A tool of the agent's own."""
    return {"paid": amount, "key": call.action_id, "turn": call.turn_id}


@tool("pure", name="look_up")
async def look(name: str) -> str:
    """A tool under another name."""
    return name


class Cashier(Agent):
    """Everything that a turn offers."""

    async def run(self, turn: Turn) -> str | None:
        assert_type(charge, Tool)
        result = await turn.step(charge, amount=3)
        if isinstance(result, Interrupted):
            return f"I do not know whether {result.tool} ran: {result.action_id}"
        assert_type(turn.id, str)
        assert_type(turn.attempt, int)
        assert_type(turn.stop_requested, bool)
        assert_type(turn.session.path, str | None)
        assert_type(turn.message.hops, int)
        for message in turn.attributed():
            assert_type(message.header, str)
        for steered in await turn.steered():
            assert_type(steered.content, str)
        await turn.emit("counting… ")
        if not await turn.sleep(1.5):
            return None
        child = await turn.tools.agent("count", agent="cashier", title="counting", timeout_s=60)
        assert_type(child, dict[str, Any])
        listed = await turn.tools.agent_list(status="recent", limit=5)
        read = await turn.tools.agent_read(child["agent_id"])
        await turn.tools.agent_stop(child["agent_id"])
        try:
            await turn.tools.call("agent_send", {"agent_id": "/billing", "message": "hello"})
        except MailboxFull as full:
            return f"later: {full.retry_after}, {full.code}, {full.status}"
        except LeaseLost:
            raise
        except CallboardError as refusal:
            return f"{refusal.path}: {refusal.message}"
        return f"{listed['agents']} {read['messages']}"


async def stock(turn: Turn) -> dict[str, int] | None:
    return {"count": len(turn.text)} if turn.text else None


assert_type(standard_blocks(), tuple[Block, ...])
talker = ChatAgent(
    ChatModel("http://127.0.0.1:8000/v1", "small", key="k", options={"temperature": 0}, limits=ModelLimits(tries=2)),
    "You are the cashier.",
    tools=[charge, look],
    budget=Budget(rounds=8, seconds=60),
    blocks=[*standard_blocks(), Block("stock", 15, "In stock: {{ count }}", stock)],
    compact_with=ChatModel("http://127.0.0.1:8000/v1", "smaller"),
    history_chars=20_000,
    result_chars=50_000,
)
script = Scripted([Rule(re.compile("hello"), "good day"), Rule(r"echo (.*)", r"\1")], otherwise="?", purpose="Talks.")


async def use(runtime: Runtime) -> None:
    """Every call of a runtime."""
    session = await runtime.open_session(path="/", agent="front-desk", title="Desk")
    assert_type(session, Session)
    receipt = await runtime.send(session.id, "My invoice is wrong", message_id="m-1")
    assert_type(receipt, Receipt)
    async with runtime.follow(session.id, after=0) as events:
        async for event in events:
            print(event.id, event.kind, event.data)
            if event.kind == "turn.completed":
                break
            if isinstance(event, Event):
                assert_type(event.at, float)
                assert_type(event.turn, str | None)
    view = await runtime.receipt(receipt.message_id)
    assert_type(view, MessageView)
    assert_type(await runtime.wait(receipt.id), MessageView)
    assert_type(await runtime.read(session.id, after=1), list[Entry])
    assert_type(await runtime.list_sessions(active=True, limit=10), tuple[Session, ...])
    assert_type(await runtime.rename_session("/billing", path="/money"), Session)
    await runtime.set_policy("/money", edge="handoff_only", agents="create", handoff=True, confirm=True)
    assert_type((await runtime.read("/money"))[0].handoff, Handoff | None)
    assert_type(await runtime.stop("/", drop_queued=True), str)
    print(runtime.snapshot().children, view.stages, view.outcome, view.reason)


async def main(executor: Literal["thread", "inline"] = "thread") -> None:
    """Opening one, with every option."""
    agents = {"front-desk": FrontDesk(), "billing": billing, "cashier": Cashier(), "script": script, "talker": talker}
    team = Team(agents=agents, sessions={"/": "front-desk", "/billing": "billing"})
    tuning = Tuning(lease_seconds=20.0, live_turns=100)
    async with callboard.open_runtime(
        "sqlite:///desk.db", agents=team.agents, project="default", tuning=tuning, executor=executor
    ) as runtime:
        assert_type(runtime, Runtime)
        await use(runtime)


def blocking() -> None:
    """The same for threads."""
    with open_portal("sqlite:///desk.db", agents={"billing": billing}) as portal:
        session = portal.open_session(agent="billing")
        assert_type(portal.wait(portal.send(session.id, "hello").message_id), MessageView)


if __name__ == "__main__":
    trio.run(main)
