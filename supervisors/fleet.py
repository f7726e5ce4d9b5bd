"""Who works on a store and what waits in it, over all of its processes: read once, then judged.

Lives here: `Fleet`, and the doctor's checks of processes, leases, lag and the oldest message. Not here: this process's own tree and queue
(`doctor`, `attendant`), metrics. Invariant: ids, names and figures only, and reading changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from ..storage.overview import ProcessView
from ..storage.store import Store
from .checks import Check, State
from .metrics import Load, load_of

LAG_WARN, LAG_FAIL = 5.0, 60.0
"""Seconds that a mailbox waits while a server runs."""
GONE_SECONDS: Final = 30.0
"""A process claims once a second; one that has not for so long was killed, or stands still."""
SHOWN_MOST: Final = 20


@attrs.frozen
class Fleet:
    """All that was read, at store time `now`. `run_out`: leases that nobody has taken over yet. `oldest`: the message open for longest."""

    now: float
    processes: tuple[ProcessView, ...]
    load: Load
    run_out: int
    oldest: tuple[str, float] | None
    stuck: tuple[tuple[str, str], ...]

    def view(self) -> list[dict[str, Any]]:
        """The processes: [{name, seen_seconds, leases, turns}], those first that claimed last; `turns` hold a lease that has not run out."""
        return [
            {
                "name": process.name,
                "seen_seconds": round(self._unseen(process), 3),
                "leases": process.held,
                "turns": process.held - process.run_out,
            }
            for process in sorted(self.processes, key=self._unseen)
        ]

    def checks(self, *, serving: bool) -> list[Check]:
        """The answers; `serving`: turns are run, so nothing should wait for long."""
        return [self._processes(), self._leases(), self._lag(serving=serving), self._oldest(), self._stuck()]

    def _unseen(self, process: ProcessView) -> float:
        return max(0.0, self.now - process.seen_at)

    def _gone(self, process: ProcessView) -> bool:
        return self._unseen(process) > GONE_SECONDS

    def _processes(self) -> Check:
        alive = [process for process in self.processes if not self._gone(process)]
        gone = [process for process in self.processes if self._gone(process)]
        told = [
            f"{process.name} (seen {self._unseen(process):.1f} s ago, {process.held} leases)"
            for process in sorted(alive, key=self._unseen)[:SHOWN_MOST]
        ]
        detail = f"{len(alive)} claim" + (f": {', '.join(told)}" if told else "")
        if gone:
            latest = min(gone, key=self._unseen)
            detail += f"; {len(gone)} no more, the last of them {latest.name}, for {self._unseen(latest):.0f} s"
        holding = [process.name for process in gone if process.held > process.run_out]
        if holding:
            advice = "killed or standing still: others take over when its leases have run out"
            return Check("processes", State.WARN, f"{detail}; with leases: {', '.join(holding[:SHOWN_MOST])}", advice)
        return Check("processes", State.OK, detail)

    def _leases(self) -> Check:
        detail = f"{self.load.held} held" + (f", {self.run_out} of them run out" if self.run_out else "")
        return Check("leases", State.OK, detail)

    def _lag(self, *, serving: bool) -> Check:
        load = self.load
        detail = f"{load.due} due" + (f", one for {load.lag:.1f} s" if load.due else "")
        if not serving and all(map(self._gone, self.processes)):
            return Check("lag", State.OK, detail + (", until the next start of a server" if load.due else ""))
        state = State.FAIL if load.lag > LAG_FAIL else State.WARN if load.lag > LAG_WARN else State.OK
        advice = (
            ""
            if state is State.OK
            else "turns are not taken as fast as they come: see the tree, and live_turns in the settings"
        )
        return Check("lag", state, detail, advice)

    def _oldest(self) -> Check:
        if self.oldest is None:
            return Check("oldest", State.OK, "no message is open")
        message, created = self.oldest
        return Check("oldest", State.OK, f"{message} is open, accepted {max(0.0, self.now - created):.1f} s ago")

    def _stuck(self) -> Check:
        """Sessions whose agent survived its cancel, in processes that live: with the process the task has ended."""
        alive = {process.name for process in self.processes if not self._gone(process)}
        rows = [(recipient, process) for recipient, process in self.stuck if process in alive]
        if not rows:
            return Check("stuck", State.OK, "no session is stuck")
        names = ", ".join(f"{recipient.removeprefix('session:')} in {process}" for recipient, process in rows[:10])
        advice = "their agents ignore being cancelled; mend them, then restart that process"
        return Check("stuck", State.WARN, f"{len(rows)} stuck: {names}", advice)


async def fleet_of(store: Store) -> Fleet:
    """Read it. Raises the store's errors."""
    now, reads = store.now(), store.reads
    return Fleet(
        now,
        tuple(await reads.processes(now)),
        await load_of(store),
        await reads.run_out(now),
        await reads.oldest_open(),
        tuple(await reads.stuck()),
    )
