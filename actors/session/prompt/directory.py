"""The directory block: the sessions that a session's agent may hand the user to (CTX-5).

Lives here: who is in it, how much of it. Not here: handing over (the tools), its words (`templates/directory.j2`).
Invariant: sorted by path, 50 entries and 4,000 characters at most, whatever the project holds; what is left out is counted, or said.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....storage.model.addresses import PATH_CHARS
from ....storage.model.limits import PAGE_LIMIT
from ....storage.surroundings import COUNT_MOST, Place
from .blocks import Block, clean

if TYPE_CHECKING:
    from ....storage.model.policies import Rule, Rules
    from ..turn import Turn

ENTRIES_MOST: Final = 50
DIRECTORY_CHARS: Final = 4_000
PAGES_MOST: Final = 10
"""Where rules forbid handoffs to some, so many pages of paths are looked through for the others; what is forbidden takes one by prefix."""
_BEHIND: Final = "~"
"""Above every character of a path."""
_AROUND: Final = 120
"""What the heading, the count at the end and the block's header take of it, at most."""


def template(name: str) -> str:
    """The text of a template that is shipped."""
    return (resources.files(__package__ or "") / "templates" / f"{name}.j2").read_text(encoding="utf-8")


@attrs.frozen
class Reach:
    """Where an agent may hand the user to: the first places by path, and how many were found; not `exact`: there may be others."""

    places: list[Place]
    count: int
    exact: bool


async def reachable(turn: Turn) -> Reach:
    """The sessions that this turn's agent may hand the user to: those of its project with a path (HND-1) but its own, as the rules allow.

    None for a subagent: nobody talks to it, so `connect_user` refuses it.
    """
    if turn.session.parent is not None:
        return Reach([], 0, exact=True)
    reads, scope, own = turn.desk.store.reads, turn.scope, turn.session.id
    rules = await reads.rules(scope)
    if all(rule.handoff is not False for rule in rules.rules):
        places = await reads.places(scope, own, ENTRIES_MOST)
        # Counted only where there are more: a prompt is made for each call of a model.
        count = len(places) if len(places) < ENTRIES_MOST else await reads.places_count(scope, own)
        return Reach(places, count, count < COUNT_MOST)
    return await _looked_for(turn, rules)


async def _looked_for(turn: Turn, rules: Rules) -> Reach:
    """Page by page, but past what lies below a forbidden prefix: that may be thousands, before the first that is allowed."""
    found: list[Place] = []
    after = ""
    for _ in range(PAGES_MOST):
        page = await turn.desk.store.reads.places(turn.scope, turn.session.id, PAGE_LIMIT, after=after)
        for place in page:
            if place.path <= after:
                continue
            if rules.handoff(place.path):
                found.append(place)
                after = place.path
            else:
                after = _past(rules.rules, place.path)
        if len(page) < PAGE_LIMIT:
            return Reach(found[:ENTRIES_MOST], len(found), exact=True)
    return Reach(found[:ENTRIES_MOST], len(found), exact=False)


def _past(rules: Sequence[Rule], path: str) -> str:
    """What to read on after, behind `path`, which is forbidden: nothing between the two is allowed, and it is no path itself unless `path`."""
    prefix = max((rule.prefix for rule in rules if rule.handoff is not None and rule.covers(path)), key=len)
    if path == prefix:
        return path  # /ops-x comes before what is below /ops, and is not forbidden with it
    below = prefix.rstrip("/") + "/"
    allowed = [rule.prefix for rule in rules if rule.handoff and rule.prefix.startswith(below)]
    # What is allowed again is a path and, apart from it, all below that.
    starts = [start for again in allowed for start in (_before(again), again + "/") if start > path]
    return min([*starts, below + _BEHIND])


def _before(path: str) -> str:
    """Below `path` and above every path before it."""
    return path[:-1] + chr(ord(path[-1]) - 1) + _BEHIND


async def provide(turn: Turn) -> dict[str, Any] | None:
    """{places: [{path, agent, purpose}], more: "", "more", or how many "N more"}; None without any."""
    reach = await reachable(turn)
    shown: list[dict[str, str]] = []
    room = DIRECTORY_CHARS - _AROUND
    for place in reach.places:
        entry = {
            "path": clean(place.path, PATH_CHARS),
            "agent": clean(place.agent),
            "purpose": clean(turn.desk.purposes.get(place.agent)),
        }
        room -= sum(map(len, entry.values())) + len("-  (): \n")
        if room < 0:
            break
        shown.append(entry)
    if not shown:
        return None
    return {"places": shown, "more": _more(reach, len(shown))}


def _more(reach: Reach, shown: int) -> str:
    if reach.exact:
        return f"{reach.count - shown} more" if reach.count > shown else ""
    return f"at least {reach.count - shown} more" if reach.count >= COUNT_MOST else "more"


DIRECTORY: Final = Block("directory", 20, template("directory"), provide)
