"""Specifications are refused before anything starts, with the field that is wrong."""

import functools
import math

import pytest
import trio

from callboard.supervisors.tree import (
    Backoff,
    Child,
    ChildSpec,
    DynamicSupervisor,
    Intensity,
    Kind,
    Restart,
    SpecError,
    Strategy,
    Supervisor,
)


async def plain() -> None: ...


async def cooperative(*, child: Child) -> None: ...


async def reporting(*, task_status: trio.TaskStatus[None]) -> None: ...


async def needs_argument(address: str) -> None: ...


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "x" * 201}),
        ("name", {"name": "two\nlines"}),
        ("name", {"name": 7}),
        ("restart", {"restart": "permanant"}),
        ("kind", {"kind": "manager"}),
        ("grace_seconds", {"grace_seconds": -0.1}),
        ("grace_seconds", {"grace_seconds": math.nan}),
        ("grace_seconds", {"grace_seconds": math.inf}),
        ("grace_seconds", {"grace_seconds": "5"}),
        ("grace_seconds", {"grace_seconds": True}),
        ("start", {"start": None}),
        ("start", {"start": needs_argument}),
        ("start", {"start": plain, "cooperative": True}),
        ("start", {"start": cooperative}),
    ],
)
def test_a_wrong_child_names_its_field(field: str, wrong: dict[str, object]) -> None:
    good: dict[str, object] = {"name": "child", "start": plain}
    with pytest.raises(SpecError) as caught:
        ChildSpec(**(good | wrong))  # pyright: ignore[reportArgumentType]
    assert caught.value.field == field
    assert field in str(caught.value)


def test_an_unknown_word_is_told_the_nearest_one() -> None:
    with pytest.raises(SpecError, match="did you mean 'permanent'"):
        ChildSpec("child", plain, restart="permanant")
    with pytest.raises(SpecError, match="one of worker, supervisor"):
        ChildSpec("child", plain, kind="xyz")


def test_words_become_members_and_defaults_are_those_of_the_contract() -> None:
    spec = ChildSpec("child", plain, restart="transient", kind="supervisor", grace_seconds=math.inf)
    assert spec.restart is Restart.TRANSIENT
    assert spec.kind is Kind.SUPERVISOR
    assert ChildSpec("child", plain).restart is Restart.PERMANENT
    assert (Intensity().restarts, Intensity().period_seconds) == (5, 30.0)


def test_a_start_that_takes_a_task_status_reports_its_start() -> None:
    assert ChildSpec("child", reporting).reports_start
    assert ChildSpec("child", functools.partial(reporting)).reports_start
    assert not ChildSpec("child", plain).reports_start


def test_a_start_whose_parameters_nobody_can_tell_is_called_without_any() -> None:
    class Opaque:
        __signature__ = "unknown"

        async def __call__(self) -> None: ...

    assert not ChildSpec("child", Opaque()).reports_start


@pytest.mark.spec("RT-2")
def test_a_supervisor_refuses_children_that_cannot_be_told_apart() -> None:
    with pytest.raises(SpecError, match="two children are named 'a'") as caught:
        Supervisor("root", [ChildSpec("a", plain), ChildSpec("b", plain), ChildSpec("a", plain)])
    assert (caught.value.field, caught.value.owner) == ("children", "root")


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("name", lambda: Supervisor("", [])),
        ("children", lambda: Supervisor("root", [plain])),  # pyright: ignore[reportArgumentType]
        ("strategy", lambda: Supervisor("root", [], strategy="one_for_none")),
        ("stuck_seconds", lambda: Supervisor("root", [], stuck_seconds=math.inf)),
        ("restart", lambda: Supervisor("root", []).spec(restart="never")),
        ("restarts", lambda: Intensity(restarts=-1)),
        ("restarts", lambda: Intensity(restarts=1.5)),  # pyright: ignore[reportArgumentType]
        ("period_seconds", lambda: Intensity(period_seconds=math.inf)),
        ("first_seconds", lambda: Backoff(first_seconds=-1)),
        ("factor", lambda: Backoff(factor=0.5)),
        ("jitter", lambda: Backoff(jitter=1.1)),
        ("max_children", lambda: DynamicSupervisor("d", max_children=0)),
        ("listed", lambda: DynamicSupervisor("d", listed=-1)),
        ("grace_seconds", lambda: DynamicSupervisor("d", grace_seconds=math.inf)),
    ],
)
def test_wrong_rules_name_their_field(field: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(SpecError) as caught:
        make()
    assert caught.value.field == field


def test_the_grace_of_a_nested_supervisor_covers_all_below() -> None:
    inner = Supervisor("inner", [ChildSpec("a", plain, grace_seconds=2), ChildSpec("b", plain, grace_seconds=0)])
    assert inner.spec().grace_seconds == 2 + 0 + 2 * 5.0
    assert inner.spec(grace_seconds=math.inf).grace_seconds == math.inf
    assert Supervisor("outer", [inner.spec()]).spec().kind is Kind.SUPERVISOR
    assert Supervisor("root", [], strategy="rest_for_one").name == "root"
    assert Strategy("rest_for_one") is Strategy.REST_FOR_ONE
