"""An answer from the pieces that a chat completions endpoint sends. Pure. Lives here: their shapes, as providers really send them.

Not here: how they come. Invariant: text and arguments that leave here can be stored and sent on: no NUL, no half of a surrogate pair,
none longer than the limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import attrs

from .model import BrokenAnswer, Completion, ModelCall, Usage

CALLS_MOST: Final = 64
ARGUMENTS_CHARS: Final = 256 * 1024
_NAME_CHARS: Final = 64
_ID_CHARS: Final = 256
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_TOKENS_MOST: Final = 10**12

Json = Mapping[str, Any]


def clean(text: str) -> str:
    """Text that every database and every other model takes."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@attrs.define
class _Call:
    id: str
    name: str = ""
    arguments: str = ""


class AnswerReader:
    """Builds one answer. `add` takes the pieces of a stream, or the one piece of an answer that is not streamed."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._model: str | None = None
        self._ended = False

    @property
    def whole(self) -> bool:
        """Whether the provider has said that the answer ends here. A stream that merely stops has been cut off."""
        return self._ended or self._finish is not None

    def end(self) -> None:
        """The provider's own mark of the end has come."""
        self._ended = True

    def add(self, piece: Json) -> str:
        """Take a piece in; its text. Raises `BrokenAnswer`."""
        if isinstance(model := piece.get("model"), str):
            self._model = clean(model)[:_NAME_CHARS]
        # With the last piece, or in one of its own that has no choice.
        self._usage = usage_of(piece.get("usage")) or self._usage
        choice = _choice(piece)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self._finish = clean(finish)[:_NAME_CHARS]
        told = _object(choice.get("delta")) or _object(choice.get("message"))
        for part in _list(told.get("tool_calls")):
            self._add_call(_object(part))
        text = clean(_text(told.get("content")))
        if text:
            self._text.append(text)
        return text

    def answer(self) -> Completion:
        """The whole answer."""
        return Completion("".join(self._text), tuple(self._named()), self._finish, self._usage, self._model)

    def _add_call(self, part: Json) -> None:
        index, given, function = part.get("index"), part.get("id"), _object(part.get("function"))
        call = self._call_of(index if isinstance(index, int) else None, given if isinstance(given, str) else "")
        # Some repeat the name in every piece; nobody sends it in pieces.
        if not call.name and isinstance(name := function.get("name"), str):
            call.name = _NOT_IN_NAMES.sub("_", name)[:_NAME_CHARS]
        arguments = function.get("arguments")
        if isinstance(arguments, (dict, list)):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            call.arguments += arguments
        if len(call.arguments) > ARGUMENTS_CHARS:
            raise BrokenAnswer(f"the arguments of a tool call have more than {ARGUMENTS_CHARS} characters")

    def _call_of(self, index: int | None, id: str) -> _Call:
        """The call that a part belongs to: by index, but some give the same index to all, and some give none."""
        known = self._by_index.get(index) if index is not None else self._calls[-1] if self._calls else None
        if known is not None and (not id or not known.id or id == known.id):
            known.id = known.id or id
            return known
        if len(self._calls) >= CALLS_MOST:
            raise BrokenAnswer(f"the model asks for more than {CALLS_MOST} tool calls at once")
        call = _Call(id)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _named(self) -> list[ModelCall]:
        """The calls, each under an id of its own. Ours have the nine letters and digits that the strictest provider takes."""
        taken: set[str] = set()
        calls: list[ModelCall] = []
        for number, call in enumerate(self._calls):
            own = clean(call.id)[:_ID_CHARS]
            if not own or own in taken:
                own = f"call{number:05d}"
            taken.add(own)
            calls.append(ModelCall(own, call.name or "unnamed", clean(call.arguments)))
        return calls


def usage_of(value: object) -> Usage | None:
    """Token counts under either pair of names; None for anything else."""
    counts = _object(value)
    prompt = _count(counts, "prompt_tokens", "input_tokens")
    completion = _count(counts, "completion_tokens", "output_tokens")
    if prompt is None or completion is None:
        return None
    total = _count(counts, "total_tokens")
    return Usage(prompt, completion, prompt + completion if total is None else total)


def error_text(body: object) -> str:
    """What a provider says about an error, in whichever of the usual places it says it; "" if nowhere."""
    error = _object(body).get("error", body)
    for text in (error, *(_object(error).get(name) for name in ("message", "detail", "error", "code"))):
        if isinstance(text, str) and text:
            return clean(text)
    return ""


def _count(counts: Json, *names: str) -> int | None:
    for name in names:
        value = counts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _TOKENS_MOST:
            return value
    return None


def _choice(piece: Json) -> Json:
    """The first choice; more than one is never asked for."""
    for choice in _list(piece.get("choices")):
        found = _object(choice)
        if found.get("index", 0) == 0:
            return found
    return {}


def _text(content: object) -> str:
    """Content is a string, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = [_object(part).get("text") for part in _list(content)]
    return "".join(part for part in parts if isinstance(part, str))


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
