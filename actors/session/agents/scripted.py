"""The scripted agent: pattern → reply or tool call. For tests, demonstrations and rules that need no model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import attrs

from ....storage.model.errors import CallboardError, InvalidField
from ..turn import Turn

Action = Callable[[Turn, re.Match[str]], Awaitable[str | None]]


@attrs.frozen
class Rule:
    """If `pattern` matches the whole text, `action` makes the reply: a template for `Match.expand`, or an async function (turn, match)."""

    pattern: re.Pattern[str] = attrs.field(converter=lambda pattern: re.compile(pattern, re.DOTALL))
    action: str | Action


@attrs.frozen
class Scripted:
    """Answers by the first rule that matches, else with `otherwise` (None: no visible reply)."""

    rules: Sequence[Rule]
    otherwise: str | None = None
    purpose: str = ""

    async def run(self, turn: Turn) -> str | None:
        for rule in self.rules:
            match = rule.pattern.fullmatch(turn.text.strip())
            if match is not None:
                return match.expand(rule.action) if isinstance(rule.action, str) else await rule.action(turn, match)
        return self.otherwise


def calls(tool: str, **templates: str) -> Action:
    """An action that calls one of the agent tools; each argument is a template for `Match.expand`. A refusal is the reply."""

    async def run(turn: Turn, match: re.Match[str]) -> str | None:
        try:
            result = await turn.tools.call(tool, {name: match.expand(text) for name, text in templates.items()})
        except InvalidField:
            raise
        except CallboardError as refusal:
            return f"{tool} was refused: {refusal.message}"
        return f"{tool}: {result}"

    return run
