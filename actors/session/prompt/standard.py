"""The blocks that a chat agent has unless it is given others: date, directory, children, queued messages.

Lives here: what they say, and their ranks. Not here: their words (`templates/`), the directory's own rules.

Invariant: the same rows give the same text, on any worker and at any time of a day; no ids, no times. Ranks go by how often a block
changes, as all that stands behind a change must be read anew by whoever runs the model: the date once a day; the directory when somebody
opens or renames a session; the children with each task; the queue with each post.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from ....storage.model.messages import Kind
from .blocks import Block
from .directory import DIRECTORY, template
from .preview import not_yet_taken

if TYPE_CHECKING:
    from ..turn import Turn

# Not `strftime`: its words are those of the process's locale.
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_FROM: Final[dict[str, str]] = {
    Kind.MEMBER_MESSAGE: "from members",
    Kind.URGENT: "urgent",
    Kind.AGENT_MESSAGE: "from agents",
    Kind.PEER_MESSAGE: "from peers",
    Kind.SUBAGENT_RESULT: "results of subagents",
    Kind.NOTICE: "notices",
    Kind.SIGNAL: "signals",
}


async def date(turn: Turn) -> dict[str, Any]:
    """{day, zone}: today, where the project is."""
    zone = turn.desk.tuning.timezone
    at = datetime.fromtimestamp(turn.desk.store.now(), UTC if zone is None else ZoneInfo(zone))
    return {"day": f"{_DAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year}", "zone": zone or "UTC"}


async def children(turn: Turn) -> dict[str, Any] | None:
    """{children: [{title, agent, state}]} by the time of their making; None without any."""
    found = await turn.desk.store.reads.children(turn.scope, turn.session.id)
    if not found:
        return None
    shown = [
        {
            "title": child.title or "untitled",
            "agent": child.agent,
            "state": "working" if child.working else "waiting",
        }
        for child in found
    ]
    return {"children": shown}


async def queued(turn: Turn) -> dict[str, Any] | None:
    """{total, kinds: [{count, name}]}; None if nothing waits."""
    found = Counter(await turn.desk.store.reads.queued(turn.scope, turn.session.id)) - not_yet_taken(turn)
    if not found:
        return None
    kinds = [{"count": found[kind], "name": name} for kind, name in _FROM.items() if kind in found]
    return {"total": sum(found.values()), "kinds": kinds}


DATE: Final = Block("date", 10, template("date"), date)
CHILDREN: Final = Block("children", 30, template("children"), children)
QUEUED: Final = Block("queued", 40, template("queued"), queued)


def standard_blocks() -> tuple[Block, ...]:
    """The blocks of a chat agent that is given none: date, directory, children, queued. One with others: `(*standard_blocks(), mine)`."""
    return (DATE, DIRECTORY, CHILDREN, QUEUED)
