"""When a model's service is asked again, and how long it is waited for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from callboard.actors.models.retry import asked_to_wait, pause, worth_another_try

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DATE = "Fri, 02 Jan 2026 03:04:{:02d} GMT"


@pytest.mark.parametrize(("status", "again"), [(s, True) for s in (408, 425, 429, 500, 502, 503, 504, 529)] + [
    (s, False) for s in (301, 400, 401, 403, 404, 413, 422)])  # fmt: skip
def test_which_answers_are_worth_another_try(status: int, again: bool) -> None:
    assert worth_another_try(status) is again


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.25 "}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": DATE.format(15)}, 10.0),
        ({"retry-after": DATE.format(15), "date": DATE.format(12)}, 3.0),
        ({"retry-after": DATE.format(1)}, 0.0),
        *(({"retry-after": bad}, 0.0) for bad in ("soon", "-5", "nan", "inf", "1e9", "9" * 40, "", "Fri, 99 Jan 2026 03:04:05 GMT")),
    ],
)  # fmt: skip
def test_what_is_asked_for_comes_in_seconds_milliseconds_or_as_a_date(headers: dict[str, str], seconds: float) -> None:
    assert asked_to_wait(headers, NOW) == seconds


def test_pauses_double_with_jitter_and_honour_what_is_asked_for_up_to_a_limit() -> None:
    assert [pause(n, 0, 0.5, 60, lambda: 0.0) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert [pause(n, 0, 0.5, 60, lambda: 1.0) for n in (1, 2, 3)] == [0.625, 1.25, 2.5]
    assert pause(1, 7.0, 0.5, 60) == 7.0
    assert pause(3, 0.1, 0.5, 60) >= 2.0, "a service that asks for nothing in particular is not asked faster"
    assert pause(1, 3_600, 0.5, 60) == 60
    assert pause(10_000, 0, 0.5, 60) == 60
