"""Whatever happens in whatever order: no child runs twice at once, none is forgotten, all end in reverse order."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard.supervisors.tree import Backoff, ChildSpec, Intensity, Restart, State, Strategy, Supervisor, open_tree


class Actor:
    """A child with faults that can be switched on: slow or failing starts, slow clean-up, sudden ends."""

    def __init__(self, name: str, restart: Restart, log: list[str]) -> None:
        self.name = name
        self.restart = restart
        self.log = log
        self.up = 0
        self.most_up = 0
        self.has_ended = False
        self.start_seconds = 0.0
        self.cleanup_seconds = 0.0
        self.failing_starts = 0
        self.end = trio.Event()
        self.error: Exception | None = None

    async def start(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.up += 1
        # Not an assertion: here it would be one more failed start, and be healed.
        self.most_up = max(self.most_up, self.up)
        self.end, self.error = trio.Event(), None
        try:
            await trio.sleep(self.start_seconds)
            if self.failing_starts:
                self.failing_starts -= 1
                raise ConnectionError
            task_status.started()
            await self.end.wait()
            if self.error is not None:
                raise self.error
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 100):
                await trio.sleep(self.cleanup_seconds)
            self.up -= 1
            self.has_ended = True
            self.log.append(self.name)

    def do(self, action: str, amount: int) -> None:
        match action:
            case "crash":
                self.error = ValueError()
                self.end.set()
            case "leave":
                self.end.set()
            case "slow start":
                self.start_seconds = amount
            case "slow cleanup":
                self.cleanup_seconds = amount
            case _:
                self.failing_starts = amount

    def heal(self) -> None:
        self.start_seconds = self.cleanup_seconds = self.failing_starts = 0


ACTIONS = ["crash", "crash", "crash", "leave", "slow start", "slow cleanup", "failing starts"]
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.0, 0.05, 1.0, 3.0])),
    max_size=14,
)


@pytest.mark.spec("RT-2")
@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(Strategy),
    st.lists(st.sampled_from(Restart), min_size=1, max_size=4),
    st.booleans(),
    steps,
    st.integers(0, 3),
)
def test_any_sequence_of_faults_heals(
    strategy: Strategy, kinds: list[Restart], slow: bool, faults: list[tuple[str, int, int, float]], stuck_seconds: int
) -> None:
    log: list[str] = []
    actors = [Actor(f"{number}", kind, log) for number, kind in enumerate(kinds)]
    supervisor = Supervisor(
        "root",
        [ChildSpec(actor.name, actor.start, actor.restart, grace_seconds=1) for actor in actors],
        strategy=strategy,
        intensity=Intensity(restarts=10_000),
        backoff=Backoff(cap_seconds=0.4),
        stuck_seconds=stuck_seconds,
    )

    async def main() -> None:
        async with open_tree(supervisor):
            for action, index, amount, pause in faults:
                actors[index % len(actors)].do(action, amount)
                await trio.sleep(pause)
            for actor in actors:
                actor.heal()
            await trio.sleep(100)
            nodes = {node.name: node for node in supervisor.snapshot().children}
            for actor in actors:
                match actor.restart:
                    case Restart.PERMANENT:
                        assert (nodes[actor.name].state, actor.up) == (State.RUNNING, 1)
                    case Restart.TRANSIENT:
                        assert nodes[actor.name].state == (State.RUNNING if actor.up else State.STOPPED)
                    case Restart.TEMPORARY:
                        assert (actor.name in nodes, actor.up) == ((False, 0) if actor.has_ended else (True, 1))
            living = [actor.name for actor in actors if actor.up]
            log.clear()
        assert log == living[::-1]
        assert max(actor.most_up for actor in actors) <= 1

    if slow:
        actors[-1].start_seconds = 2
    trio.run(main, clock=MockClock(autojump_threshold=0))
