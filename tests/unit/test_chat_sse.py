"""The parser of server-sent events: however a stream is cut it gives the same events, and what never ends is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.models.sse import EventParser, EventTooLong, ServerEvent

PARTS = ["\r", "\n", "\r\n", ":", "data", "data: x", "id: 7", "event: e", " ", "é✓", "\ufeff", "retry: 5", "\0"]


def parsed(*chunks: bytes, limit: int = 1_000_000) -> list[ServerEvent]:
    parser = EventParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=30), st.lists(st.integers(0, 200), max_size=8))
def test_the_cuts_between_chunks_change_nothing(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts).encode()
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    chunks = [text[start:end] for start, end in itertools.pairwise(places)]
    assert parsed(*chunks) == parsed(text) == parsed(b"", *(text[n : n + 1] for n in range(len(text))), b"")


def test_an_event_is_given_out_as_soon_as_its_last_byte_is_there() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [ServerEvent("message", "a", "")], "the line feed that may follow is not waited for"
    assert parser.feed(b"\ndata: b\n\n") == [ServerEvent("message", "b", "")]


@pytest.mark.parametrize(
    "text",
    [b"data: " + b"x" * 50, b"x" * 51, b"data: 123456\n" * 5, b": " + b"c" * 60 + b"\n"],
    ids=["a line without an end", "no field at all", "many lines of one event", "a comment"],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_line_or_event_that_is_too_long_is_refused(text: bytes, step: int) -> None:
    with pytest.raises(EventTooLong, match="more than 50 bytes"):
        parsed(*(text[start : start + step] for start in range(0, len(text), step)), limit=50)


def test_many_events_of_any_number_are_not_one_long_event() -> None:
    assert len(parsed(*[b"data: 0123456789\n\n"] * 1_000, limit=50)) == 1_000
