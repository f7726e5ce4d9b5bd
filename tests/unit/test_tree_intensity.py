"""The sliding window and the back-off, by their properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisors.tree import Backoff, Intensity, Window

limits = st.builds(Intensity, st.integers(0, 6), st.integers(0, 20).map(float))
# Whole numbers, so that "exactly one period apart" happens.
gaps = st.lists(st.integers(0, 12), max_size=60)
backoffs = st.builds(
    Backoff,
    first_seconds=st.floats(0, 5),
    base_seconds=st.floats(0, 5),
    factor=st.floats(1, 1e3),
    cap_seconds=st.floats(0, 60),
    jitter=st.floats(0, 1),
)
rolls = st.floats(0, 1, exclude_max=True)


def granted(limit: Intensity, times: list[float]) -> list[float]:
    """The restarts made before the first refusal, which ends the supervisor."""
    window = Window(limit)
    made: list[float] = []
    for now in times:
        window = window.record(now)
        if window.exceeded:
            break
        made.append(now)
    return made


def running(steps: list[int]) -> list[float]:
    now = 0.0
    times: list[float] = []
    for step in steps:
        now += step
        times.append(now)
    return times


@pytest.mark.spec("RT-2")
@given(limits, gaps)
def test_no_stretch_of_a_period_holds_more_restarts_than_allowed(limit: Intensity, steps: list[int]) -> None:
    made = granted(limit, running(steps))
    for begin in made:
        assert sum(begin <= time <= begin + limit.period_seconds for time in made) <= limit.restarts


@given(limits, gaps)
def test_a_restart_is_refused_only_if_the_period_before_it_is_full(limit: Intensity, steps: list[int]) -> None:
    times = running(steps)
    made = granted(limit, times)
    if len(made) < len(times):
        refused = times[len(made)]
        assert sum(time >= refused - limit.period_seconds for time in made) >= limit.restarts


@given(limits, st.lists(st.floats(0, 1e6), max_size=40))
def test_times_stay_in_order_and_few_whatever_the_clock_does(limit: Intensity, times: list[float]) -> None:
    window = Window(limit)
    for now in times:
        window = window.record(now)
        assert list(window.times) == sorted(window.times)
        assert 1 <= len(window.times) <= limit.restarts + 1
        assert window.times[-1] >= now


def test_the_default_allows_five_in_thirty_seconds_and_not_six() -> None:
    window = Window(Intensity())
    for now in (0, 1, 2, 3, 4):
        window = window.record(now)
        assert not window.exceeded
    assert window.record(30).exceeded
    assert not window.record(30.1).exceeded


@given(backoffs, st.integers(1, 2000), rolls)
def test_a_delay_is_bounded_and_jitter_only_shortens_it(backoff: Backoff, failures: int, roll: float) -> None:
    full = backoff.delay(failures, 0.0)
    delay = backoff.delay(failures, roll)
    assert 0 <= delay <= full <= backoff.cap_seconds
    assert delay >= full * (1 - backoff.jitter)


@given(backoffs, st.integers(2, 1000))
def test_delays_never_get_shorter_after_the_first(backoff: Backoff, failures: int) -> None:
    assert backoff.delay(failures, 0.0) <= backoff.delay(failures + 1, 0.0)


def test_the_first_restart_is_immediate_and_the_next_ones_double() -> None:
    backoff = Backoff(cap_seconds=0.5)
    assert [backoff.delay(n, 0.0) for n in range(1, 7)] == [0.0, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert backoff.delay(2, 0.5) == pytest.approx(0.075)
