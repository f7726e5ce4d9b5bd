"""Ids: ours are never repeated and grow with time; those of senders are checked."""

from __future__ import annotations

import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.storage.model.errors import InvalidField
from callboard.storage.model.ids import (
    check_client_id,
    check_message_id,
    keyed_id,
    message_of_turn,
    new_id,
    turn_id,
)

LETTERS = string.ascii_letters + string.digits + "_.:-"


def test_ids_of_ours_have_one_form_and_never_repeat() -> None:
    ids = [new_id("msg") for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    for made in ids:
        assert re.fullmatch(r"msg_[0-9a-f]{32}", made)
        assert check_message_id(made) == made


def test_a_later_id_is_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index over them grows at its right edge."""
    milliseconds = [0, 1, 15, 16, 255, 256, 1_700_000_000_000, 1_700_000_000_001, 2**47]
    times = iter(milliseconds)
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 1_000_000)
    ids = [new_id("msg") for _ in milliseconds]
    assert ids == sorted(ids)


@pytest.mark.spec("RT-10")
def test_a_turn_is_named_after_its_head_for_good() -> None:
    message = new_id("msg")
    assert turn_id(message) == turn_id(message) != turn_id(new_id("msg"))
    assert turn_id(message).startswith("turn_")
    assert message_of_turn(turn_id(message)) == message


@pytest.mark.spec("INB-4")
@given(st.text(LETTERS, min_size=1, max_size=128))
def test_a_message_id_is_made_of_its_letters(value: str) -> None:
    assert check_message_id(value) == value


@pytest.mark.spec("INB-4", "INB-5")
@given(st.text(max_size=140) | st.text(LETTERS + " \n/é", max_size=140))
def test_any_other_message_id_is_refused(value: str) -> None:
    if 1 <= len(value) <= 128 and set(value) <= set(LETTERS):
        assert check_message_id(value) == value
    else:
        with pytest.raises(InvalidField) as caught:
            check_message_id(value)
        assert caught.value.path == "message_id"


@pytest.mark.spec("INB-5")
@pytest.mark.parametrize("value", ["", "a" * 129, "a b", "a\n", "\na", "a/b", "é", "１", "a\0", "\ud800"])
def test_examples_of_refused_message_ids(value: str) -> None:
    with pytest.raises(InvalidField):
        check_message_id(value)


def test_a_client_id_has_at_most_64_letters() -> None:
    assert check_client_id("a" * 64) == "a" * 64
    for value in ("", "a" * 65, "a\n", "a b"):
        with pytest.raises(InvalidField) as caught:
            check_client_id(value)
        assert caught.value.path == "client"


@given(st.lists(st.text(max_size=5), max_size=3), st.lists(st.text(max_size=5), max_size=3))
def test_a_keyed_id_stands_for_its_key_and_no_other(one: list[str], two: list[str]) -> None:
    assert (keyed_id("ses", *one) == keyed_id("ses", *two)) == (one == two)
    assert re.fullmatch(r"ses_[0-9a-f]{32}", keyed_id("ses", *one))
