"""Messages: what a text may hold, when two sends are the same, and building a send from checked fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import InvalidField
from callboard.storage.model.limits import CONTENT_CHARS, PAYLOAD_BYTES
from callboard.storage.model.messages import Kind, check_text, digest, dump_payload
from callboard.storage.ops import Enqueue
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session

ANN = Sender("ann", "member", "Ann")
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=60)


def send(content: str = "hello", target: str = "session:ses_1", **fields: Any) -> Enqueue:
    return enqueue(Scope(), target, ANN, content, **fields)


def at_fault(**fields: Any) -> str | None:
    with pytest.raises(InvalidField) as caught:
        send(**fields)
    return caught.value.path


@pytest.mark.spec("INB-5")
@given(TEXTS)
def test_a_text_passes_as_it_is_or_is_refused(text: str) -> None:
    bad = not text.strip() or "\0" in text or any("\ud800" <= c <= "\udfff" for c in text)
    if bad:
        with pytest.raises(InvalidField) as caught:
            check_text(text, "task")
        assert caught.value.path == "task"
    else:
        assert check_text(text) is text
        text.encode()


@pytest.mark.spec("INB-5")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"content": ""}, "content"),
        ({"content": " \n\t\u2003"}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"content": "a\ud800"}, "content"),
        ({"content": "x" * (CONTENT_CHARS + 1)}, "content"),
        ({"target": ""}, "target"),
        ({"target": "session:\0"}, "target"),
        ({"target": "session:\ud800"}, "target"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": "a b"}, "message_id"),
        ({"message_id": "x" * 129}, "message_id"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"transport": "carrier_pigeon"}, "transport"),
        ({"transport": ""}, "transport"),
        ({"transport": "suzent_peer"}, "destination_peer"),
        ({"transport": "suzent_peer", "destination_peer": ""}, "destination_peer"),
        ({"payload": {"a": float("nan")}}, "payload"),
        ({"payload": {"a": float("inf")}}, "payload"),
        ({"payload": {"a": object()}}, "payload"),
        ({"payload": {"a": b"bytes"}}, "payload"),
        ({"payload": {"a": "x" * PAYLOAD_BYTES}}, "payload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_field_is_refused_by_name_when_the_op_is_built(fields: dict[str, Any], path: str) -> None:
    assert at_fault(**fields) == path


@pytest.mark.spec("INB-5")
def test_a_payload_that_is_nested_too_deeply_is_refused_by_name() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert at_fault(payload=deep) == "payload"
    circular: dict[str, Any] = {}
    circular["a"] = circular
    assert at_fault(payload=circular) == "payload"


def test_what_may_be_left_out_has_its_default() -> None:
    op = send("x" * CONTENT_CHARS)
    assert (op.message_id, op.payload, op.reply_to, op.transport, op.max_attempts) == (None, None, None, "local", 5)
    assert op.chain == op.id != send().id


@pytest.mark.spec("INB-4")
def test_equal_payloads_are_equal_whatever_their_order() -> None:
    assert dump_payload({"b": 1, "a": {"d": 1, "c": 2}}) == dump_payload({"a": {"c": 2, "d": 1}, "b": 1})
    assert dump_payload(None) is None
    assert dump_payload({}) == "{}"
    assert json.loads(dump_payload({"ü": [1.5, None, True]}) or "") == {"ü": [1.5, None, True]}


Parts = tuple[str, str, str, str | None]
WORDS = st.text("ab:0123\0", max_size=6)
PARTS = st.tuples(WORDS, st.sampled_from(list(Kind)), WORDS, st.none() | st.text("ab:{}\0", min_size=2, max_size=6))


@pytest.mark.spec("INB-4")
@given(PARTS, PARTS)
def test_a_digest_is_equal_exactly_when_the_send_is(one: Parts, two: Parts) -> None:
    assert (digest(*one) == digest(*two)) == (one == two)


@pytest.mark.spec("INB-4")
@given(PARTS, st.integers(1, 5))
def test_no_text_can_move_from_one_field_to_the_next(parts: Parts, cut: int) -> None:
    target, kind, content, payload = parts
    moved = (target[:-cut], kind, target[-cut:] + content, payload)
    assert (digest(*moved) == digest(*parts)) == (moved == parts)


@pytest.mark.spec("INB-4")
@pytest.mark.parametrize("between", ["\0", "", ":", "1:", "\x001:"])
def test_what_stands_between_two_fields_can_be_in_a_text(between: str) -> None:
    one = digest("t", "k", f"b{between}c", "a")
    assert one != digest("t", "k", "c", f"a{between}b")
    assert one != digest("t", f"k{between}a", "c", "b")


@pytest.mark.spec("INB-4")
def test_a_digest_takes_any_text_and_is_short() -> None:
    assert len(digest("session:a", "urgent", "\ud800" * 20_000, None)) == 16
    assert digest("t", "k", "c", None) != digest("t", "k", "c", "{}")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"agent": ""}, "agent"),
        ({"agent": "x" * 65}, "agent"),
        ({"agent": "a\nb"}, "agent"),
        ({"agent": "a\u202eb"}, "agent"),
        ({"path": "ops"}, "path"),
        ({"title": "x" * 201}, "title"),
        ({"title": "a\0"}, "title"),
        ({"title": "\ud800"}, "title"),
        ({"title": "  "}, "title"),
    ],
)
def test_a_session_is_built_from_checked_fields_too(fields: dict[str, Any], path: str) -> None:
    given_fields: dict[str, Any] = {"agent": "echo", **fields}
    with pytest.raises(InvalidField) as caught:
        open_session(Scope(), **given_fields)
    assert caught.value.path == path
