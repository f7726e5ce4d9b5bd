"""Writing a turn's one end, whatever the store goes through. Not here: which end it is (`verdict`, `delivery`).

A refusal for a trouble of the store's own (full disk, full queue) surely wrote nothing: the same end is sent again while the lease lasts.
An end that the store will never take is replaced by a lesser one, so that it costs an attempt and not a lease.
An unknown outcome is read back first (EVT-6): the fenced step that tells of it is written only if the end was not, so when it succeeds
the end may be sent again, and when the lease turns out to be over the end had been written, or another holder decides by the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from ...storage.model.errors import (
    Busy,
    CallboardError,
    LeaseLost,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from ...storage.model.events import EventKind
from ...storage.model.limits import ERROR_CHARS
from ...storage.model.states import Reason
from ...storage.model.turns import Claimed, StepKind
from ...storage.ops import ClearStuck, CommitTurn, Fail, HandBack, RecordStep, Retry
from ...storage.ops.deliveries import Ended, StepEvent
from ...storage.store import Store
from .verdict import backoff

log: Final = logging.getLogger("callboard.delivery")
Ending = CommitTurn | Retry | Fail | HandBack
AGAIN_SECONDS: Final = 1.0
_TROUBLE: Final = (Busy, StoreFull, StoreReadOnly)


async def settle_end(store: Store, claimed: Claimed, ending: Ending, trusted: Callable[[], bool]) -> Ended | None:
    """Send `ending` until it is written, refused for good, or the lease is no longer `trusted`; None unless it is known to be written."""
    again = await _send(store, claimed.session, ending)
    while isinstance(again, CallboardError) and trusted():
        if isinstance(again, OutcomeUnknown):
            again = await _read_back(store, claimed)
        elif not isinstance(again, _TROUBLE):
            lesser = _lesser(ending, claimed, again)
            if lesser is None:
                break
            ending = lesser
            again = await _send(store, claimed.session, ending)
        else:
            # A full disk gives no event when it has room again.
            await trio.sleep(AGAIN_SECONDS)
            again = await _send(store, claimed.session, ending)
    return again if isinstance(again, Ended) else None


async def clear_stuck(store: Store, mailbox: int, holder: str) -> None:
    """Tell that a stuck task has ended; if the store won't hear it, the next owner of the file clears the mark."""
    await _send(store, holder, ClearStuck(mailbox, holder))


async def _send(store: Store, name: str, op: Ending | ClearStuck | RecordStep) -> Ended | CallboardError | None:
    """Settle `op`: how the turn ended; the error if it was not written, as far as is known; None if nothing is left to do."""
    try:
        result = await store.settle(op)
    except LeaseLost:
        log.warning("late: %s was taken over; nothing was written", name)
    except (*_TROUBLE, OutcomeUnknown) as error:
        log.error("the end of %s is not known to be written (%s)", name, error.code)
        return error
    except CallboardError as error:
        log.error("the end of %s was refused (%s)", name, error.code)
        return error
    else:
        return result if isinstance(result, Ended) else None
    return None


def _lesser(ending: Ending, claimed: Claimed, refusal: CallboardError) -> Ending | None:
    """What may be written in place of an end that the store will never take; None if nothing: then its lease runs out.

    Left to that, the same end would be tried once a lease, until its takeovers are used up.
    """
    said = f"its end was refused: {refusal}"[:ERROR_CHARS]
    if isinstance(refusal, (StoreError, Unavailable)) or isinstance(ending, Fail):
        return None
    if isinstance(ending, Retry):
        return Fail(claimed.lease, Reason.RETRIES_USED, said)
    return Retry(claimed.lease, said, backoff(claimed.attempts + 1))


async def _read_back(store: Store, claimed: Claimed) -> Ended | CallboardError | None:
    lease = claimed.lease
    try:
        message = await store.reads.message(claimed.scope, claimed.head.id)
    except CallboardError:
        await trio.sleep(AGAIN_SECONDS)
        return OutcomeUnknown("the store can't be read")
    if message.lease_epoch != lease.epoch:
        return None
    told = RecordStep(
        lease,
        f"reconcile:{lease.epoch}",
        StepKind.RECONCILE,
        0,
        done=True,
        data={},
        events=(StepEvent(EventKind.TURN_RECONCILING, {}),),
    )
    # Written, it proves that the end was not; fenced out, sending the end again answers as the first time or writes nothing.
    return await _send(store, claimed.session, told) or Busy("the end may be sent again")
