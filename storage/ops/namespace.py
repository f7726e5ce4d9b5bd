"""Ops on the namespace beside those on sessions: a rule for a prefix, and where a client goes."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..model.addresses import Scope, check_path
from ..model.policies import AgentsMay, Edge, Rule, Rules
from .base import Op


@attrs.frozen
class Navigated:
    """Where a client of a principal went last: `frontiers` are the newest events of sessions at that moment, by id. `at`: store time, seconds."""

    session: str
    frontiers: dict[str, int]
    at: float


@attrs.frozen
class SetPolicy(Op[Rules]):
    """Set what holds at a prefix, all of it: what `rule` leaves out is no longer said there. Makes the project on first use.

    An empty rule removes it. Returns all rules of the project.
    """

    repeat: ClassVar[str] = "a rule is written as a whole: the same again is the same rule"

    scope: Scope
    rule: Rule


@attrs.frozen
class Navigate(Op[Navigated]):
    """The client `client` of `principal` goes to a session: note the newest event of each session with a path, and of those in `also`.

    A handoff that is not newer than that is not followed (HND-4). Raises: `UnknownTarget`.
    """

    repeat: ClassVar[str] = (
        "a client has one newest navigation: the same again is noted as of then, and numbers only rise"
    )

    scope: Scope
    principal: str
    client: str
    session: str
    also: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return 256 + 64 * len(self.also)


def set_policy(
    scope: Scope,
    prefix: str,
    *,
    edge: Edge | None = None,
    agents: AgentsMay | None = None,
    handoff: bool | None = None,
    confirm: bool | None = None,
) -> SetPolicy:
    """Build a `SetPolicy`; raises `InvalidField` for a prefix that is no path."""
    return SetPolicy(scope, Rule(check_path(prefix, "prefix"), edge, agents, handoff, confirm))
