"""A supervisor: one nursery whose children are started, watched, restarted and stopped by OTP's rules.

Lives here: carrying out what has been decided. Not here: deciding (`roster`, `decisions`, `intensity`), one child's
bookkeeping (`lives`), children that come and go (`dynamic`).

How it works. Every child is a task under its own shielded cancel scope. Its end is judged in that task, in one step
without awaiting; a restart becomes a plan with a task of its own. So nothing ever holds the supervisor: during a back-off,
a slow start or a long grace, other children are still looked after and a stop request is honoured at once. A cancellation
from outside reaches only `run`, which stops the children in reverse order before it lets the cancellation go on.

What Trio does not permit: leaving a living task behind. A child that outlives its cancel (it shields itself, swallows the
cancellation, or blocks in a thread) is reported as stuck, its siblings are stopped all the same, and it is never started a
second time beside itself; but `run` returns only when it has ended. Whoever can't wait must end the process.

Invariant: while `run` has not returned, each child has at most one task; when it has, none has one.
"""

import random as randomness
import time
from collections.abc import Callable, Iterable

import trio

from .checks import check_name, check_number, member
from .errors import AlreadyRunning, TreeError
from .intensity import Backoff, Intensity
from .lives import Life, Plan
from .reports import Escalated, Exited, Node, Observer, Restarting, Started, Stopping, Stuck, TreeEvent, guarded
from .roster import Policy, Roster
from .specs import Child, ChildSpec, check_children
from .terms import Kind, Restart, State, Strategy


class Supervisor:
    """Children under one strategy. The same object may be run again after it has ended; restarts then count anew.

    `stuck_seconds` is how long after its grace a child may still run before it is reported as stuck. `observer` is called
    with each `TreeEvent`. `clock` gives the seconds shown in snapshots; waiting goes by Trio's clock. `random` gives
    numbers in [0, 1). Raises `SpecError`. To be used from one Trio run only, as Trio's own objects are.
    """

    def __init__(
        self,
        name: str,
        children: Iterable[ChildSpec],
        *,
        strategy: Strategy | str = Strategy.ONE_FOR_ONE,
        intensity: Intensity | None = None,
        backoff: Backoff | None = None,
        stuck_seconds: float = 5.0,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        check_name(name)
        check_number("stuck_seconds", stuck_seconds, owner=name)
        self.name = name
        self._policy = Policy(
            name,
            check_children(children, owner=name),
            member(Strategy, strategy, field="strategy"),
            intensity if intensity is not None else Intensity(),
            backoff if backoff is not None else Backoff(),
        )
        self._stuck_seconds = stuck_seconds
        self._observer = observer
        self._clock = clock
        self._random = random
        self._nursery: trio.Nursery | None = None
        self._prepare(State.STOPPED)

    @property
    def stop_seconds(self) -> float:
        """The longest that stopping takes, but for stuck children: all graces, one after the other."""
        return sum(spec.grace_seconds + self._stuck_seconds for spec in self._policy.specs)

    def spec(self, *, restart: Restart | str = Restart.PERMANENT, grace_seconds: float | None = None) -> ChildSpec:
        """This supervisor as a child of another. By default its grace is `stop_seconds`, so that one stuck child below
        does not keep the siblings above from being stopped; `math.inf` waits for ever.
        """
        return ChildSpec(
            self.name,
            self.run,
            member(Restart, restart, field="restart"),
            self.stop_seconds if grace_seconds is None else grace_seconds,
            Kind.SUPERVISOR,
            cooperative=True,
            inspect=self.snapshot,
        )

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED, child: Child | None = None
    ) -> None:
        """Start the children in order, report `started` when all have, and look after them until a stop is asked for.

        Returns after `stop()`, or after `child.stopping` is set. It does not end because all children have. Raises
        `StartFailed` or `IntensityExceeded` when all children have been stopped, and `AlreadyRunning`. Cancelled from
        outside, it first stops the children within their graces; cancelled by its parent, whose grace is over, or while
        it already stops, it cuts them short. What is no `Exception` (KeyboardInterrupt) in a child stops everything likewise and goes on.
        """
        if self._nursery is not None:
            raise AlreadyRunning(self.name)
        self._prepare(State.STARTING)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    if child is not None:
                        nursery.start_soon(self._relay, child)
                    nursery.start_soon(self._follow, nursery, self._roster.boot(), name=f"{self.name}: boot")
                    if self._roster.lives:
                        await self._ready.wait()
                    if not self._over.is_set():
                        self._enter(State.RUNNING)
                        task_status.started()
                    await self._over.wait()
                    await self._stop_children()
                finally:
                    # A parent cancels only when the grace that it gave is over.
                    over = child is not None and not self._interrupted
                    await self._leave(nursery, hurry=over or self._state is State.STOPPING)
        finally:
            self._nursery = None
            self._enter(State.STOPPED if self._failure is None else State.FAILED)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask for a stop; `run` returns when it is done. Again, or while it does not run: nothing happens."""
        if self._nursery is not None and not self._over.is_set():
            self._roster.close()
            self._over.set()
            self._ready.set()

    def snapshot(self) -> Node:
        """The tree from this supervisor down, as it is now."""
        children = tuple(life.node() for life in self._roster.lives)
        return Node(self.name, Kind.SUPERVISOR, self._state, 0, self._since, children, len(children))

    def _prepare(self, state: State) -> None:
        self._roster = Roster(self._policy, self._clock)
        self._failure: TreeError | None = None
        self._interrupted = False
        self._ready = trio.Event()
        self._over = trio.Event()
        self._enter(state)

    def _enter(self, state: State) -> None:
        self._state = state
        self._since = self._clock()

    def _emit(self, event: TreeEvent) -> None:
        if self._observer is not None:
            guarded(self._observer, event)

    def _came_up(self, life: Life) -> None:
        if self._roster.came_up(life, trio.current_time()):
            self._emit(Started(self.name, life.spec.name, life.restarts))
            if self._roster.proven:
                self._ready.set()

    def _ended(self, nursery: trio.Nursery, life: Life, error: Exception | None) -> None:
        child = life.spec.name
        verdict = self._roster.ended(life, error, trio.current_time(), self._random())
        self._emit(Exited(self.name, child, verdict.reason, error))
        if verdict.failure is not None:
            self._failure = verdict.failure
            self._emit(Escalated(self.name, child, verdict.failure))
            self.stop()
        elif verdict.plan is not None:
            group = tuple(other.spec.name for other in verdict.plan.start)
            self._emit(Restarting(self.name, child, verdict.plan.delay, group))
            nursery.start_soon(self._follow, nursery, verdict.plan, name=f"{self.name}: restart of {child}")

    async def _relay(self, child: Child) -> None:
        await child.stopping.wait()
        self.stop()

    async def _follow(self, nursery: trio.Nursery, plan: Plan) -> None:
        """Carry out a plan. How each start ends is judged by the child's own task, which drops the plan if it must."""
        with plan.scope:
            for life in plan.stop:
                await self._end(life)
                # Also if it is stuck: two incarnations at once would share what only one may have.
                await life.gone.wait()
            await trio.sleep(plan.delay)
            for life in plan.start:
                if plan.dropped:
                    return
                life.begin()
                nursery.start_soon(self._live, nursery, life, name=f"{self.name}/{life.spec.name}")
                await life.settled.wait()
        self._roster.finish(plan)

    async def _live(self, nursery: trio.Nursery, life: Life) -> None:
        try:
            with life.scope:
                if not life.doomed:
                    await life.call(self._came_up)
        except Exception as error:
            self._ended(nursery, life, error)
        except BaseException:
            self._interrupted = True
            self._roster.close()
            life.end(State.FAILED)
            raise
        else:
            self._ended(nursery, life, None)

    def _ask(self, life: Life) -> None:
        if life.askable:
            life.ask(trio.current_time())
            self._emit(Stopping(self.name, life.spec.name))

    async def _end(self, life: Life) -> None:
        """Ask, and wait until the child is gone or has outlived its grace by `stuck_seconds`."""
        self._ask(life)
        if not life.alive or life.state is State.STUCK:
            return
        with trio.move_on_at(life.grace_ends + self._stuck_seconds):
            await life.gone.wait()
        if life.alive:
            life.enter(State.STUCK)
            self._emit(Stuck(self.name, life.spec.name, trio.current_time() - life.asked_at))

    async def _stop_children(self) -> None:
        self._enter(State.STOPPING)
        for life in reversed(self._roster.lives.copy()):
            await self._end(life)

    async def _leave(self, nursery: trio.Nursery, *, hurry: bool) -> None:
        """The way out that nothing skips: afterwards every child is gone, or cancelled and reported."""
        self.stop()
        try:
            # A second more than it can take, or the deadline would come at the very moment of the last report.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self.stop_seconds + 1):
                if hurry:
                    self._kill()
                await self._stop_children()
        finally:
            self._kill()
            nursery.cancel_scope.cancel()

    def _kill(self) -> None:
        unasked = [life for life in reversed(self._roster.lives) if life.askable]
        for life in self._roster.lives:
            life.kill(trio.current_time())
        # Told only now: an interrupt that arrives in the observer must find every child cancelled.
        for life in unasked:
            self._emit(Stopping(self.name, life.spec.name))
