"""JSON at the boundary: strict, and every refusal names the field that is to blame."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage.model.errors import InvalidField
from callboard.storage.wire import JSON_DEPTH, BadJson, parse_object, rfc3339, structure


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def _even(_: Any, __: Any, value: int) -> None:
    if value % 2:
        raise InvalidField("must be even", path="count")


@attrs.frozen
class Part:
    count: int = attrs.field(validator=_even)
    note: str | None = None


@attrs.frozen
class Bare:
    title: str | None = None


@attrs.frozen
class Whole:
    name: str
    part: Part
    parts: list[Part] = attrs.field(factory=list)
    words: tuple[str, ...] = ()
    free: dict[str, Any] = attrs.field(factory=dict)
    ratio: float = 1.0
    flag: bool = False
    colour: Colour = Colour.RED
    size: Literal["small", "large"] = "small"
    maybe: Part | None = None
    bare: Bare = Bare()


GOOD: dict[str, Any] = {"name": "n", "part": {"count": 2}}


def fault(value: Any, kind: type[Any] = Whole) -> tuple[str | None, str]:
    with pytest.raises(InvalidField) as caught:
        structure(value, kind)
    return caught.value.path, caught.value.message


def test_what_fits_is_built() -> None:
    given_all = {
        **GOOD,
        "parts": [{"count": 4, "note": "x"}, {"count": 6, "note": None}],
        "words": ["a", "ü"],
        "free": {"any": [1, None, {"deep": True}]},
        "ratio": 2,
        "flag": True,
        "colour": "blue",
        "size": "large",
        "maybe": {"count": 8},
        "bare": {},
    }
    assert structure(given_all, Whole) == Whole(
        "n",
        Part(2),
        [Part(4, "x"), Part(6)],
        ("a", "ü"),
        {"any": [1, None, {"deep": True}]},
        2.0,
        True,
        Colour.BLUE,
        "large",
        Part(8),
        Bare(),
    )
    assert isinstance(structure(given_all, Whole).ratio, float)


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ({"name": 1}, "name"),
        ({"name": None}, "name"),
        ({"part": {}}, "part.count"),
        ({"part": {"count": "2"}}, "part.count"),
        ({"part": {"count": 2.0}}, "part.count"),
        ({"part": {"count": True}}, "part.count"),
        ({"part": {"count": 3}}, "count"),
        ({"part": {"count": 2, "more": 1}}, "part.more"),
        ({"part": []}, "part"),
        ({"part": "count"}, "part"),
        ({"part": None}, "part"),
        ({"parts": [{"count": 2}, {"count": "x"}]}, "parts[1].count"),
        ({"parts": [{"count": 2}, {"count": 2, "note": 1}]}, "parts[1].note"),
        ({"parts": {"count": 2}}, "parts"),
        ({"parts": "ab"}, "parts"),
        ({"parts": None}, "parts"),
        ({"words": "ab"}, "words"),
        ({"words": {"a": 1}}, "words"),
        ({"words": ["a", 1]}, "words[1]"),
        ({"free": []}, "free"),
        ({"free": [["a", 1]]}, "free"),
        ({"ratio": "1"}, "ratio"),
        ({"ratio": True}, "ratio"),
        ({"ratio": float("inf")}, "ratio"),
        ({"ratio": float("nan")}, "ratio"),
        ({"ratio": 10**400}, "ratio"),
        ({"flag": 1}, "flag"),
        ({"flag": "true"}, "flag"),
        ({"colour": "green"}, "colour"),
        ({"colour": 1}, "colour"),
        ({"colour": []}, "colour"),
        ({"size": "medium"}, "size"),
        ({"size": {}}, "size"),
        ({"maybe": []}, "maybe"),
        ({"bare": []}, "bare"),
        ({"bare": ""}, "bare"),
        ({"zeta": 1, "alpha": 2}, "alpha"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_nothing_is_coerced_and_the_field_is_named(bad: dict[str, Any], path: str) -> None:
    where, reason = fault({**GOOD, **bad})
    assert where == path
    # A reason is for the sender: no Python in it, and nothing of what was sent.
    assert not any(word in reason for word in ("object has", "NoneType", "typing", "class", "argument of"))
    if path not in ("count", "alpha", "part.more", "part.count", "ratio"):
        assert reason.startswith("must ")


def test_a_missing_and_an_unknown_field_say_so() -> None:
    assert fault({"name": "n"}) == ("part", "is required")
    assert fault({**GOOD, "colr": 1}) == ("colr", "is not a known field")


@pytest.mark.parametrize("value", [[], "name", None, 3, True, [["name", "n"]]])
def test_only_an_object_is_an_object(value: Any) -> None:
    assert fault(value) == ("$", "must be an object")
    assert fault(value, Bare) == ("$", "must be an object")


def test_the_callers_own_prefix_stands_before_the_path() -> None:
    with pytest.raises(InvalidField) as caught:
        structure({"name": "n", "part": {"count": "x"}}, Whole, "agent")
    assert caught.value.path == "agent.part.count"


def test_a_lone_surrogate_is_refused_wherever_a_text_may_stand() -> None:
    for bad, path in (({"name": "\ud800"}, "name"), ({"words": ["ok", "a\udfff"]}, "words[1]")):
        assert fault({**GOOD, **bad})[0] == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": 01}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        "{} {}",
        '"text"',
        "[1]",
        "null",
        "1",
        '{"a": ' + "9" * 5_000 + "}",
        b"\xff",
        b'{"a": "\xc3"}',
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32-le"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_not_a_json_object_in_utf_8_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadJson) as caught:
        parse_object(text)
    assert (caught.value.code, caught.value.status) == ("bad_json", 400)
    assert len(caught.value.message) <= 500


@pytest.mark.parametrize("depth", [JSON_DEPTH, JSON_DEPTH + 1, 900, 200_000])
@pytest.mark.parametrize("brackets", ["{}", "[]"])
def test_nesting_is_bounded(depth: int, brackets: str) -> None:
    inner = (
        ('{"a":' * (depth - 1) + "1" + "}" * (depth - 1)) if brackets == "{}" else "[" * (depth - 1) + "]" * (depth - 1)
    )
    text = f'{{"a":{inner}}}'
    if depth <= JSON_DEPTH:
        assert json.dumps(parse_object(text), separators=(",", ":")) == text
    else:
        with pytest.raises(BadJson, match="deep"):
            parse_object(text)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    wide = {"a": [[n] for n in range(1_000)], "b": "[" * 1_000 + "{" * 1_000}
    assert parse_object(json.dumps(wide)) == wide


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}', '{"a": [{"b": 1, "\\u0062": 2}]}'])
def test_a_name_that_stands_twice_in_an_object_is_refused(text: str) -> None:
    with pytest.raises(BadJson, match="twice"):
        parse_object(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_an_object_survives_the_way_there_and_back(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value)) == parse_object(json.dumps(value).encode()) == value


@given(
    JSON | st.fixed_dictionaries({"name": JSON, "part": JSON}, optional={"parts": JSON, "words": JSON, "bare": JSON})
)
def test_whatever_comes_is_built_or_refused_with_a_path(value: Any) -> None:
    try:
        built: Whole | InvalidField = structure(value, Whole)
    except InvalidField as refusal:
        built = refusal
    assert isinstance(built, Whole) or (built.path and len(built.message) <= 500)


def test_times_are_utc_with_milliseconds() -> None:
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000.1239) == "2023-11-14T22:13:20.123Z"
