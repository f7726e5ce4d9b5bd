"""A child's life as its supervisor sees it, and the plan of a restart.

Lives here: bookkeeping that changes in one step, without awaiting. Not here: the nursery, and what to do next
(`supervisor`).

Invariant: `alive` is true from `begin` until `end`, whatever happens in between; `gone` is set exactly then. A life has
at most one task at a time.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import attrs
import trio

from .reports import Node
from .specs import Child, ChildSpec
from .terms import State


class Life:
    """A child over all its restarts. One incarnation lasts from `begin` to `end`."""

    def __init__(self, spec: ChildSpec, clock: Callable[[], float]) -> None:
        self.spec = spec
        self._clock = clock
        self.state = State.STOPPED
        self.since = clock()
        self.restarts = 0
        self.failures = 0
        """Failures in a row, for the back-off."""
        self.began = False
        """Whether there has been an incarnation at all."""
        self.proven = False
        """Whether it has ever come up; before that a failure is one of the specification, not of the moment."""
        self.alive = False
        self.doomed = False
        """Its supervisor has decided to stop this incarnation: however it ends, that is a shutdown."""
        self.came_up_at = math.inf
        self.asked_at = math.inf
        self.grace_ends = math.inf
        self.settled = trio.Event()
        """Set when the incarnation has come up or ended, so that the next child may start."""
        self.gone = trio.Event()
        self.scope = trio.CancelScope()
        self._child: Child | None = None

    def enter(self, state: State) -> None:
        self.state = state
        self.since = self._clock()

    def begin(self) -> None:
        """A new incarnation, about to be given a task."""
        self.restarts += self.began
        self.began = True
        self.alive = True
        self.doomed = False
        self.came_up_at = self.asked_at = self.grace_ends = math.inf
        self.settled = trio.Event()
        self.gone = trio.Event()
        # Shielded: a cancellation from outside reaches the supervisor, which stops its children in order. The shield gets
        # its deadline in `ask`, which the supervisor calls on every way out.
        self.scope = trio.CancelScope(shield=True)
        self._child = Child(self.spec.name, trio.Event()) if self.spec.cooperative else None
        self.enter(State.STARTING)

    async def call(self, came_up: Callable[["Life"], None]) -> None:
        """The child's own code; `came_up` is called when it counts as started."""
        options: dict[str, object] = {} if self._child is None else {"child": self._child}
        if self.spec.reports_start:
            options["task_status"] = _TaskStatus(self, came_up)
        else:
            came_up(self)
        await self.spec.start(**options)

    def came_up(self, now: float) -> None:
        self.came_up_at = now
        self.proven = True
        self.settled.set()
        self.enter(State.RUNNING)

    @property
    def askable(self) -> bool:
        """Whether it lives and has not been asked to stop."""
        return self.alive and self.state not in (State.STOPPING, State.STUCK)

    def ask(self, now: float) -> None:
        """Ask this incarnation to stop: the end of its grace is the deadline of its shield."""
        self.doomed = True
        self.enter(State.STOPPING)
        self.asked_at = now
        self.grace_ends = now + self.spec.grace_seconds
        if self._child is None or self.spec.grace_seconds == 0:
            self.scope.cancel()
        else:
            self._child.stopping.set()
            self.scope.deadline = self.grace_ends

    def kill(self, now: float) -> None:
        """Ask, and give no grace, or no more of it."""
        if self.askable:
            self.ask(now)
        self.grace_ends = min(self.grace_ends, now)
        self.scope.cancel()

    def end(self, state: State) -> None:
        self.alive = False
        self.enter(state)
        self.settled.set()
        self.gone.set()

    def failed_again(self, now: float, period: float) -> int:
        """Count one more failure in a row, or the first after a whole period of running; returns the count."""
        lived_well = now - self.came_up_at > period
        self.failures = 1 if lived_well else self.failures + 1
        return self.failures

    def node(self) -> Node:
        inner = self.spec.inspect() if self.spec.inspect is not None else None
        return Node(
            name=self.spec.name,
            kind=self.spec.kind,
            state=self.state,
            restarts=self.restarts,
            since=self.since,
            children=inner.children if inner is not None else (),
            total=inner.total if inner is not None else 0,
        )


@attrs.define(eq=False, weakref_slot=False)
class TemporaryLife(ABC):
    """A child of a dynamic supervisor: one incarnation, and nothing that a short life rarely needs."""

    name: str
    since: float
    state: State = attrs.field(default=State.RUNNING, kw_only=True)
    gone: trio.Event | None = attrs.field(default=None, kw_only=True)
    """Made only if somebody waits: most children end unwatched."""

    @property
    @abstractmethod
    def scope(self) -> trio.CancelScope:
        """What stops it."""

    def ask(self, now: float, grace_seconds: float) -> None:
        """Ask it to stop: cancelled at once, or after its grace if it is cooperative."""
        self.scope.cancel()

    async def wait_gone(self) -> None:
        if self.gone is None:
            self.gone = trio.Event()
        await self.gone.wait()


@attrs.define(eq=False, weakref_slot=False)
class TaskLife(TemporaryLife):
    """One whose task enters a scope of its own; a cooperative one has a `child`."""

    _scope: trio.CancelScope
    child: Child | None

    @property
    def scope(self) -> trio.CancelScope:
        return self._scope

    def ask(self, now: float, grace_seconds: float) -> None:
        if self.child is None or grace_seconds == 0:
            self.scope.cancel()
        else:
            self.child.stopping.set()
            self.scope.deadline = now + grace_seconds


@attrs.define(eq=False)
class Plan:
    """A boot or a restart under way: stop these, wait, then start those, in these orders.

    `pending` are those of `start` that have not yet come up; a life is pending in at most one plan.
    """

    stop: list[Life]
    delay: float
    start: list[Life]
    pending: set[Life] = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        self.pending = set(self.start)

    @property
    def dropped(self) -> bool:
        """Whether another plan has taken over, or the supervisor stops. A scope cancelled just after its task was woken
        ends nothing before the next checkpoint, so the plan's task asks after every wait.
        """
        return self.scope.cancel_called


class _TaskStatus:
    """What `nursery.start` gives a function, here bound to one incarnation."""

    def __init__(self, life: Life, came_up: Callable[[Life], None]) -> None:
        self._life = life
        self._came_up = came_up
        self._called = False

    def started(self, value: object = None) -> None:
        if self._called:
            raise RuntimeError("called 'started' twice on the same task status")
        self._called = True
        self._came_up(self._life)
