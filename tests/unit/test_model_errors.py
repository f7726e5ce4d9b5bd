"""The error tree: four families, codes that name one thing each, messages that can be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage.model import errors
from callboard.storage.model.errors import (
    CallboardError,
    InvalidField,
    LeaseLost,
    Rejected,
    StoreFull,
    StoreLocked,
    Unavailable,
    UsageError,
    bounded,
)

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CallboardError)]
FAMILIES = (UsageError, Unavailable, LeaseLost, Rejected)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind is not CallboardError], ids=lambda kind: kind.__name__)
def test_each_error_belongs_to_one_family_and_has_a_code_of_its_own(kind: type[CallboardError]) -> None:
    assert sum(issubclass(kind, family) for family in FAMILIES) == 1
    assert "code" in vars(kind)
    assert [other for other in ALL if other.code == kind.code] == [kind]
    assert kind.__doc__


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_family_decides_who_is_to_blame_in_http(kind: type[CallboardError]) -> None:
    if issubclass(kind, UsageError | LeaseLost):
        assert 400 <= kind.status < 500
    elif issubclass(kind, Unavailable | StoreFull):
        # A full disk is a person's business, but the same request may succeed once there is room.
        assert kind.status in (429, 503)
        assert kind("later").retry_after > 0
    else:
        assert kind.status == 500


def test_an_error_says_which_field_and_keeps_both_apart() -> None:
    error = InvalidField("must not be empty", path="content")
    assert (str(error), error.message, error.path) == ("content: must not be empty", "must not be empty", "content")
    assert str(CallboardError("alone")) == "alone"
    assert StoreLocked("is in use", path="x.db", owner="host:1").owner == "host:1"


@given(st.text(max_size=2_000), st.integers(1, 600))
def test_a_message_is_one_bounded_printable_line(text: str, limit: int) -> None:
    line = bounded(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    if len(text) <= limit and text.isprintable():
        assert line == text
    assert len(CallboardError(text).message) <= 500
