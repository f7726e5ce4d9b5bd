"""The doctor's judgement: what is well, what is not, and that there is something to do about whatever is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.storage.model.errors import StoreCorrupt
from callboard.supervisors import doctor
from callboard.supervisors.checks import Check, State, worst
from callboard.supervisors.tree import Node

OK, WARN, FAIL = State.OK, State.WARN, State.FAIL


def part(name: str, state: str = "running", restarts: int = 0) -> Node:
    return Node(name, "worker", state, restarts, 0.0)  # type: ignore[arg-type]


def root(*children: Node) -> Node:
    return Node("callboard", "supervisor", "running", 0, 0.0, children)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (doctor.clock(100.0, 99.0), OK),
        (doctor.clock(3_700.0, 100.0), WARN),
        (doctor.clock(100.0, 3_700.0), WARN),
        (doctor.clock(100.0, 3_700.0, shared=True), WARN),
        (doctor.tree(root(part("store"), part("front", "stopping"))), OK),
        (doctor.tree(root(part("store"), part("front", restarts=2))), WARN),
        (doctor.tree(root(part("store"), part("front", "restarting"))), FAIL),
        (doctor.queue(12), OK),
        (doctor.queue(5_000), WARN),
        (doctor.file_check(None), WARN),
        (doctor.store_refusal(StoreCorrupt("is damaged", path="x.db")), FAIL),
        (doctor.versions(), OK),
        *((check, WARN) for check in doctor.restored((1_000.0, 500.0), 2_000.0)),
        *((check, WARN) for check in doctor.restored((1_000.0, None), 2_000.0)),
        *((check, OK) for check in doctor.restored((1_000.0, 500.0), 1_000.0 + 8 * 86_400)),
    ],
    ids=lambda value: value.name if isinstance(value, Check) else str(value),
)
def test_each_finding_has_its_weight_and_what_is_not_well_says_what_to_do(check: Check, state: State) -> None:
    assert check.state is state, check
    assert check.detail
    assert bool(check.advice) is (state is not OK)
    assert set(check.view()) == {"name", "state", "detail"} | ({"advice"} if check.advice else set())


@pytest.mark.parametrize(("free", "state"), [(2048, OK), (1023, WARN), (99, FAIL)])
def test_a_disk_that_fills_up_is_told_in_time(tmp_path: Path, monkeypatch: Any, free: int, state: State) -> None:
    usage = SimpleNamespace(total=4096 * doctor.MIB, free=free * doctor.MIB)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    check = doctor.disk(tmp_path / "x.db")
    assert check.state is state
    assert ("prune" in check.advice) is (state is not OK)


def test_a_log_that_does_not_shrink_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"12345")
    assert "5 B, log 0 B" in doctor.file_check(file).detail
    with (tmp_path / "x.db-wal").open("wb") as log:
        log.truncate(doctor.LOG_MOST + 1)
    assert doctor.file_check(file).state is WARN


def test_names_and_restarts_are_in_the_tree_check() -> None:
    assert "front" in doctor.tree(root(part("front", "failed"))).detail
    assert "front 2×" in doctor.tree(root(part("front", restarts=2))).detail


@pytest.mark.parametrize(("states", "whole"), [([], OK), ([OK, OK], OK), ([OK, WARN], WARN), ([FAIL, WARN, OK], FAIL)])
def test_the_whole_is_as_bad_as_its_worst(states: list[State], whole: State) -> None:
    assert worst(Check("x", state, "y") for state in states) is whole
