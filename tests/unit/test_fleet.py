"""The doctor's judgement of who works on a store: which processes live, what they hold, what waits."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.storage.overview import ProcessView
from callboard.supervisors.checks import Check, State
from callboard.supervisors.fleet import Fleet
from callboard.supervisors.metrics import Load

OK, WARN, FAIL = State.OK, State.WARN, State.FAIL
NOW = 1_000_000.0
ALIVE = ProcessView("host.1.aa", NOW - 0.4, 2, 1)
DEAD = ProcessView("host.2.bb", NOW - 3_600.0, 0, 0)


def fleet(*processes: ProcessView, **fields: Any) -> Fleet:
    given: dict[str, Any] = {"load": Load(0, 0, 0.0), "run_out": 0, "oldest": None, "stuck": (), **fields}
    return Fleet(NOW, processes, **given)


def named(name: str, found: Fleet, *, serving: bool = True) -> Check:
    (check,) = [check for check in found.checks(serving=serving) if check.name == name]
    assert bool(check.advice) is (check.state is not OK), check
    return check


@pytest.mark.parametrize(
    ("lag", "serving", "processes", "state"),
    [
        (0.0, True, (), OK),
        (4.9, True, (), OK),
        (5.1, True, (), WARN),
        (61.0, True, (), FAIL),
        (9_999.0, False, (), OK),
        (9_999.0, False, (DEAD,), OK),
        (61.0, False, (ALIVE,), FAIL),
    ],
)
def test_what_waits_is_judged_where_somebody_should_take_it(
    lag: float, serving: bool, processes: tuple[ProcessView, ...], state: State
) -> None:
    assert named("lag", fleet(*processes, load=Load(2, 0, lag)), serving=serving).state is state


@pytest.mark.spec("OPS-4")
def test_each_process_is_named_with_what_it_holds_and_a_dead_one_with_leases_is_warned_of() -> None:
    check = named("processes", fleet(ALIVE, DEAD))
    assert check.state is OK
    assert "1 claim: host.1.aa (seen 0.4 s ago, 2 leases); 1 no more" in check.detail
    killed = ProcessView("host.3.cc", NOW - 31.0, 4, 3)
    check = named("processes", fleet(ALIVE, killed))
    assert check.state is WARN
    assert "with leases: host.3.cc" in check.detail
    assert named("processes", fleet(ALIVE, ProcessView("host.3.cc", NOW - 31.0, 3, 3))).state is OK, "all have run out"


def test_the_view_has_the_processes_in_the_order_in_which_they_claimed_last() -> None:
    assert fleet(DEAD, ALIVE).view() == [
        {"name": "host.1.aa", "seen_seconds": 0.4, "leases": 2, "turns": 1},
        {"name": "host.2.bb", "seen_seconds": 3_600.0, "leases": 0, "turns": 0},
    ]


def test_leases_that_ran_out_and_the_oldest_message_are_told() -> None:
    found = fleet(ALIVE, load=Load(3, 7, 0.0), run_out=2, oldest=("msg_1", NOW - 12.0))
    assert named("leases", found).detail == "7 held, 2 of them run out"
    assert named("oldest", found).detail == "msg_1 is open, accepted 12.0 s ago"
    assert named("oldest", fleet()).detail == "no message is open"


def test_a_stuck_session_counts_while_its_process_lives() -> None:
    marks = (("session:ses_1", "host.1.aa"), ("session:ses_2", "host.2.bb"))
    check = named("stuck", fleet(ALIVE, DEAD, stuck=marks))
    assert check.state is WARN
    assert "ses_1 in host.1.aa" in check.detail
    assert "ses_2" not in check.detail
    assert named("stuck", fleet(DEAD, stuck=marks)).state is OK
