"""What a supervisor does when a child has ended: a pure table.

Three questions, in order: is the child ever restarted, does this exit call for it, and whom does the strategy reach.
Lives here: the answers, as values. Not here: whether the restarts are too many (`intensity` counts them; `exhausted`
brings the verdict in), and doing it (`supervisor`).

Invariant: a temporary child is in no `start`; `stop` is in reverse start order and names only the living; `start` is in
start order.

One difference from OTP: there a process may exit with reason `shutdown` by itself, and a permanent one is then
restarted. Here `Exit.SHUTDOWN` only ever means "its supervisor had asked", so nothing is restarted because of it.
"""

import enum
from collections.abc import Sequence

import attrs

from .terms import Exit, Restart, Strategy


class Action(enum.StrEnum):
    """What happens to the child that ended, and through it to others."""

    KEEP = "keep"
    """It stays listed, ended."""

    REMOVE = "remove"
    """It leaves the list."""

    RESTART = "restart"
    """Those in `stop` are stopped, then those in `start` started."""

    ESCALATE = "escalate"
    """The supervisor stops every child, in reverse order, and fails."""


@attrs.frozen
class Sibling:
    """What a decision needs to know of each child: how it restarts, and whether its task lives."""

    restart: Restart
    alive: bool = True


@attrs.frozen
class Decision:
    """`stop` and `start` are indices into the children, in the order in which they are to be carried out."""

    action: Action
    stop: tuple[int, ...] = ()
    start: tuple[int, ...] = ()


_NEEDS_RESTART = {
    (Restart.PERMANENT, Exit.NORMAL): True,
    (Restart.PERMANENT, Exit.SHUTDOWN): False,
    (Restart.PERMANENT, Exit.ABNORMAL): True,
    (Restart.TRANSIENT, Exit.NORMAL): False,
    (Restart.TRANSIENT, Exit.SHUTDOWN): False,
    (Restart.TRANSIENT, Exit.ABNORMAL): True,
    (Restart.TEMPORARY, Exit.NORMAL): False,
    (Restart.TEMPORARY, Exit.SHUTDOWN): False,
    (Restart.TEMPORARY, Exit.ABNORMAL): False,
}


def needs_restart(restart: Restart, reason: Exit) -> bool:
    """Whether this exit calls for a restart, and so counts towards the intensity."""
    return _NEEDS_RESTART[restart, reason]


def decide(
    strategy: Strategy, reason: Exit, index: int, children: Sequence[Sibling], *, exhausted: bool = False
) -> Decision:
    """What follows from the exit of `children[index]`.

    `children` are all children in start order, the ended one included. `exhausted` says that a restart now would be one
    too many.
    """
    restart = children[index].restart
    if not needs_restart(restart, reason):
        return Decision(Action.REMOVE if restart is Restart.TEMPORARY else Action.KEEP)
    if exhausted:
        return Decision(Action.ESCALATE)
    reached = _reach(strategy, index, len(children))
    return Decision(
        Action.RESTART,
        stop=tuple(i for i in reversed(reached) if i != index and children[i].alive),
        # A transient sibling that had returned starts again with its group, as in OTP: it may have prepared something
        # (a schema, a socket) that the stopped ones need anew.
        start=tuple(i for i in reached if children[i].restart is not Restart.TEMPORARY),
    )


def _reach(strategy: Strategy, index: int, count: int) -> range:
    match strategy:
        case Strategy.ONE_FOR_ONE:
            return range(index, index + 1)
        case Strategy.ONE_FOR_ALL:
            return range(count)
        case Strategy.REST_FOR_ONE:
            return range(index, count)
