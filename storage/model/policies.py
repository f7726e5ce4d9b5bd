"""Rules of the namespace. Lives here: who may do what at which path, and how a rule for a prefix is found; values and pure rules.

Not here: the grammar of paths (`addresses`), asking (`desk`), the transaction that asks again (`handlers/naming`).
Invariant: each field of a rule is looked up by itself: the longest prefix that says something about it wins, `/` is the project's, and
a session without a path has the project's alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import attrs

from .errors import NotPermitted

ROOT: Final = "/"
REDIRECT_SECONDS: Final = 30 * 24 * 3600.0
"""How long an old path leads to its session (NS-3)."""
NAVIGATION_KEEP_SECONDS: Final = 30 * 24 * 3600.0
"""How long it is known where a client went that has not come back."""
CLIENTS_MOST: Final = 64
"""Clients of one principal of which it is known where they went: the newest."""
FRONTIERS_MOST: Final = 256
"""Sessions with a path whose newest event a navigation notes, beside those that its client follows."""


class Edge(StrEnum):
    """Whether agents may write to each other (NS-4)."""

    COLLABORATE = "collaborate"
    HANDOFF_ONLY = "handoff_only"


class AgentsMay(StrEnum):
    """What agents may do with paths: nothing, open sessions at new ones, or that and rename."""

    NONE = "none"
    CREATE = "create"
    RENAME = "rename"


class By(StrEnum):
    """Who asks for a path: one that was given up is the operator's to give away, and agents go by the rules."""

    OPERATOR = "operator"
    MEMBER = "member"
    AGENT = "agent"


@attrs.frozen
class Rule:
    """What holds at `prefix` and below it; None says nothing. `handoff`: agents may hand people over there; `confirm`: people are asked first."""

    prefix: str
    edge: Edge | None = None
    agents: AgentsMay | None = None
    handoff: bool | None = None
    confirm: bool | None = None

    @property
    def empty(self) -> bool:
        """Whether it says nothing at all."""
        return all(value is None for value in (self.edge, self.agents, self.handoff, self.confirm))

    def covers(self, path: str | None) -> bool:
        """Whether it is about `path` (None: a session without one)."""
        if self.prefix == ROOT:
            return True
        return path is not None and (path == self.prefix or path.startswith(self.prefix + "/"))


@attrs.frozen
class Rules:
    """All rules of a project, by prefix."""

    rules: tuple[Rule, ...] = ()

    def edge(self, path: str | None, default: Edge) -> Edge:
        """Whether the session at `path` may write and be written to; `default` is the installation's."""
        return self._said(path, "edge") or default

    def agents_may(self, path: str) -> AgentsMay:
        """What agents may do with `path`: nothing, where no rule says otherwise."""
        return self._said(path, "agents") or AgentsMay.NONE

    def handoff(self, path: str) -> bool:
        """Whether agents may hand people over to `path`: they may, where no rule says otherwise."""
        return self._said(path, "handoff") is not False

    def confirm(self, path: str) -> bool:
        """Whether people are asked before they are taken to `path` (HND-5)."""
        return self._said(path, "confirm") is True

    def all_collaborate(self, default: Edge) -> bool:
        """Whether nothing here forbids a message between any two sessions."""
        return Edge.HANDOFF_ONLY not in (default, *(rule.edge for rule in self.rules))

    def check_send(self, source: str | None, target: str | None, default: Edge) -> None:
        """Refuse a message between sessions at these paths unless both may collaborate. Raises `NotPermitted` (NS-4)."""
        if Edge.HANDOFF_ONLY in (self.edge(source, default), self.edge(target, default)):
            raise NotPermitted(
                "sessions here don't write to each other (handoff_only); to bring the user to another session, call connect_user",
                path="agent_id",
            )

    def check_handoff(self, path: str) -> None:
        """Refuse a handoff to `path` that no rule allows. Raises `NotPermitted`."""
        if not self.handoff(path):
            raise NotPermitted(f"the project's rules allow no handoff to {path}", path="path")

    def check_agent(self, path: str, wanted: AgentsMay) -> None:
        """Refuse an agent that would create or rename `path`. Raises `NotPermitted`."""
        may = self.agents_may(path)
        if may is AgentsMay.NONE or (wanted is AgentsMay.RENAME and may is not AgentsMay.RENAME):
            raise NotPermitted(f"the project's rules let no agent {wanted} {path}", path="path")

    def _said(self, path: str | None, name: str) -> Any:
        said = [rule for rule in self.rules if getattr(rule, name) is not None and rule.covers(path)]
        return getattr(max(said, key=lambda rule: len(rule.prefix)), name) if said else None
