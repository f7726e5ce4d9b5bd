"""The team that the browser tests are served: the demonstration's commands, and what a console must cope with beyond them.

Not here: any judgement.
"""

from __future__ import annotations

import callboard
from callboard.supervisors.demo import demonstration

SHY_FAILS = "I fail the first time I see a message, and know it again by its text"
_seen: set[str] = set()


@callboard.tool("external", needs_approval=True)
async def release(service: str) -> str:
    """What a person must allow."""
    return f"released {service}"


async def operator(turn: callboard.Turn) -> str:
    """`release NAME`, if a person allows it."""
    await turn.emit("May I? ")
    try:
        return str(await turn.step(release, service=turn.text.split()[-1]))
    except callboard.CallboardError as refusal:
        return f"not released: {refusal.message}"


async def shy(turn: callboard.Turn) -> str:
    """Fails the first time that it is told something."""
    if turn.text not in _seen:
        _seen.add(turn.text)
        raise RuntimeError(SHY_FAILS)
    return f"now I dare: {turn.text}"


async def silent(turn: callboard.Turn) -> None:
    """Never answers."""


_demonstration = demonstration()
team = callboard.Team(
    agents={**_demonstration.agents, "operator": operator, "shy": shy, "silent": silent},
    sessions={**_demonstration.sessions, "/ops/release": "operator", "/shy": "shy", "/silent": "silent"},
)
