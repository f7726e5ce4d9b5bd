"""Who acts in the scripted day, beside the agents that other tests have too (`worker_agents`, `worker_tools`).

Runs in the worker process only. None of them needs anything from outside, and each can be cut off and run again anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from worker_tools import PARTIAL, Side

import callboard
from callboard import Turn
from callboard.storage.model.errors import Denied
from callboard.storage.model.messages import Kind

CAST = {
    "/guide": "guide",
    "/helper": "nothing",
    "/slow": "slow",
    "/flaky": "flaky",
    "/relay": "relay",
    "/hopeless": "failing",
    "/steered": "taking",
    "/family": "family",
    "/doomed": "slow",
    "/errand": "relay",
    "/pause": "pausing",
    "/crowd": "nothing",
    "/tinker": "tinker",
    "/stream": "stream",
    "/asking": "asking",
    "/usher": "usher",
}
"""Sessions by path, and the agent of each."""


def make_cast(side: Side) -> dict[str, Any]:
    """Agents by name."""
    return {"taking": taking, "family": family, "pausing": pausing, "asking": _asking(side), "usher": usher}


async def taking(turn: Turn) -> str:
    """Takes in what has come while it was busy."""
    await turn.emit(PARTIAL)
    await turn.sleep(1.0)
    await turn.steered()
    return f"took {len(turn.messages)}"


async def family(turn: Turn) -> str:
    """Has one child that fails, one that runs out of time, one that answers; hears them."""
    if turn.message.kind == Kind.SUBAGENT_RESULT:
        return f"heard {turn.message.sender.id}"
    if turn.text != "begin":
        return "all is known"
    children = [
        await turn.tools.agent("try", agent="failing"),
        await turn.tools.agent("wait", agent="slow", timeout_s=2.0),
        await turn.tools.agent("answer", agent="nothing"),
    ]
    return " ".join(child["agent_id"] for child in children)


async def pausing(turn: Turn) -> str:
    await turn.sleep(1.0)
    return f"paused for {turn.text}"


async def usher(turn: Turn) -> str:
    """Hands over to each path of its message, with a pause behind each."""
    for path in re.findall(r"/\S+", turn.text):
        await turn.tools.connect_user(path)
        await turn.sleep(0.5)
    return "this way"


def _asking(side: Side) -> Callable[[Turn], Awaitable[str]]:
    @callboard.tool("external", needs_approval=True)
    async def charge(amount: int) -> str:
        side.write(tool="charge", amount=amount)
        return f"charged {amount}"

    async def asking(turn: Turn) -> str:
        """Asks whether it may, and takes no for an answer."""
        try:
            return str(await turn.step(charge, amount=5))
        except Denied:
            return "denied"

    return asking
