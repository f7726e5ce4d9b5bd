"""The state table of a message, cell by cell, as the specification has it."""

from __future__ import annotations

import pytest

from callboard.storage.model.errors import IllegalMove
from callboard.storage.model.states import MOVES, OPEN, Outcome, Reason, Status, move

P, R, D, F = Status.PENDING, Status.PROCESSING, Status.DELIVERED, Status.FAILED
LEGAL = {(P, R), (P, F), (R, P), (R, D), (R, F)}


@pytest.mark.spec("INB-2")
@pytest.mark.parametrize("old", Status)
@pytest.mark.parametrize("new", Status)
def test_every_cell(old: Status, new: Status) -> None:
    if (old, new) in LEGAL:
        assert move(old, new) is new
    else:
        with pytest.raises(IllegalMove) as caught:
            move(old, new)
        assert caught.value.path == "status"
        assert (old in caught.value.message, new in caught.value.message) == (True, True)


@pytest.mark.spec("INB-2")
def test_final_states_are_those_without_a_move() -> None:
    assert {status for status in Status if not MOVES[status]} == {D, F} == set(Status) - OPEN
    assert set(MOVES) == set(Status)


@pytest.mark.spec("INB-2")
def test_the_reasons_are_those_of_the_specification() -> None:
    assert [str(reason) for reason in Reason] == [
        "retries_used",
        "takeovers_used",
        "target_deleted",
        "cancelled",
        "dropped",
        "expired",
        "revoked",
        "undecodable",
    ]


@pytest.mark.spec("SES-10")
def test_the_outcomes_are_those_of_the_specification() -> None:
    assert [str(outcome) for outcome in Outcome] == ["answered", "stopped", "no_visible_reply"]
