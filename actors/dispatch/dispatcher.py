"""The dispatcher of a process: claims what is due and starts a delivery for each, within the limit of live turns.

Wakes by hints, by the next due time, when a delivery ends, and at least once a second, as hints may be lost.

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
from ..desk import Desk
from ..ports import Spawn
from ..session.agents.base import Runs
from ..session.tokens import Pulse
from .delivery import Delivery, Floor

log: Final = logging.getLogger("callboard.dispatcher")
CLAIM_MOST: Final = 256


class Dispatcher:
    """The actor `dispatcher:<process>`. `live` are its deliveries by mailbox row."""

    def __init__(self, desk: Desk, agents: Mapping[str, Runs], sessions: Spawn, pulse: Pulse, process: str) -> None:
        self.address = f"dispatcher:{process}"
        self.scope = trio.CancelScope()
        self.process = process
        self.live: dict[int, Delivery] = {}
        self._floor = Floor(desk, agents, pulse, process)
        self._store = desk.store
        self._tuning = desk.tuning
        self._sessions = sessions
        self._names = frozenset(agents)
        self._nonces = count(1)
        self._nonce: str | None = None
        self._wake = trio.Event()
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
                self._wake = trio.Event()
                pause = await self._round()
                with trio.move_on_after(pause):
                    await self._wake.wait()
            # To return would be an exit, and the supervisor would start it again.
            await trio.sleep_forever()

    async def shut_down(self, grace: float) -> None:
        """Claim nothing more, ask every turn to end, and wait until all have, or have been cancelled after `grace` seconds."""
        self._draining = True
        self._wake.set()
        for delivery in self.live.values():
            delivery.shut_down(grace)
        while any(not delivery.ended for delivery in self.live.values()):
            self._ended = trio.Event()
            with trio.move_on_after(self._tuning.poll_seconds):
                await self._ended.wait()

    async def _round(self) -> float:
        """Claim once; return how long there is nothing to do, in seconds."""
        free = self._tuning.live_turns - len(self.live)
        if free <= 0:
            return self._tuning.poll_seconds
        most = min(free, CLAIM_MOST)
        before, asked = trio.current_time(), self._store.now()
        # A claim whose outcome is unknown is asked again under its nonce: what it took must not lie until the leases end.
        self._nonce = self._nonce or f"{self.process}.{next(self._nonces)}"
        claim = Claim(
            holder=self.process,
            nonce=self._nonce,
            limit=most,
            lease_seconds=self._tuning.lease_seconds,
            agents=self._names,
            # Also what is being cancelled: if its end and this claim are one batch, its next message would be taken for nothing.
            exclude=tuple(row for row, live in self.live.items() if live.ended or live.scope.deadline <= before),
        )
        try:
            claims = await self._store.settle(claim)
        except CallboardError as error:
            log.warning("no claim could be made (%s); trying again", error.code)
            return self._tuning.poll_seconds
        self._nonce = None
        for claimed in claims.claimed:
            # Less than a whole lease if this was asked again.
            trusted = before + min(self._tuning.lease_seconds, claimed.lease_until - asked)
            await self._start(Delivery(claimed, self._floor, trusted))
        if len(claims.claimed) == most:
            return 0.0
        due = self._tuning.poll_seconds if claims.next_due is None else claims.next_due - self._store.now()
        return min(max(due, 0.0), self._tuning.poll_seconds)

    async def _start(self, delivery: Delivery) -> None:
        row = delivery.claimed.lease.mailbox
        if row in self.live and self.live[row].ended:
            # Its commit and this claim were one batch: it is gone as soon as its task has run.
            await trio.lowlevel.cancel_shielded_checkpoint()
        if row not in self.live and not self._draining:
            self.live[row] = delivery
            try:
                self._sessions.start(delivery.address, self._run, delivery, scope=delivery.scope)
            except Exception as error:
                self.live.pop(row)
                log.warning("%s could not be started: %s", delivery.address, error)
            else:
                return
        await delivery.end(HandBack(delivery.claimed.lease, "not started", delay=0.0 if self._draining else 1.0))

    async def _run(self, delivery: Delivery) -> None:
        try:
            await delivery.run()
        finally:
            self.live.pop(delivery.claimed.lease.mailbox, None)
            self._wake.set()
            self._ended.set()

    def _hint(self, aspect: int) -> None:
        if aspect & Aspect.DUE:
            self._wake.set()
