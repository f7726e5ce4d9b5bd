"""A prompt in its parts, in the order that a provider's prefix cache rewards (CTX-3): system, tools, blocks, tail.

Lives here: the parts and their bytes, putting them together. Not here: what they say.

Invariant: what stands before a part does not depend on it, so a change of the directory leaves system and tools as they were, byte for
byte; and within a turn the tail only grows at its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...models.model import Prompt, ToolSpec
from .blocks import Block, Rendered
from .history import ChatMessage
from .rendering import rendered

if TYPE_CHECKING:
    from ..turn import Turn

_bytes: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@attrs.frozen
class Part:
    """A part of a prompt as canonical JSON. `name` is system, tools, the name of a block behind `block `, or `tail N` from 1."""

    name: str
    data: bytes


@attrs.frozen
class Assembled:
    """All that one call of a model is told."""

    system: ChatMessage
    tools: tuple[ToolSpec, ...]
    blocks: tuple[Rendered, ...]
    tail: tuple[ChatMessage, ...]

    @property
    def prompt(self) -> Prompt:
        """The request: each block is a message of its own between the system's and the tail."""
        # The role is the user's: many services take one system message, at the very beginning.
        blocks = ({"role": "user", "content": str(block)} for block in self.blocks)
        return Prompt((self.system, *blocks, *self.tail), self.tools)

    def parts(self) -> list[Part]:
        """The parts in their order. Tools stand where providers put them, behind the system's message."""
        tools = [attrs.asdict(tool) for tool in self.tools]
        return [
            Part("system", _encoded(self.system)),
            *([Part("tools", _encoded(tools))] if tools else []),
            *(Part(f"block {block.name}", _encoded({"role": "user", "content": str(block)})) for block in self.blocks),
            *(Part(f"tail {number}", _encoded(message)) for number, message in enumerate(self.tail, start=1)),
        ]


async def assembled(
    turn: Turn,
    system: ChatMessage,
    tools: Sequence[ToolSpec],
    blocks: Iterable[Block],
    tail: Iterable[ChatMessage],
) -> Assembled:
    """The prompt of the next call, its blocks rendered now. `blocks` are in order."""
    return Assembled(system, tuple(tools), await rendered(turn, blocks), tuple(tail))


def _encoded(value: Any) -> bytes:
    # A model may write half a surrogate pair, which UTF-8 has no bytes for.
    return _bytes(value).encode("utf-8", "backslashreplace")
