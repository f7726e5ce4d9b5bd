"""Context blocks: what a model is told about the things around its session, rendered anew for each of its calls (CTX-1).

Lives here: the block, its template's environment, how foreign text is made harmless. Not here: asking the providers (`rendering`), the
blocks that are shipped (`standard`), where blocks stand in a prompt (`assembly`).

Invariant: a template is a program's own text and data is never one; data stays on one line, bounded, without any character that could end
its block or begin another.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from jinja2 import StrictUndefined, Template, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

from ....storage.model.errors import InvalidField

if TYPE_CHECKING:
    from ..turn import Turn

FIELD_CHARS: Final = 200
"""What one value may take of a block."""
BLOCK_CHARS: Final = 8_000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")
_SPACES: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Written out rather than asked of `unicodedata`, whose answers change with Python's version: every worker must make the same bytes.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Bidirectional and zero-width marks, variation selectors, tags, half surrogates: what changes a text and is not seen."""
_NEUTRAL: Final = str.maketrans("<>[]{}`＜＞［］｛｝", "‹›()()'‹›()()")
"""Brackets of headers, markup, templates, and of the marks between messages (`<|im_start|>`) that some models obey."""

Provide = Callable[["Turn"], Awaitable[Mapping[str, Any] | None]]
"""Gives a template its variables; None, or an empty mapping, for a block that has nothing to say."""


class _Cleaned(str):
    """What `clean` gave: a template puts it out as it is. Whatever is made of it, a part or a sum, is a plain text again."""

    __slots__ = ()


def clean(value: object, limit: int = FIELD_CHARS) -> str:
    """Any value as one harmless line of at most `limit` characters, which a template then does not shorten again. None is empty."""
    if value is None:
        return ""
    # What is far beyond the limit is not looked at: texts may be of any length.
    text = _SPACES.sub(" ", _INVISIBLE.sub("", str(value)[: 8 * limit])).translate(_NEUTRAL).strip()
    return _Cleaned(text if len(text) <= limit else text[: limit - 1].rstrip() + "…")


def _put_out(value: object) -> str:
    """A value as a template puts it out. A provider knows better than any bound here how long its own may be: half a path leads nowhere."""
    return value if isinstance(value, _Cleaned) else clean(value)


_TEMPLATES: Final = SandboxedEnvironment(
    undefined=StrictUndefined,
    autoescape=False,  # a model reads it, not a browser: `clean` is applied to every value instead
    finalize=_put_out,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)


@attrs.frozen
class Block:
    """A context block. `rank` and then `name` decide where it stands: what changes most seldom should have the lowest rank.

    `template` is Jinja text of the program's own; every value that it puts out goes through `clean`. `provide`, an async function, is
    asked before each model call, at the same time as those of other blocks, on whichever worker makes it, for at most five seconds. Raises
    `InvalidField`.
    """

    name: str
    rank: int
    template: str = attrs.field(repr=False)
    provide: Provide = attrs.field(repr=False)
    _compiled: Template = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidField("must be 1 to 64 of a-z, 0-9, - and _, a letter first", path="block.name")
        if not _is_async(self.provide):
            raise InvalidField("must be an async function, or an object whose __call__ is one", path="block.provide")
        try:
            compiled = _TEMPLATES.from_string(self.template)
        except TemplateSyntaxError as error:
            raise InvalidField(f"is no template: {error.message}", path=f"blocks.{self.name}.template") from None
        object.__setattr__(self, "_compiled", compiled)

    def text(self, data: Mapping[str, Any]) -> str:
        """The block with `data`, without its header. Raises what Jinja raises."""
        text = self._compiled.render(data).strip()
        return text if len(text) <= BLOCK_CHARS else text[: BLOCK_CHARS - 1].rstrip() + "…"


@attrs.frozen
class Rendered:
    """A block as a model is told it."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"[context: {self.name}]\n{self.text}"


def in_order(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Blocks by (rank, name), so that their order never depends on data. Raises `InvalidField` for a name that stands twice."""
    found = tuple(sorted(blocks, key=lambda block: (block.rank, block.name)))
    names = [block.name for block in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidField("is the name of two blocks", path=f"blocks.{name}")
    return found


def _is_async(provide: object) -> bool:
    """Whether a call of it can be awaited, as far as can be told without one."""
    while isinstance(provide, functools.partial):
        provide = provide.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    # Not the attribute of `provide`: a class, which no call of makes anything to wait for, would have the one of its objects.
    called = getattr(type(provide), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(provide) or inspect.iscoroutinefunction(called)
