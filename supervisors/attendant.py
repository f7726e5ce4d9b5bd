"""What operators ask of a running process: metrics, the doctor's report, prompts. Not here: names (`metrics`), questions (`doctor`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..actors.edges.server import Counts
from ..actors.session.prompt.report import report
from ..storage.model.sessions import Session
from .checks import Check, State, worst
from .doctor import examine_store, queue, tree, versions
from .metrics import Metrics
from .runtime import Runtime


class Counted(Protocol):
    """A front, as far as its counts go."""

    @property
    def counts(self) -> Counts | None: ...


class Attendant:
    """The `Operations` of one front of one runtime. `in_force` are the program's settings, without secrets."""

    def __init__(self, runtime: Runtime, front: Counted, in_force: Mapping[str, Any]) -> None:
        self._runtime = runtime
        self._front = front
        self._in_force = dict(in_force)
        self._metrics = Metrics(runtime)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        return await self._metrics.scrape(accept, self._front.counts)

    async def doctor(self) -> dict[str, Any]:
        runtime = self._runtime
        examined = await examine_store(runtime.store, serving=True)
        checks = [
            versions(),
            tree(runtime.snapshot()),
            *examined.checks,
            queue(runtime.store.statistics()["depth"]),
            _turns(len(runtime.dispatcher.live), runtime.desk.tuning.live_turns),
        ]
        return {
            "state": str(worst(checks)),
            "checks": [check.view() for check in checks],
            "processes": examined.processes,
            "settings": self._in_force,
        }

    async def prompt(self, session: Session) -> dict[str, Any]:
        return await report(self._runtime.desk, self._runtime.agents, session)


def _turns(live: int, most: int) -> Check:
    if live < most:
        return Check("turns", State.OK, f"{live} live of {most}")
    return Check(
        "turns", State.WARN, f"{live} live, as many as may be", "raise live_turns if the machine has room for more"
    )
