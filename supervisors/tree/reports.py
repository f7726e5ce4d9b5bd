"""What people and metrics are told about a tree: snapshots and events.

Lives here: frozen values and the guarded call of an observer. Not here: when they are made.

Invariant: nothing that an observer or a callback does can harm the tree. What it raises is logged and dropped.
"""

import logging
from collections.abc import Callable
from typing import ParamSpec

import attrs

from .terms import Exit, Kind, State


@attrs.frozen
class Node:
    """One member of a tree at one moment.

    `restarts` counts how often it has been started anew since its supervisor runs, its group's restarts included.
    `since` is the time of its last change of state, in seconds of the supervisor's clock. `total` is how many children
    it has: more than are listed in `children` if a dynamic supervisor has many.
    """

    name: str
    kind: Kind
    state: State
    restarts: int
    since: float
    children: tuple["Node", ...] = ()
    total: int = 0


@attrs.frozen
class Started:
    """The child runs; `restarts` is 0 the first time."""

    supervisor: str
    child: str
    restarts: int


@attrs.frozen
class Exited:
    """The child's task has ended. `error` is what it raised, also while it was stopping."""

    supervisor: str
    child: str
    exit: Exit
    error: Exception | None


@attrs.frozen
class Restarting:
    """The child ended and will be started again, with those named in `group`, after `delay` seconds."""

    supervisor: str
    child: str
    delay: float
    group: tuple[str, ...]


@attrs.frozen
class Stopping:
    """The child was asked to stop."""

    supervisor: str
    child: str


@attrs.frozen
class Stuck:
    """The child still runs `seconds` after it was asked to stop. Its supervisor can't end before it does."""

    supervisor: str
    child: str
    seconds: float


@attrs.frozen
class Escalated:
    """The supervisor gives up with `error` because of the child; it stops all children and fails."""

    supervisor: str
    child: str
    error: Exception


TreeEvent = Started | Exited | Restarting | Stopping | Stuck | Escalated
Observer = Callable[[TreeEvent], object]

_P = ParamSpec("_P")
_log = logging.getLogger(__name__)


def guarded(call: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
    """Call back into foreign code; an `Exception` of it is logged with its traceback and goes no further."""
    try:
        call(*args, **kwargs)
    except Exception:
        _log.exception("a callback of the supervision tree failed")
