"""Whether a row makes a message at all. Not here: what becomes of one that does not (`delivery`).

Invariant: a row that passes is one that an agent can be given: its kind is known, it has text, its payload is a JSON object.
"""

from __future__ import annotations

import json
from typing import Any, Final

from ...storage.model.messages import Kind
from ...storage.model.turns import TurnMessage

_KINDS: Final = frozenset(Kind)


def fault_of(message: TurnMessage) -> str | None:
    """Why the contents of its row make no message; None if they do (RT-12)."""
    if message.kind not in _KINDS:
        return f"the kind {message.kind[:40]!r} is unknown"
    if not isinstance(message.content, str) or not message.content:  # a damaged row, whatever the type says
        return "it has no text"
    if message.payload is not None:
        try:
            value: Any = json.loads(message.payload)
        except ValueError as error:
            return f"its payload is not JSON: {error}"
        if not isinstance(value, dict):
            return "its payload is not an object"
    return None
