"""A driver that does as it is told, for the tests of group commit, and ops of each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import trio
import trio.testing

from callboard.storage.changes import Changes
from callboard.storage.commit import Applied, Failure, GroupCommit
from callboard.storage.model.errors import MailboxFull
from callboard.storage.ops.base import Lane, Op


@attrs.frozen
class Post(Op[int]):
    number: int = 0
    weight: int = 1

    @property
    def size(self) -> int:
        return self.weight


@attrs.frozen
class Take(Post):
    lane: ClassVar[Lane] = Lane.CLAIMS


@attrs.frozen
class Hold(Post):
    lane: ClassVar[Lane] = Lane.HOLDERS


@attrs.frozen
class Wake(Post):
    @property
    def wakes(self) -> bool:
        return True


class Driver:
    """Keeps every batch, answers each op with its number. Its statements wait at `work`, then its commit waits at `gate`; both are open."""

    name = "test"
    migrated: tuple[str, ...] = ()
    rides = True

    def __init__(self) -> None:
        self.batches: list[list[Post]] = []
        self.work, self.gate = trio.Event(), trio.Event()
        self.work.set()
        self.gate.set()
        self.fault: Exception | None = None
        self.touched: dict[str, int] = {}
        self.refuse: Callable[[Post], bool] = lambda op: False

    async def apply(self, ops: Sequence[Op[Any]], meanwhile: Callable[[], None] | None = None) -> Applied:
        batch = [op for op in ops if isinstance(op, Post)]
        self.batches.append(batch)
        await self.work.wait()
        if meanwhile is not None:
            meanwhile()
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return Applied([Failure(MailboxFull("no")) if self.refuse(op) else op.number for op in batch], self.touched)

    def shut(self) -> None:
        self.gate = trio.Event()

    @property
    def numbers(self) -> list[list[int]]:
        return [[op.number for op in batch] for batch in self.batches]

    def now(self) -> float:
        return 0.0

    def announce(self, url: str) -> None:
        raise NotImplementedError

    async def attend(self, changes: Changes, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()

    async def read(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Any]]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def behind(nursery: trio.Nursery, driver: Driver, group: GroupCommit, *ops: Post) -> None:
    """Start a first op whose batch waits at the gate, then `ops`, in this order, behind it."""
    driver.shut()
    nursery.start_soon(group.apply, Post(-1))
    await trio.testing.wait_all_tasks_blocked()
    for op in ops:
        nursery.start_soon(group.apply, op)
        await trio.testing.wait_all_tasks_blocked()
