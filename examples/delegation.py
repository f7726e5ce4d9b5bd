"""Delegation: a planner gives each task to a subagent and reports each result as it comes.

A subagent's result is a message that wakes its parent, in a turn of its own: between two of them the planner holds no task and no memory.
"""

import trio

import callboard
from callboard import Turn

TASKS = ("measure the room", "choose a colour", "count the tins")


async def planner(turn: Turn) -> str | None:
    if turn.message.kind == "subagent_result":
        return f"{turn.message.sender.label}: {turn.text}"
    for task in TASKS:
        child = await turn.tools.agent(task, agent="worker", title=task)
        assert child["status"] == "running"
    return f"I gave {len(TASKS)} tasks away."


def worker(turn: Turn) -> str:
    """A plain function runs in a thread, so it may take its time."""
    return f"{turn.text.capitalize()}? Done."


async def main() -> None:
    agents = {"planner": planner, "worker": worker}
    async with callboard.open_runtime("sqlite:///:memory:", agents=agents) as runtime:
        planning = await runtime.open_session(path="/", agent="planner")
        await runtime.send(planning.id, "Paint the room")
        answers: list[str] = []
        async with runtime.follow(planning.id) as events:
            async for event in events:
                if event.kind == "turn.completed":
                    answers.append(str(event.data["content"]))
                if len(answers) == 1 + len(TASKS):
                    break
        first, *results = answers
        print(first, *sorted(results), sep="\n")  # they end in any order
        children = [session for session in await runtime.list_sessions() if session.parent == planning.id]
        print(f"{len(children)} subagents: {', '.join(sorted({str(child.child_state) for child in children}))}")


trio.run(main)
