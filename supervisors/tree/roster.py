"""All children of one run of a supervisor, and the restarts under way: what is known and what follows from it.

Lives here: judging an exit, in one step without awaiting, from the pure rules of `decisions` and `intensity`. Not here:
tasks, time and chance (`supervisor` brings the last two in as numbers).

Invariant: a life is pending in at most one plan, and a plan that is replaced has nothing pending that its successor
does not take over. So no child is started by two plans, and none is forgotten.
"""

from collections.abc import Callable, Sequence

import attrs

from .decisions import Action, Sibling, decide, needs_restart
from .errors import IntensityExceeded, StartFailed, TreeError, reason_of
from .intensity import Backoff, Intensity, Window
from .lives import Life, Plan
from .specs import ChildSpec
from .terms import Exit, State, Strategy


@attrs.frozen
class Verdict:
    """How a child ended, and what is to be done: carry out a plan, or give up, or nothing."""

    reason: Exit
    plan: Plan | None = None
    failure: TreeError | None = None


@attrs.frozen
class Policy:
    """The rules of one supervisor."""

    name: str
    specs: Sequence[ChildSpec]
    strategy: Strategy
    intensity: Intensity
    backoff: Backoff


class Roster:
    """The children in start order; temporary ones leave when they end."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._window = Window(policy.intensity)
        self._plans: list[Plan] = []
        self.lives = [Life(spec, clock) for spec in policy.specs]
        self.closing = False
        """Nothing is restarted any more: every exit is a shutdown."""

    @property
    def proven(self) -> bool:
        """Whether every child has come up at least once."""
        return all(life.proven for life in self.lives)

    def boot(self) -> Plan:
        return self._adopt(Plan([], 0.0, self.lives.copy()))

    def finish(self, plan: Plan) -> None:
        if not plan.dropped:
            self._plans.remove(plan)

    def close(self) -> None:
        """Drop every restart under way."""
        self.closing = True
        for plan in self._plans:
            plan.scope.cancel()
        self._plans.clear()
        for life in self.lives:
            if life.state is State.BACKING_OFF:
                life.enter(State.STOPPED)

    def came_up(self, life: Life, now: float) -> bool:
        """Note that a child has started; False if that no longer counts, because it is about to be stopped."""
        # A doomed one stays pending in its plan, which will start it again.
        if life.doomed:
            return False
        life.came_up(now)
        for plan in self._plans:
            plan.pending.discard(life)
        return True

    def ended(self, life: Life, error: Exception | None, now: float, roll: float) -> Verdict:
        """Judge the end of a child's task. `now` is monotonic, `roll` a random number in [0, 1)."""
        came_up = life.settled.is_set()
        why = reason_of(error) if came_up or error is not None else "it returned before it had reported its start"
        asked = self.closing or life.doomed
        normal = came_up and error is None
        reason = Exit.SHUTDOWN if asked else Exit.NORMAL if normal else Exit.ABNORMAL
        life.end(State.STOPPED)
        if reason is Exit.ABNORMAL and not life.proven:
            return self._give_up(life, reason, StartFailed(self._policy.name, life.spec.name, why), error)
        exhausted = False
        if needs_restart(life.spec.restart, reason):
            self._window = self._window.record(now)
            exhausted = self._window.exceeded
        siblings = [Sibling(other.spec.restart, other.alive) for other in self.lives]
        decision = decide(self._policy.strategy, reason, self.lives.index(life), siblings, exhausted=exhausted)
        match decision.action:
            case Action.KEEP:
                if any(life in plan.pending for plan in self._plans):
                    life.enter(State.BACKING_OFF)
            case Action.REMOVE:
                self.lives.remove(life)
            case Action.RESTART:
                failures = life.failed_again(now, self._policy.intensity.period_seconds)
                delay = self._policy.backoff.delay(failures, roll)
                stop, start = ([self.lives[i] for i in indices] for indices in (decision.stop, decision.start))
                return Verdict(reason, plan=self._restart(stop, delay, start))
            case Action.ESCALATE:
                limit = self._policy.intensity
                failure = IntensityExceeded(
                    self._policy.name,
                    life.spec.name,
                    restarts=limit.restarts,
                    period_seconds=limit.period_seconds,
                    why=why,
                )
                return self._give_up(life, reason, failure, error)
        return Verdict(reason)

    def _restart(self, stop: list[Life], delay: float, start: list[Life]) -> Plan:
        wanted = set(start)
        for plan in [plan for plan in self._plans if not plan.pending.isdisjoint(wanted)]:
            # By the reach of the strategies all that is pending there is in `start`, but for temporary children that the
            # boot has not come to: without this line they would never be started, and the boot never be over.
            wanted |= {life for life in plan.pending if not life.began}
            plan.scope.cancel()
            self._plans.remove(plan)
        for life in stop:
            life.doomed = True
        group = [life for life in self.lives if life in wanted]
        for life in group:
            if not life.alive:
                life.enter(State.BACKING_OFF)
        return self._adopt(Plan(stop, delay, group))

    def _adopt(self, plan: Plan) -> Plan:
        self._plans.append(plan)
        return plan

    def _give_up(self, life: Life, reason: Exit, failure: TreeError, cause: Exception | None) -> Verdict:
        failure.__cause__ = cause
        life.enter(State.FAILED)
        return Verdict(reason, failure=failure)
