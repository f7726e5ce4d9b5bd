"""A supervisor for children that come and go: sessions, deliveries, connections.

Lives here: many short-lived, temporary children of any function, started from synchronous code. Not here: children that
are kept alive (`supervisor`).

A child that fails harms nobody: it is never restarted and never counted, its error goes to `on_failure`. What brings the
work back (a mailbox row that is due again, a client that reconnects) is the business of whoever started it.

`start` and the end of a child are on the hot path of the program, so they do no more than a cancel scope, a dictionary
entry and a task; nothing is told to an observer but stuck children.

Invariant: a name belongs to at most one living task, from `start` until that task has ended, stuck or not.
"""

import math
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Literal, TypeVarTuple, overload

import trio

from .checks import check_count, check_name, check_number, member
from .errors import AlreadyRunning, NotRunning, TooManyChildren
from .lives import TaskLife, TemporaryLife
from .reports import Node, Observer, Stuck, guarded
from .specs import Child, ChildSpec
from .stages import Staged, StagedLife
from .terms import Kind, Restart, State

_Ts = TypeVarTuple("_Ts")
_Fn = Callable[..., Awaitable[object]]
OnFailure = Callable[[str, Exception], object]


SAME_SECONDS = 0.001
"""Children that begin within this time show one time of beginning: a number of its own for each would be kept as long as they live."""


class DynamicSupervisor:
    """Temporary children, each under a name that is free again when it has ended.

    `grace_seconds` is how long a cooperative child may go on after it was asked to stop, and any other may clean up;
    `stuck_seconds` later it is reported to `observer` as stuck. `on_failure(name, error)` is called with what a child
    raised, after its name is free. `clock` gives the seconds shown in snapshots, which list the first `listed` children.
    Raises `SpecError`.
    """

    def __init__(
        self,
        name: str,
        *,
        max_children: int = 10_000,
        grace_seconds: float = 5.0,
        stuck_seconds: float = 5.0,
        listed: int = 200,
        on_failure: OnFailure | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_name(name)
        check_count("max_children", max_children, owner=name, least=1)
        check_number("grace_seconds", grace_seconds, owner=name)
        check_number("stuck_seconds", stuck_seconds, owner=name)
        check_count("listed", listed, owner=name)
        self.name = name
        self._max_children = max_children
        self._grace_seconds = grace_seconds
        self._stuck_seconds = stuck_seconds
        self._listed = listed
        self._on_failure = on_failure
        self._observer = observer
        self._clock = clock
        self._tasks: dict[str, TemporaryLife] = {}
        self._over = self._ended
        """One for all: a bound method for each child would be kept as long as it lives."""
        self._nursery: trio.Nursery | None = None
        self._empty = trio.Event()
        self._interrupted = False
        self._newest = -math.inf
        self._asked_at: dict[str, float] = {}
        """Of the children that are being stopped, on Trio's clock."""
        self._enter(State.STOPPED)

    @overload
    def start(
        self,
        name: str,
        fn: Callable[[*_Ts], Awaitable[object]],
        /,
        *args: *_Ts,
        cooperative: Literal[False] = False,
    ) -> None: ...
    @overload
    def start(self, name: str, fn: _Fn, /, *args: object, cooperative: Literal[True]) -> None: ...
    def start(self, name: str, fn: _Fn, /, *args: object, cooperative: bool = False) -> None:
        """Start `fn(*args)` as a child; a cooperative one gets `child=` (a `Child`) as well.

        Returns at once; the child begins at the caller's next checkpoint. Raises `AlreadyRunning` while the name's last
        task lives, `TooManyChildren`, and `NotRunning` outside `run` or while it stops; then nothing was started.
        """
        nursery = self._room_for(name)
        child = Child(name, trio.Event()) if cooperative else None
        # Shielded for the reason given in `lives`: `run` stops the children, within their grace.
        task = self._tasks[name] = TaskLife(name, self._beginning(), trio.CancelScope(shield=True), child)
        nursery.start_soon(self._live, task, fn, args, name=name)

    def start_staged(self, name: str, staged: Staged, /) -> None:
        """The same for a child with an end of its own, which takes less memory while it waits (see `stages`).

        It is stopped by cancelling its scope. Its awaits outside of that are cut off if this supervisor is cancelled.
        """
        nursery = self._room_for(name)
        task = self._tasks[name] = StagedLife(name, self._beginning(), staged, self._over)
        nursery.start_soon(task.run, name=name)

    def running(self, name: str) -> bool:
        """Whether the name's task lives, also while it stops or is stuck."""
        return name in self._tasks

    @property
    def count(self) -> int:
        """How many children live."""
        return len(self._tasks)

    def stop(self, name: str) -> bool:
        """Ask one child to stop: cancelled at once, or after its grace if it is cooperative. False if none lives."""
        task = self._tasks.get(name)
        if task is None or self._nursery is None:
            return False
        if task.state is State.RUNNING:
            self._ask(task)
            self._nursery.start_soon(self._watch, task)
        return True

    async def wait_ended(self, name: str) -> None:
        """Wait until the name's task has ended, if there is one."""
        task = self._tasks.get(name)
        if task is None:
            await trio.lowlevel.checkpoint()
        else:
            await task.wait_gone()

    @property
    def stop_seconds(self) -> float:
        """The longest that stopping takes, but for stuck children: all are stopped at the same time."""
        return self._grace_seconds + self._stuck_seconds

    def spec(self, *, restart: Restart | str = Restart.PERMANENT, grace_seconds: float | None = None) -> ChildSpec:
        """This supervisor as a child of a `Supervisor`; by default its grace is `stop_seconds`."""
        return ChildSpec(
            self.name,
            self.run,
            member(Restart, restart, field="restart"),
            self.stop_seconds if grace_seconds is None else grace_seconds,
            Kind.SUPERVISOR,
            cooperative=True,
            inspect=self.snapshot,
        )

    def snapshot(self) -> Node:
        """This supervisor and its oldest children; `total` counts all of them."""
        children = tuple(
            Node(task.name, Kind.WORKER, task.state, 0, task.since)
            for task in islice(self._tasks.values(), self._listed)
        )
        return Node(self.name, Kind.SUPERVISOR, self._state, 0, self._since, children, len(self._tasks))

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED, child: Child | None = None
    ) -> None:
        """Take children until `child.stopping` is set, or until cancelled; then stop all of them, each with its grace.

        Cancelled while it already stops, it cuts the graces short. Raises `AlreadyRunning`. What is no `Exception` in a
        child (KeyboardInterrupt) stops all of them and goes on. Returns when the last child has ended, stuck or not.
        """
        if self._nursery is not None:
            raise AlreadyRunning(self.name)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._interrupted = False
                self._enter(State.RUNNING)
                try:
                    task_status.started()
                    # Run without a parent, only a cancellation ends it.
                    await (child.stopping if child is not None else trio.Event()).wait()
                    await self._stop_children()
                finally:
                    # A parent cancels only when the grace that it gave is over.
                    over = child is not None and not self._interrupted
                    await self._leave(hurry=over or self._state is State.STOPPING)
        finally:
            self._nursery = None
            self._enter(State.STOPPED)

    def _enter(self, state: State) -> None:
        self._state = state
        self._since = self._clock()

    def _room_for(self, name: str) -> trio.Nursery:
        if self._nursery is None or self._state is not State.RUNNING:
            raise NotRunning(self.name)
        if name in self._tasks:
            raise AlreadyRunning(name)
        if len(self._tasks) >= self._max_children:
            raise TooManyChildren(self.name, self._max_children)
        return self._nursery

    def _beginning(self) -> float:
        """The time, kept once for all that begin within a millisecond."""
        now = self._clock()
        if not 0 <= now - self._newest < SAME_SECONDS:
            self._newest = now
        return self._newest

    async def _live(self, task: TaskLife, fn: _Fn, args: tuple[object, ...]) -> None:
        try:
            work = fn(*args) if task.child is None else fn(*args, child=task.child)
            # The child keeps what it needs of them, and may let go of the rest.
            del fn, args
            with task.scope:
                await work
        except BaseException as error:
            self._ended(task, error)
        else:
            self._ended(task, None)

    def _ended(self, task: TemporaryLife, error: BaseException | None) -> None:
        """The last that a child's task does. What is no `Exception` is raised again."""
        # The name first: `on_failure` may start the next task under it.
        self._forget(task)
        if isinstance(error, Exception):
            if self._on_failure is not None:
                guarded(self._on_failure, task.name, error)
        elif error is not None:
            self._interrupted = True
            raise error

    def _forget(self, task: TemporaryLife) -> None:
        del self._tasks[task.name]
        self._asked_at.pop(task.name, None)
        if task.gone is not None:
            task.gone.set()
        if not self._tasks:
            self._empty.set()

    def _ask(self, task: TemporaryLife) -> None:
        self._mark(task, State.STOPPING)
        self._asked_at[task.name] = now = trio.current_time()
        task.ask(now, self._grace_seconds)

    def _mark(self, task: TemporaryLife, state: State) -> None:
        task.state = state
        task.since = self._clock()

    async def _watch(self, task: TemporaryLife) -> None:
        with trio.move_on_after(self.stop_seconds):
            await task.wait_gone()
        self._report_stuck(task)

    def _report_stuck(self, task: TemporaryLife) -> None:
        if self._tasks.get(task.name) is task and task.state is State.STOPPING:
            self._mark(task, State.STUCK)
            if self._observer is not None:
                guarded(self._observer, Stuck(self.name, task.name, trio.current_time() - self._asked_at[task.name]))

    async def _stop_children(self, *, hurry: bool = False) -> None:
        self._enter(State.STOPPING)
        for task in self._tasks.values():
            if task.state is State.RUNNING:
                self._ask(task)
            if hurry:
                task.scope.cancel()
        if any(task.state is State.STOPPING for task in self._tasks.values()):
            self._empty = trio.Event()
            with trio.move_on_after(self._stuck_seconds if hurry else self.stop_seconds):
                await self._empty.wait()
        for task in self._tasks.values():
            self._report_stuck(task)

    async def _leave(self, *, hurry: bool) -> None:
        """The way out that nothing skips: afterwards every child is gone, or cancelled and reported."""
        try:
            # A second more than it can take, or the deadline would come at the very moment of the last report.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self.stop_seconds + 1):
                await self._stop_children(hurry=hurry)
        finally:
            for task in self._tasks.values():
                task.scope.cancel()
