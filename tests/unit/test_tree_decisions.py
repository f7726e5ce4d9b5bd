"""The decision table, cell by cell, and what holds for every cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.supervisors.tree import Action, Decision, Exit, Restart, Sibling, Strategy, decide, needs_restart

KEEP = Decision(Action.KEEP)
REMOVE = Decision(Action.REMOVE)


def restart(*, stop: tuple[int, ...], start: tuple[int, ...]) -> Decision:
    return Decision(Action.RESTART, stop, start)


ONE = restart(stop=(), start=(2,))
ALL = restart(stop=(5, 3, 1, 0), start=(0, 2, 3, 4, 5))
REST = restart(stop=(5, 3), start=(2, 3, 4, 5))

# Six children; number 2 has ended. 0 permanent, 1 temporary, 3 permanent, 4 transient that returned, 5 permanent.
TABLE = {
    ("one_for_one", "permanent", "normal"): ONE,
    ("one_for_one", "permanent", "shutdown"): KEEP,
    ("one_for_one", "permanent", "abnormal"): ONE,
    ("one_for_one", "transient", "normal"): KEEP,
    ("one_for_one", "transient", "shutdown"): KEEP,
    ("one_for_one", "transient", "abnormal"): ONE,
    ("one_for_one", "temporary", "normal"): REMOVE,
    ("one_for_one", "temporary", "shutdown"): REMOVE,
    ("one_for_one", "temporary", "abnormal"): REMOVE,
    ("one_for_all", "permanent", "normal"): ALL,
    ("one_for_all", "permanent", "shutdown"): KEEP,
    ("one_for_all", "permanent", "abnormal"): ALL,
    ("one_for_all", "transient", "normal"): KEEP,
    ("one_for_all", "transient", "shutdown"): KEEP,
    ("one_for_all", "transient", "abnormal"): ALL,
    ("one_for_all", "temporary", "normal"): REMOVE,
    ("one_for_all", "temporary", "shutdown"): REMOVE,
    ("one_for_all", "temporary", "abnormal"): REMOVE,
    ("rest_for_one", "permanent", "normal"): REST,
    ("rest_for_one", "permanent", "shutdown"): KEEP,
    ("rest_for_one", "permanent", "abnormal"): REST,
    ("rest_for_one", "transient", "normal"): KEEP,
    ("rest_for_one", "transient", "shutdown"): KEEP,
    ("rest_for_one", "transient", "abnormal"): REST,
    ("rest_for_one", "temporary", "normal"): REMOVE,
    ("rest_for_one", "temporary", "shutdown"): REMOVE,
    ("rest_for_one", "temporary", "abnormal"): REMOVE,
}


def family(ended: Restart) -> list[Sibling]:
    return [
        Sibling(Restart.PERMANENT),
        Sibling(Restart.TEMPORARY),
        Sibling(ended, alive=False),
        Sibling(Restart.PERMANENT),
        Sibling(Restart.TRANSIENT, alive=False),
        Sibling(Restart.PERMANENT),
    ]


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize("reason", Exit)
@pytest.mark.parametrize("ended", Restart)
@pytest.mark.parametrize("strategy", Strategy)
def test_cell(strategy: Strategy, ended: Restart, reason: Exit) -> None:
    assert decide(strategy, reason, 2, family(ended)) == TABLE[strategy.value, ended.value, reason.value]


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize("reason", Exit)
@pytest.mark.parametrize("ended", Restart)
@pytest.mark.parametrize("strategy", Strategy)
def test_cell_when_one_more_restart_would_be_too_many(strategy: Strategy, ended: Restart, reason: Exit) -> None:
    usual = TABLE[strategy.value, ended.value, reason.value]
    expected = Decision(Action.ESCALATE) if usual.action is Action.RESTART else usual
    assert decide(strategy, reason, 2, family(ended), exhausted=True) == expected


def test_a_temporary_sibling_is_stopped_with_its_group_but_not_started_again() -> None:
    children = [Sibling(Restart.PERMANENT, alive=False), Sibling(Restart.TEMPORARY)]
    assert decide(Strategy.ONE_FOR_ALL, Exit.ABNORMAL, 0, children) == restart(stop=(1,), start=(0,))


siblings = st.builds(Sibling, st.sampled_from(Restart), st.booleans())


@given(st.sampled_from(Strategy), st.sampled_from(Exit), st.lists(siblings, min_size=1, max_size=8), st.data())
def test_orders_hold_for_every_family(strategy: Strategy, reason: Exit, children: list[Sibling], data: st.DataObject):
    index = data.draw(st.integers(0, len(children) - 1))
    decision = decide(strategy, reason, index, children)
    assert list(decision.stop) == sorted(decision.stop, reverse=True)
    assert list(decision.start) == sorted(decision.start)
    assert all(children[i].alive and i != index for i in decision.stop)
    assert all(children[i].restart is not Restart.TEMPORARY for i in decision.start)
    # Whoever is stopped and not temporary comes back.
    assert {i for i in decision.stop if children[i].restart is not Restart.TEMPORARY} <= set(decision.start)
    assert (index in decision.start) == needs_restart(children[index].restart, reason)
