"""One answer of the doctor: `Check`, how bad it is, and how bad the whole is. Not here: the questions (`doctor`, `fleet`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import attrs


class State(StrEnum):
    """How bad it is; `fail` needs somebody to act."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Check:
    """One answer; `advice` says what to do, where something is to be done."""

    name: str
    state: State
    detail: str
    advice: str = ""

    def view(self) -> dict[str, Any]:
        """{name, state, detail, advice?}"""
        view = {"name": self.name, "state": str(self.state), "detail": self.detail}
        return {**view, "advice": self.advice} if self.advice else view


def worst(checks: Iterable[Check]) -> State:
    """The state of the whole."""
    states = {check.state for check in checks}
    return State.FAIL if State.FAIL in states else State.WARN if State.WARN in states else State.OK
