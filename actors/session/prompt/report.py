"""The cache report: what the next call of a session's model would send, and what of it changed since the last one.

Lives here: what agents offer to be looked at, the last prompts that they sent, comparing two. Not here: addresses, commands.

Invariant: looking changes nothing. Prompts are kept in memory alone, of the last sessions that called (CTX-1): with the process they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from ....storage.model.addresses import Scope
from ....storage.model.errors import Conflict
from ....storage.model.sessions import Session
from .assembly import Assembled
from .preview import preview_turn
from .recent import Recent

if TYPE_CHECKING:
    from ...desk import Desk
    from ..turn import Turn

KEPT: Final = 64
SHOWN_BYTES: Final = 2_000
"""What is shown of the bytes that one part lost or gained."""


@runtime_checkable
class Tells(Protocol):
    """An agent whose prompts can be looked at."""

    @property
    def sent(self) -> Sent:
        """What its model was told last."""
        ...

    async def preview(self, turn: Turn, /) -> Assembled:
        """What its model would be told next, as far as what the turn has done is on record. Asks no model and runs no tool."""
        ...


class Sent:
    """The last prompt of each session, of the last `KEPT` sessions."""

    def __init__(self) -> None:
        self._kept = Recent[tuple[Scope, str], Assembled](KEPT)

    def keep(self, scope: Scope, session: str, prompt: Assembled) -> None:
        self._kept.put((scope, session), prompt)

    def last(self, scope: Scope, session: str) -> Assembled | None:
        return self._kept.get((scope, session))


async def report(desk: Desk, agents: Mapping[str, object], session: Session) -> dict[str, Any]:
    """{session, agent, turn, request_hash, bytes, parts: [{name, bytes, text}], diff}.

    `turn` is running, next, or none: no message waits. `diff` is null if this process has sent no prompt of the session, else
    {bytes, common, percent, changed: [{part, at, removed, added}]}: the length of the common prefix, and for each part that differs where
    it does so and which text. Raises `Conflict` for an agent that asks no model here.
    """
    agent = getattr(agents.get(session.agent), "owner", None)
    if not isinstance(agent, Tells):
        raise Conflict(f"the agent {session.agent} asks no model in this process", path="session")
    turn, state = await preview_turn(desk, session)
    now = await agent.preview(turn)
    before = agent.sent.last(session.scope, session.id)
    parts = now.parts()
    return {
        "session": session.id,
        "agent": session.agent,
        "turn": state,
        "request_hash": now.prompt.content_hash,
        "bytes": sum(len(part.data) for part in parts),
        "parts": [{"name": part.name, "bytes": len(part.data), "text": part.data.decode()} for part in parts],
        "diff": None if before is None else compared(before, now),
    }


def compared(before: Assembled, now: Assembled) -> dict[str, Any]:
    """What changed between two prompts, in bytes of their canonical JSON."""
    old, new = before.parts(), now.parts()
    older, newer = (b"".join(part.data for part in parts) for parts in (old, new))
    common = _common(older, newer)
    was, is_now = ({part.name: part.data for part in parts} for parts in (old, new))
    changed = [
        _change(name, was.get(name, b""), is_now.get(name, b""))
        for name in dict.fromkeys((*was, *is_now))
        if was.get(name) != is_now.get(name)
    ]
    return {
        "bytes": len(older),
        "common": common,
        "percent": round(100 * common / len(newer), 1),
        "changed": changed,
    }


def _change(name: str, was: bytes, is_now: bytes) -> dict[str, Any]:
    start = _common(was, is_now)
    end = _common(was[start:][::-1], is_now[start:][::-1])
    removed, added = (_shown(data[start : len(data) - end]) for data in (was, is_now))
    return {"part": name, "at": start, "removed": removed, "added": added}


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two begin with that are the same: found by halves, as prompts are long."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shown(data: bytes) -> str:
    # A change may begin in the middle of a character.
    text = data[:SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(data) <= SHOWN_BYTES else f"{text}… ({len(data)} bytes)"
