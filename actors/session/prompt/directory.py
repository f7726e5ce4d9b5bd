"""The directory block: the sessions that a session's agent may hand the user to (CTX-5).

Lives here: who is in it, how much of it. Not here: handing over (the tools), its words (`templates/directory.j2`).
Invariant: sorted by path, 50 entries and 4,000 characters at most, whatever the project holds; what is left out is counted.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....storage.model.limits import PAGE_LIMIT
from ....storage.surroundings import COUNT_MOST, Place
from .blocks import Block, clean

if TYPE_CHECKING:
    from ..turn import Turn

ENTRIES_MOST: Final = 50
DIRECTORY_CHARS: Final = 4_000
PAGES_MOST: Final = 5
"""Where rules forbid handoffs to some, so many pages of paths are looked through for the others."""
_AROUND: Final = 120
"""What the heading, the count at the end and the block's header take of it, at most."""


def template(name: str) -> str:
    """The text of a template that is shipped."""
    return (resources.files(__package__ or "") / "templates" / f"{name}.j2").read_text(encoding="utf-8")


@attrs.frozen
class Reach:
    """Where an agent may hand the user to: the first places by path, and how many there are; not `exact`: at least so many."""

    places: list[Place]
    count: int
    exact: bool


async def reachable(turn: Turn) -> Reach:
    """The sessions that this turn's agent may hand the user to: those of its project with a path (HND-1) but its own, as the rules allow."""
    reads, scope, own = turn.desk.store.reads, turn.scope, turn.session.id
    rules = await reads.rules(scope)
    if all(rule.handoff is not False for rule in rules.rules):
        places, count = await reads.places(scope, own, ENTRIES_MOST)
        return Reach(places, count, count < COUNT_MOST)
    found: list[Place] = []
    after, page = "", list[Place]()
    for _ in range(PAGES_MOST):
        page, _ = await reads.places(scope, own, PAGE_LIMIT, after=after)
        found += [place for place in page if rules.handoff(place.path)]
        if len(page) < PAGE_LIMIT:
            break
        after = page[-1].path
    return Reach(found[:ENTRIES_MOST], len(found), len(page) < PAGE_LIMIT)


async def provide(turn: Turn) -> dict[str, Any] | None:
    """{places: [{path, agent, purpose}], more: "" or how many more}; None without any."""
    reach = await reachable(turn)
    shown: list[dict[str, str]] = []
    room = DIRECTORY_CHARS - _AROUND
    for place in reach.places:
        entry = {
            "path": clean(place.path, 256),
            "agent": clean(place.agent),
            "purpose": clean(turn.desk.purposes.get(place.agent)),
        }
        room -= sum(map(len, entry.values())) + len("-  (): \n")
        if room < 0:
            break
        shown.append(entry)
    if not shown:
        return None
    left = reach.count - len(shown)
    return {"places": shown, "more": "" if left <= 0 and reach.exact else f"{'' if reach.exact else 'at least '}{left}"}


DIRECTORY: Final = Block("directory", 20, template("directory"), provide)
