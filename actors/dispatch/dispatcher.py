"""The dispatcher of a process: claims what is due and starts a delivery for each, within the limit of live turns.

Where the database can do that, a claim rides on the batch that makes something due: a message is taken in the transaction that accepts
it, and the next one of a session in the transaction that ends a turn. Otherwise it wakes by hints, by the next due time, when a
delivery ends that it had to leave alone, and at least once a second, as hints may be lost.

Invariant: it never starts a turn for a mailbox whose task still lives in this process (RT-18).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from typing import Final

import trio

from ...storage.changes import Aspect
from ...storage.model.errors import CallboardError
from ...storage.ops import Claim, HandBack
from ...storage.ops.leases import Claims
from ..desk import Desk
from ..ports import SpawnStaged
from ..session.agents.base import Runs
from ..session.tokens import Pulse
from .delivery import Delivery, Floor

log: Final = logging.getLogger("callboard.dispatcher")
CLAIM_MOST: Final = 256


class Dispatcher:
    """The actor `dispatcher:<process>`. `live` are its deliveries by mailbox row."""

    def __init__(
        self, desk: Desk, agents: Mapping[str, Runs], sessions: SpawnStaged, pulse: Pulse, process: str
    ) -> None:
        self.address = f"dispatcher:{process}"
        self.scope = trio.CancelScope()
        self.process = process
        self.live: dict[int, Delivery] = {}
        self._floor = Floor(desk, agents, pulse, process, self._gone)
        self._store = desk.store
        self._tuning = desk.tuning
        self._sessions = sessions
        self._names = frozenset(agents)
        self._nonces = count(1)
        self._nonce: str | None = None
        self._most = 0
        self._before = self._asked = 0.0
        self._left_alone = frozenset[int]()
        self._wanted = True
        self._waiting: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._draining = False

    @property
    def stuck(self) -> list[str]:
        """Sessions whose agent survived its cancel and still runs in this process (RT-6)."""
        return [delivery.address for delivery in self.live.values() if delivery.stuck]

    @property
    def taking(self) -> bool:
        """Whether it still claims: not once it was asked to shut down."""
        return not self._draining

    async def run(self) -> None:
        """Claim and start until cancelled."""
        self.scope = trio.CancelScope()
        with self.scope, self._store.changes.watch(None, self._hint):
            while not self._draining:
                self._wanted = False
                pause = await self._round()
                while pause > 0 and not self._wanted and not self._draining:
                    pause = await self._wait(pause)
            # To return would be an exit, and the supervisor would start it again.
            await trio.sleep_forever()

    async def shut_down(self, grace: float) -> None:
        """Claim nothing more, ask every turn to end, and wait until all have, or have been cancelled after `grace` seconds."""
        self._draining = True
        self._want()
        for delivery in self.live.values():
            delivery.shut_down(grace)
        while any(not delivery.ended for delivery in self.live.values()):
            self._ended = trio.Event()
            with trio.move_on_after(self._tuning.poll_seconds):
                await self._ended.wait()

    async def _round(self) -> float:
        """Claim once; return how long there is nothing to do, in seconds."""
        claim = self._claim(quiet=False)
        if claim is None:
            await self._say_alive()
            return self._tuning.poll_seconds
        try:
            return await self._started(await self._store.settle(claim))
        except CallboardError as error:
            log.warning("no claim could be made (%s); trying again", error.code)
            return self._tuning.poll_seconds

    async def _wait(self, pause: float) -> float:
        """Wait for something to do, at most `pause` seconds, or until a batch has brought and claimed it; 0 if a claim must be made."""
        claims: Claims | None = None
        with trio.move_on_after(pause) as self._waiting:
            try:
                claims = await self._store.ride(lambda: self._claim(quiet=True))
            except CallboardError as error:
                log.warning("no claim could be made (%s); trying again", error.code)
                await trio.sleep(self._tuning.poll_seconds)
        self._waiting = None
        if claims is None:
            return 0.0
        # What the batch hints at, this claim has seen: it went last in it.
        self._wanted = False
        return await self._started(claims)

    def _claim(self, *, quiet: bool) -> Claim | None:
        """The claim to be made now; None while as many turns live as may."""
        free = self._tuning.live_turns - len(self.live)
        if free <= 0:
            self._left_alone = frozenset(self.live)
            return None
        self._most = min(free, CLAIM_MOST)
        self._before, self._asked = trio.current_time(), self._store.now()
        # What is being cancelled: if its end and this claim are one batch, its next message would be taken for nothing.
        self._left_alone = frozenset(
            row
            for row, live in self.live.items()
            if live.stuck or (not live.ended and live.scope.deadline <= self._before)
        )
        # A claim whose outcome is unknown is asked again under its nonce: what it took must not lie until the leases end.
        self._nonce = self._nonce or f"{self.process}.{next(self._nonces)}"
        return Claim(
            holder=self.process,
            nonce=self._nonce,
            limit=self._most,
            lease_seconds=self._tuning.lease_seconds,
            agents=self._names,
            exclude=tuple(self._left_alone),
            quiet=quiet,
        )

    async def _started(self, claims: Claims) -> float:
        """Start a delivery for each; return how long there is nothing to do."""
        self._nonce = None
        before, asked, most = self._before, self._asked, self._most
        # The times of what was taken together are kept once.
        now, trusted = trio.current_time(), dict[float, float]()
        for claimed in claims.claimed:
            # Less than a whole lease if this was asked again.
            until = before + min(self._tuning.lease_seconds, claimed.lease_until - asked)
            await self._start(Delivery(claimed, self._floor, trusted.setdefault(until, until), now))
        if len(claims.claimed) == most:
            return 0.0
        due = self._tuning.poll_seconds if claims.next_due is None else claims.next_due - self._store.now()
        return min(max(due, 0.0), self._tuning.poll_seconds)

    async def _say_alive(self) -> None:
        """Claim nothing: who looks at the store must not take a process that has its hands full for a dead one."""
        if self._nonce is not None:
            return  # a claim of unknown outcome is asked again under its nonce, which this would replace
        nothing = Claim(
            self.process, f"{self.process}.{next(self._nonces)}", 0, self._tuning.lease_seconds, self._names
        )
        try:
            await self._store.settle(nothing)
        except CallboardError as error:
            log.warning("no claim could be made (%s); trying again", error.code)

    async def _start(self, delivery: Delivery) -> None:
        row = delivery.claimed.lease.mailbox
        if row in self.live and self.live[row].ended:
            # Its commit and this claim were one batch: it is gone as soon as its task has run.
            await trio.lowlevel.cancel_shielded_checkpoint()
        # A claim that was long under way (this process stood still, or the database did) has left less than it takes to renew: given back
        # at once, its turns are not missed for a whole lease.
        least = min(self._tuning.renew_seconds, self._tuning.lease_seconds / 2)
        late = delivery.trusted_until - trio.current_time() < least
        if row not in self.live and not self._draining and not late:
            self.live[row] = delivery
            try:
                self._sessions.start_staged(delivery.address, delivery)
            except Exception as error:
                self.live.pop(row)
                log.warning("%s could not be started: %s", delivery.address, error)
            else:
                return
        await delivery.settle(
            HandBack(delivery.claimed.lease, "not started", delay=0.0 if self._draining or late else 1.0)
        )

    def _gone(self, delivery: Delivery) -> None:
        row = delivery.claimed.lease.mailbox
        self.live.pop(row, None)
        if row in self._left_alone:
            self._want()
        self._ended.set()

    def _hint(self, aspect: int) -> None:
        if aspect & Aspect.DUE:
            self._want()

    def _want(self) -> None:
        """A claim must be made, whatever is being waited for."""
        self._wanted = True
        if self._waiting is not None:
            self._waiting.cancel()
