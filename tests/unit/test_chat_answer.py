"""Answers as providers really send them: what each shape becomes, and that nothing that leaves here can't be stored or sent on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.models.answer import ARGUMENTS_CHARS, CALLS_MOST, AnswerReader, error_text, usage_of
from callboard.actors.models.model import BrokenAnswer, Completion, ModelCall, Prompt, ToolSpec, Usage


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def part(index: int | None, id: str | None = None, name: str | None = None, arguments: Any = "") -> dict[str, Any]:
    part: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return part | ({} if index is None else {"index": index}) | ({} if id is None else {"id": id})


def read(*pieces: Any) -> Completion:
    reader = AnswerReader()
    for one in pieces:
        reader.add(one)
    return reader.answer()


def calls(*parts: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in read(*(piece(tool_calls=[one]) for one in parts)).calls]


def test_text_comes_in_pieces_and_each_is_given_out_as_it_comes() -> None:
    reader = AnswerReader()
    pieces = [piece(role="assistant", content=""), piece(content="Good "), piece(content="day"), piece()]
    assert [reader.add(one) for one in pieces] == ["", "Good ", "day", ""]
    assert not reader.whole
    assert reader.add(piece(finish="stop")) == ""
    assert reader.whole
    assert reader.answer() == Completion("Good day", finish="stop", model="m")


def test_an_answer_in_one_piece_has_the_same_shape() -> None:
    message = {
        "role": "assistant",
        "content": "Good day",
        "tool_calls": [part(None, "a", "f", "{}"), part(None, "b", "g", "{}")],
    }
    body = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    expected = (ModelCall("a", "f", "{}"), ModelCall("b", "g", "{}"))
    assert read(body) == Completion("Good day", expected, "tool_calls", Usage(1, 2, 3))


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, "?", {"type": "text", "text": "b"}]
    assert read(piece(content=parts)).text == "ab"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([part(0, "a", "f"), part(0, arguments='{"x"'), part(0, arguments=": 1}")], [("a", "f", '{"x": 1}')]),
        ([part(0, "a", "f", "1"), part(1, "b", "g", "2"), part(0, arguments="3")], [("a", "f", "13"), ("b", "g", "2")]),
        ([part(0, "a", "f", "1"), part(0, "b", "g", "2")], [("a", "f", "1"), ("b", "g", "2")]),
        ([part(None, "a", "f", "1"), part(None, arguments="2"), part(None, "b", "g", "3")], [("a", "f", "12"), ("b", "g", "3")]),
        ([part(0, "a", "f", "1"), part(0, "a", "f", "2")], [("a", "f", "12")]),
        ([part(0, "a", "f", {"x": 1})], [("a", "f", '{"x": 1}')]),
        ([part(0, "", "f", "1"), part(0, "a", arguments="2")], [("a", "f", "12")]),
        ([part(0, None, "f"), part(1, None, "g")], [("call00000", "f", ""), ("call00001", "g", "")]),
        ([part(0, "a", "f"), part(1, "b", "g"), part(2, "a", "h")], [("a", "f", ""), ("b", "g", ""), ("call00002", "h", "")]),
        ([part(0, "a", "rm -rf /\n"), part(1, "b", None), part(2, "c", "x" * 99)],
         [("a", "rm_-rf___", ""), ("b", "unnamed", ""), ("c", "x" * 64, "")]),
    ],
    ids=["pieces", "interleaved", "one index for all", "no index", "all repeated", "an object", "id later", "no ids", "id twice", "names"],
)  # fmt: skip
def test_calls_are_put_together_from_their_parts(
    parts: list[dict[str, Any]], expected: list[tuple[str, str, str]]
) -> None:
    assert calls(*parts) == expected


def test_calls_have_limits() -> None:
    assert len(calls(*(part(n, f"c{n}", "f") for n in range(CALLS_MOST)))) == CALLS_MOST
    with pytest.raises(BrokenAnswer, match="more than 64 tool calls"):
        calls(*(part(n, f"c{n}", "f") for n in range(CALLS_MOST + 1)))
    assert len(calls(part(0, "a", "f", "x" * ARGUMENTS_CHARS))[0][2]) == ARGUMENTS_CHARS
    with pytest.raises(BrokenAnswer, match="arguments of a tool call"):
        calls(part(0, "a", "f", "x" * ARGUMENTS_CHARS), part(0, arguments="x"))


def test_only_the_first_choice_counts() -> None:
    choices = [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]
    assert read({"choices": choices}).text == "yes"


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9}, Usage(3, 4, 9)),
        ({"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}}, Usage(3, 4, 7)),
        ({"input_tokens": 3, "output_tokens": 4}, Usage(3, 4, 7)),
        *((value, None) for value in (None, [], "3", {}, {"prompt_tokens": 3}, {"prompt_tokens": "3", "completion_tokens": 4})),
        *(({"prompt_tokens": bad, "completion_tokens": 4}, None) for bad in (-1, 1.5, True, 10**13)),
    ],
)  # fmt: skip
def test_usage_has_two_shapes_and_anything_else_is_none(value: object, usage: Usage | None) -> None:
    assert usage_of(value) == usage


def test_usage_comes_with_the_last_piece_or_after_it_and_null_takes_nothing_away() -> None:
    counts = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    assert read(
        {**piece(content="a"), "usage": None}, {"choices": [], "usage": counts}, {"choices": []}
    ).usage == Usage(1, 1, 2)
    assert read({**piece(finish="stop"), "usage": counts}).usage == Usage(1, 1, 2)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "no", "type": "x"}}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"message": "no"}, "no"),
        ({"error": {"code": "no"}}, "no"),
        ("no", "no"),
        *((body, "") for body in ({}, None, [], {"error": 5}, {"error": {"message": ["no"]}})),
    ],
)
def test_an_error_is_found_where_providers_put_it(body: object, text: str) -> None:
    assert error_text(body) == text


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["choices", "delta", "message", "index", "tool_calls", "function", "name", "arguments", "content", "id", "finish_reason",
         "usage", "prompt_tokens", "completion_tokens", "text", "model"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.builds(lambda choice, usage: {"choices": [choice], "usage": usage}, ODD, ODD), max_size=4))
def test_no_json_whatever_makes_more_than_an_answer_that_can_be_stored(pieces: list[dict[str, Any]]) -> None:
    answer = read(*pieces)
    for text in (
        answer.text,
        answer.model or "",
        *(x for call in answer.calls for x in (call.id, call.name, call.arguments)),
    ):
        text.encode()
        assert "\0" not in text
    assert len({call.id for call in answer.calls}) == len(answer.calls)
    assert all(call.name for call in answer.calls)


@pytest.mark.spec("CTX-6")
def test_the_hash_is_of_everything_that_the_model_is_told_and_of_nothing_else() -> None:
    tool = ToolSpec("f", "does f", {"type": "object", "properties": {"a": {}, "b": {}}})
    message = {"role": "user", "content": "hellö"}
    prompt = Prompt((message,), (tool,))
    same = Prompt(
        ({"content": "hellö", "role": "user"},),
        (ToolSpec("f", "does f", {"properties": {"b": {}, "a": {}}, "type": "object"}),),
    )
    others = [
        Prompt(({**message, "content": "hello"},), (tool,)),
        Prompt(({**message, "role": "system"},), (tool,)),
        Prompt((message, message), (tool,)),
        Prompt((message,)),
        Prompt((message,), (ToolSpec("f", "does g", tool.parameters),)),
        Prompt((message,), (ToolSpec("f", "does f", {}),)),
    ]
    assert prompt.content_hash == same.content_hash
    assert len({prompt.content_hash, *(other.content_hash for other in others)}) == 7
    digest = prompt.content_hash.removeprefix("sha256:")
    assert len(bytes.fromhex(digest)) == 32
    assert "tools" not in Prompt((message,)).body()
    assert json.loads(json.dumps(prompt.body()))["tools"][0]["function"]["name"] == "f"
