"""An agent's own tool as a model sees it: the schema, and the check, that its function's signature makes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import pytest

from callboard import Call, InvalidField, tool
from callboard.actors.session.parameters import model_tool


@tool("durable")
async def book(
    guests: Annotated[int, "How many."],
    day: Literal["today", "tomorrow"],
    call: Call,
    names: list[str] | None = None,
    extras: dict[str, float] = {},  # noqa: B006
    note: Optional[str] = None,  # noqa: UP045
    sure: bool = False,
    rest: Any = None,
) -> str:
    """Book a table.

    Only for the evening.
    """
    return str(guests)


BOOK = model_tool(book)
GIVEN = {"guests": 2, "day": "today"}


def test_the_signature_becomes_a_schema() -> None:
    assert (BOOK.spec.name, BOOK.spec.description) == ("book", "Book a table.\n\nOnly for the evening.")
    assert BOOK.spec.parameters == {
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "description": "How many."},
            "day": {"type": "string", "enum": ["today", "tomorrow"]},
            "names": {"type": "array", "items": {"type": "string"}},
            "extras": {"type": "object", "additionalProperties": {"type": "number"}},
            "note": {"type": "string"},
            "sure": {"type": "boolean"},
            "rest": {},
        },
        "required": ["guests", "day"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "more",
    [{}, {"names": ["a", "b"]}, {"names": None}, {"extras": {"x": 1.5}}, {"note": None, "sure": True}, {"rest": [{"x": None}]}],
)  # fmt: skip
def test_what_is_given_is_handed_on_and_nothing_else(more: dict[str, Any]) -> None:
    assert BOOK.values({**GIVEN, **more}) == {**GIVEN, **more}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"day": "today"}, "book.guests"),
        ({**GIVEN, "guests": "2"}, "book.guests"),
        ({**GIVEN, "guests": True}, "book.guests"),
        ({**GIVEN, "guests": 2.5}, "book.guests"),
        ({**GIVEN, "day": "monday"}, "book.day"),
        ({**GIVEN, "names": "ab"}, "book.names"),
        ({**GIVEN, "names": ["a", 2]}, "book.names[1]"),
        ({**GIVEN, "extras": {"x": "much"}}, "book.extras['x']"),
        ({**GIVEN, "sure": 1}, "book.sure"),
        ({**GIVEN, "call": {}}, "book.call"),
        ({**GIVEN, "table": 5}, "book.table"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_field(arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        BOOK.values(arguments)
    assert caught.value.path == path


async def untyped(x) -> None:  # type: ignore[no-untyped-def]
    ...


async def many(*xs: int) -> None: ...


async def keywords(**xs: int) -> None: ...


async def private(_x: int) -> None: ...


async def positional(x: int, /) -> None: ...


async def raw(x: bytes) -> None: ...


async def either(x: int | str) -> None: ...


async def numbers(x: Literal[1, 2]) -> None: ...


async def keyed(x: dict[int, str]) -> None: ...


async def deep(x: list[list[bytes]]) -> None: ...


async def lost(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "fn", [untyped, many, keywords, private, positional, raw, either, numbers, keyed, deep, lost], ids=lambda fn: fn.__name__
)  # fmt: skip
def test_what_a_model_can_not_be_asked_for_is_refused_when_the_agent_is_made(fn: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        model_tool(tool("pure")(fn))
    assert (caught.value.path or "").startswith(f"tools.{fn.__name__}")
