"""What a model is to an agent. Lives here: prompt, answer, the port, what can go wrong. Not here: any provider.

Invariant: a `Completion` is a whole answer. One that broke off, or went past a limit, is an error and never a shorter answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs

from ...storage.model.errors import Unavailable, UsageError

Emit = Callable[[str], Awaitable[None]]
"""Takes text of the answer as it comes."""


@attrs.frozen
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen
class Prompt:
    """Everything that a model is told: `messages` in the shape of chat completions, and the tools it may call."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[ToolSpec, ...] = ()

    def body(self) -> dict[str, Any]:
        """The prompt's part of a request. No list of tools at all if there are none: an empty one is refused by some."""
        body: dict[str, Any] = {"messages": list(self.messages)}
        if self.tools:
            body["tools"] = [{"type": "function", "function": attrs.asdict(tool)} for tool in self.tools]
        return body

    @property
    def content_hash(self) -> str:
        """`sha256:` and 64 hex digits, the same wherever the same prompt is made (CTX-6)."""
        text = json.dumps(self.body(), sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@attrs.frozen
class ModelCall:
    """A tool call that a model asks for. `arguments` is its text, which need not be JSON; `id` is unique in its answer."""

    id: str
    name: str
    arguments: str


@attrs.frozen
class Usage:
    """What an answer cost, in tokens, as its provider says."""

    prompt: int
    completion: int
    total: int


@attrs.frozen
class Completion:
    """A whole answer. `finish` is the provider's word for why it ended; `usage` is None if it does not say."""

    text: str
    calls: tuple[ModelCall, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    model: str | None = None
    """Which model answered, where the provider says so."""


class Model(Protocol):
    """Anything that answers prompts. To be cancelled at any time; holds nothing between two answers."""

    @property
    def name(self) -> str:
        """For people and records."""
        ...

    async def complete(self, prompt: Prompt, emit: Emit, /) -> Completion:
        """Answer, and hand the text to `emit` on the way, all of it exactly once. Raises `ModelUnavailable`, `ModelRefused`."""
        ...


class ModelUnavailable(Unavailable):
    """The model's service gave no answer, also after all tries. `retry_after` is what it asked for, 0 if it asked for nothing.

    Unlike a store that is down it fails the attempt: a person who waits is to hear of it within a minute, not never.
    """

    code = "model_unavailable"
    status = 502

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BrokenAnswer(ModelUnavailable):
    """The service began to answer and did not end, or gave something that is no answer."""

    code = "broken_answer"


class ModelRefused(UsageError):
    """The service refuses the request itself (a wrong key, model, URL, or prompt); the same again can't help."""

    code = "model_refused"
    status = 502
