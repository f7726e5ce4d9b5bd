"""The keeper of a process: renews all its leases in one op, brings stops to their turns, gives up on agents that survive their cancel.

Invariant: a lease is trusted for `lease_seconds` counted from before the renewing request (RT-7). If renewal fails the turns' own
deadlines end them; the keeper needs to do nothing for that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import trio

from ...storage.changes import Aspect
from ...storage.model.errors import CallboardError
from ...storage.ops import Renew
from ...storage.store import Store
from ..ports import Tuning
from .delivery import Delivery

log: Final = logging.getLogger("callboard.keeper")
LOOK_SECONDS: Final = 1.0


class Keeper:
    """Looks after the deliveries in `live` (by mailbox row)."""

    def __init__(self, store: Store, live: Mapping[int, Delivery], tuning: Tuning) -> None:
        self._store = store
        self._live = live
        self._tuning = tuning
        self._control = trio.Event()
        self._hinted = set[str | None]()

    async def run(self) -> None:
        """Look once a second and at every control hint; renew when it is time."""
        renew_at = trio.current_time() + self._tuning.renew_seconds
        with self._store.changes.watch_each(Aspect.CONTROL, self._hint):
            while True:
                with trio.move_on_after(min(LOOK_SECONDS, self._tuning.renew_seconds)):
                    await self._control.wait()
                self._control = trio.Event()
                await self._look_at_hinted()
                if trio.current_time() >= renew_at:
                    renewed = await self._renew(list(self._live.values()))
                    renew_at = trio.current_time() + (self._tuning.renew_seconds if renewed else LOOK_SECONDS)
                await self._give_up_stuck()

    async def _renew(self, held: list[Delivery]) -> bool:
        """Renew the leases of `held` and tell each what it must know: that its lease is gone, or that it should stop."""
        held = [delivery for delivery in held if delivery.trusted and not delivery.ended]
        if not held:
            return True
        before = trio.current_time()
        try:
            with trio.move_on_after(self._tuning.lease_seconds):
                renewed = await self._store.apply(
                    Renew(tuple(delivery.claimed.lease for delivery in held), self._tuning.lease_seconds)
                )
                for delivery in held:
                    row = delivery.claimed.lease.mailbox
                    if row in renewed.lost:
                        delivery.lose()
                        continue
                    delivery.trust(before + self._tuning.lease_seconds)
                    if row in renewed.stops:
                        delivery.stop(renewed.stops[row])
                return True
        except CallboardError as error:
            log.warning("leases were not renewed (%s); their turns end by themselves if this lasts", error.code)
        return False

    async def _look_at_hinted(self) -> None:
        """A stop, or the end of the session: a renewal tells both, whichever it was."""
        hinted, self._hinted = self._hinted, set[str | None]()
        everybody = None in hinted
        held = [live for live in self._live.values() if everybody or live.address in hinted]
        if not await self._renew(held):
            self._hinted |= hinted

    async def _give_up_stuck(self) -> None:
        for delivery in list(self._live.values()):
            if not delivery.ended and delivery.overdue > self._tuning.stuck_after_seconds:
                # Its end may be sent again and again while the disk is full; the other leases must not wait for it.
                with trio.move_on_after(LOOK_SECONDS):
                    await delivery.give_up()

    def _hint(self, recipient: str | None) -> None:
        self._hinted.add(recipient)
        self._control.set()
