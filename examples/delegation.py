"""Delegation: a planner gives each task to a subagent and puts the results together when the last one has come.

A subagent's result comes back as a message, in a turn of its own: between two of them the planner takes no memory and holds no task. What
is still missing it reads from its own transcript.
"""

import trio

import callboard
from callboard import Turn

TASKS = ("measure the room", "choose a colour", "count the tins")


async def planner(turn: Turn) -> str | None:
    if turn.session.parent is not None:
        return f"{turn.text}: done"  # a subagent has the same behaviour unless it is given another agent
    if turn.message.kind != "subagent_result":
        for task in TASKS:
            child = await turn.tools.agent(task, agent="worker", title=task)
            assert child["status"] == "running"
        return f"I gave {len(TASKS)} tasks away."
    told = await turn.tools.agent_read(turn.message.sender.id)
    return f"{turn.message.sender.label}: {told['messages'][-1]['content']}"


def worker(turn: Turn) -> str:
    """A plain function runs in a thread, so it may take its time."""
    return f"{turn.text.capitalize()}? Done."


async def main() -> None:
    agents = {"planner": planner, "worker": worker}
    async with callboard.open_runtime("sqlite:///:memory:", agents=agents) as runtime:
        planning = await runtime.open_session(path="/", agent="planner")
        await runtime.send(planning.id, "Paint the room")
        results: list[str] = []
        async with runtime.follow(planning.id) as events:
            async for event in events:
                if event.kind == "turn.completed":
                    if "gave" in event.data["content"]:
                        print(event.data["content"])
                    else:
                        results.append(event.data["content"])
                if len(results) == len(TASKS):
                    break
        print(*sorted(results), sep="\n")  # they end in any order
        children = [session for session in await runtime.list_sessions() if session.parent == planning.id]
        print(f"{len(children)} subagents: {', '.join(sorted({str(child.child_state) for child in children}))}")


trio.run(main)
