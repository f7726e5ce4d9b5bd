"""Group commit: one flusher, no timer, three lanes.

Ops that queue while a batch commits are the next batch, so a lone op waits for nobody and a crowd shares one fsync. A batch holds at
most 512 ops and 4 MiB, taken from the holders' lane first, then claims, then enqueues: who holds a lease never waits behind newcomers.
A claim may also ride: it goes at the end of the next batch that may make something due, and so takes it in the transaction that brings it.
If the next batch is there already, the callers of one are told while the next one waits for the disk, so that what they do takes no time
from it.

Cancellation (DESIGN decision 5): an op not yet begun is removed when its caller leaves; a begun one commits, and its outcome is unknown
to a caller that has left. When `run` ends, every waiting op fails with `StoreDown`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import attrs
import trio

from .changes import Changes
from .model.errors import Busy, CallboardError, OutcomeUnknown, StoreDown
from .model.limits import BATCH_BYTES, BATCH_OPS, COMMIT_SECONDS, LANE_BYTES, LANE_OPS
from .ops.base import Lane, Op

R = TypeVar("R")
log: Final = logging.getLogger("callboard.store")
BATCH_SECONDS: Final = 30.0
"""A driver that has not answered by then hangs: its batch ends unknown, so that nobody waits for ever, the store's end included."""
TELL_SECONDS: Final = 0.05
"""How long a batch that is kept waiting (for another process, for its disk) may keep the callers of the one before from being told."""
LAST_SECONDS: Final = 5.0
"""What the end of the store takes at most to commit what had queued."""


@attrs.frozen
class Applied:
    """What a batch did: one outcome for each op (a value, or the error of that op alone), who must be told, and what was counted."""

    outcomes: Sequence[Any]
    touched: Mapping[str, int]
    tally: Mapping[tuple[str, str], int] = attrs.field(factory=dict[tuple[str, str], int])


@attrs.frozen
class Failure:
    """The outcome of an op that was refused: it failed alone."""

    error: BaseException


class Batches(Protocol):
    """The part of a driver that commits: all of `ops` in one transaction, or an exception and nothing.

    `meanwhile` is for the Trio thread to do while it would only wait. It is called there once or again, and not at all if that never comes.
    """

    @property
    def rides(self) -> bool:
        """Whether a claim at the end of a batch sees what the ops before it have written."""
        ...

    async def apply(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied: ...


class _Slot:
    """One op on its way. `task` is who waits for it, until it has an outcome or has left."""

    __slots__ = ("begun", "left", "op", "outcome", "size", "task")

    def __init__(self, op: Op[Any], task: trio.lowlevel.Task) -> None:
        self.op = op
        self.size = op.size
        self.task: trio.lowlevel.Task | None = task
        self.begun = False
        self.left = False
        self.outcome: Any = None

    def leave(self, cause: object) -> trio.lowlevel.Abort:
        """Whoever waits is cancelled, or has waited long enough: an op that has not begun is removed."""
        self.task = None
        self.left = True
        return trio.lowlevel.Abort.SUCCEEDED

    def settle(self, outcome: Any) -> None:
        self.outcome = outcome
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)

    def result(self) -> Any:
        if isinstance(self.outcome, Failure):
            raise self.outcome.error
        return self.outcome


class _Rider(_Slot):
    """An op that is made when its batch leaves. Begun, it can't be left: what it takes must not lie until its leases end."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Op[Any] | None], task: trio.lowlevel.Task) -> None:
        super().__init__(_NOTHING, task)
        self.make = make

    def leave(self, cause: object) -> trio.lowlevel.Abort:
        return trio.lowlevel.Abort.FAILED if self.begun else super().leave(cause)


_NOTHING: Final[Op[Any]] = Op()


def _stay(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class _Limits:
    """The time limit of shielded waits: one clock for all, as a cancel scope for each costs a tenth of what it guards.

    All wait equally long, so the oldest is always the next one to give up.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, _Slot]] = deque()
        self._some = trio.Event()

    def add(self, slot: _Slot) -> None:
        while self._waiting and self._waiting[0][1].task is None:
            self._waiting.popleft()
        self._waiting.append((trio.current_time() + COMMIT_SECONDS, slot))
        self._some.set()

    async def run(self) -> None:
        """Let those go whose time is over, until cancelled."""
        while True:
            await self._some.wait()
            while self._waiting:
                deadline, slot = self._waiting[0]
                if slot.task is not None and deadline > trio.current_time():
                    await trio.sleep_until(deadline)
                    continue
                self._waiting.popleft()
                if slot.task is not None:
                    task = slot.task
                    slot.leave(None)
                    slot.outcome = Failure(OutcomeUnknown(f"no answer from the store within {COMMIT_SECONDS:g} s"))
                    trio.lowlevel.reschedule(task)
            self._some = trio.Event()


class GroupCommit:
    """The commit queue of one store. `depth` and `weight` (bytes) of the enqueue lane are bounded."""

    def __init__(self, driver: Batches, changes: Changes) -> None:
        self._driver = driver
        self._changes = changes
        self._lanes: tuple[deque[_Slot], ...] = (deque(), deque(), deque())
        self._weight = 0
        self._limits = _Limits()
        self._rider: _Rider | None = None
        self._untold: Callable[[], None] | None = None
        self._late = trio.Event()
        self._wake = trio.Event()
        self._down: BaseException | None = StoreDown("the store is not running")
        self.failing: str | None = None
        """The code of the error that the newest batch failed with as a whole; None while batches commit."""
        self.committed = 0
        self.batches = 0
        self.tallies: Counter[tuple[str, str]] = Counter()

    @property
    def depth(self) -> int:
        """Ops that wait for a batch."""
        return sum(map(len, self._lanes))

    async def apply(self, op: Op[R]) -> R:
        """Commit `op` and return its result, or raise its refusal.

        Raises `Busy` if the enqueue lane is full, `StoreDown` if the store does not run.
        """
        self._check()
        await trio.lowlevel.checkpoint_if_cancelled()
        slot = _Slot(op, trio.lowlevel.current_task())
        self._put(slot)
        await trio.lowlevel.wait_task_rescheduled(slot.leave)
        return cast("R", slot.result())

    async def settle(self, op: Op[R]) -> R:
        """The same for a caller that must learn the outcome also while it is cancelled; `OutcomeUnknown` after `COMMIT_SECONDS`."""
        self._check()
        slot = _Slot(op, trio.lowlevel.current_task())
        self._put(slot)
        self._limits.add(slot)
        await trio.lowlevel.wait_task_rescheduled(_stay)
        return cast("R", slot.result())

    async def ride(self, make: Callable[[], Op[R] | None]) -> R:
        """Commit what `make` then gives at the end of the next batch that may make something due, and return its result.

        `make` must not block; None lets that batch go without it. One rider at a time. Waits for ever where the database has no such
        batches, so it is for a caller that is cancelled when it must do something else.
        """
        self._check()
        rider = self._rider = _Rider(make, trio.lowlevel.current_task())
        try:
            await trio.lowlevel.wait_task_rescheduled(rider.leave)
        finally:
            if self._rider is rider:
                self._rider = None
        return cast("R", rider.result())

    def _check(self) -> None:
        if self._down is not None:
            raise StoreDown(str(self._down)) from self._down

    def _put(self, slot: _Slot) -> None:
        lane = self._lanes[slot.op.lane]
        if slot.op.lane is Lane.ENQUEUES:
            if len(lane) >= LANE_OPS or self._weight >= LANE_BYTES:
                raise Busy("the commit queue is full")
            self._weight += slot.size
        lane.append(slot)
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit batches until cancelled, then commit what has queued and fail what comes later."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._limits.run)
            nursery.start_soon(self._tell_in_time)
            self._down = None
            task_status.started()
            try:
                while True:
                    await self._wake.wait()
                    self._wake = trio.Event()
                    while batch := self._take():
                        await self._flush(batch)
            finally:
                await self._end()

    async def _end(self) -> None:
        self._down = StoreDown("the store has stopped")
        end = trio.current_time() + LAST_SECONDS
        try:
            while (left := end - trio.current_time()) > 0 and (batch := self._take()):
                await self._flush(batch, left)
        finally:
            self._tell()
            for lane in self._lanes:
                while lane:
                    lane.popleft().settle(Failure(self._down))
            if self._rider is not None:
                self._rider.settle(Failure(self._down))

    def _take(self) -> list[_Slot]:
        batch: list[_Slot] = []
        weight = 0
        wakes = False
        for lane in self._lanes:
            while lane and len(batch) < BATCH_OPS:
                size = lane[0].size
                if batch and weight + size > BATCH_BYTES:
                    return batch
                slot = lane.popleft()
                if slot.op.lane is Lane.ENQUEUES:
                    self._weight -= size
                if slot.left:
                    continue
                slot.begun = True
                wakes = wakes or slot.op.wakes
                weight += size
                batch.append(slot)
        rider = self._rider
        # One that has been cancelled stands here until its task runs: nobody would get what it took.
        if wakes and rider is not None and not rider.left and len(batch) < BATCH_OPS and self._driver.rides:
            self._board(batch, rider)
        return batch

    def _board(self, batch: list[_Slot], rider: _Rider) -> None:
        op = rider.make()
        if op is not None:
            self._rider = None
            rider.op, rider.begun = op, True
            batch.append(rider)

    async def _flush(self, batch: list[_Slot], seconds: float = BATCH_SECONDS) -> None:
        applied: Applied | None = None
        error: BaseException = StoreDown("the store stopped while this was being committed")
        try:
            # A batch that has begun is never abandoned: whoever waits must learn what became of it.
            with trio.move_on_after(seconds, shield=True) as limit:
                applied = await self._driver.apply([slot.op for slot in batch], self._untold and self._tell)
            if limit.cancelled_caught:
                error = OutcomeUnknown(f"no answer from the database within {seconds:.3g} s")
        except CallboardError as refusal:
            error = refusal
        finally:
            self._tell()
            self._untold = partial(self._settle, batch, applied, error)
            if self.depth:
                self._late.set()
            else:
                self._tell()
        self._note(None if applied is not None else error)

    def _tell(self) -> None:
        """Tell the callers of the newest batch, unless they have been told."""
        tell, self._untold = self._untold, None
        if tell is not None:
            tell()

    async def _tell_in_time(self) -> None:
        while True:
            await self._late.wait()
            untold = self._untold
            await trio.sleep(TELL_SECONDS)
            if self._untold is untold:
                self._tell()
                self._late = trio.Event()

    def _settle(self, batch: list[_Slot], applied: Applied | None, error: BaseException) -> None:
        outcomes = [Failure(error)] * len(batch) if applied is None else applied.outcomes
        for slot, outcome in zip(batch, outcomes, strict=True):
            slot.settle(outcome)
        if applied is not None:
            self.batches += 1
            self.committed += len(batch)
            self.tallies.update(applied.tally)
            self._changes.publish(applied.touched)

    def _note(self, error: BaseException | None) -> None:
        """Whole batches fail for the store's own reasons: said once when it begins, and once when it is over."""
        code = None if error is None else getattr(error, "code", "store_down")
        if code != self.failing:
            log.error("no batch can be committed: %s", error) if code else log.warning("batches are committed again")
        self.failing = code
