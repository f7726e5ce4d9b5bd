"""Ops on leases: claim mailboxes, renew a process's leases, void those of a dead owner."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..model.turns import Claimed, Lease, StopRequest
from .base import Lane, Op


@attrs.frozen
class Claims:
    """What a claim took, and when the next mailbox is due (store time; None: none is)."""

    claimed: tuple[Claimed, ...]
    next_due: float | None


@attrs.frozen
class Claim(Op[Claims]):
    """Take up to `limit` due mailboxes and their head messages, oldest due first.

    `holder` is the process; `nonce` is unique per claim and holder, and a holder has one claim under way at a time. `exclude` are
    mailbox rows whose task still lives in this process (RT-18). A mailbox whose agent is not in `agents` is put off
    `UNKNOWN_AGENT_DELAY_SECONDS` in the same transaction and is not returned (RT-12). With `quiet` a claim that takes nothing writes
    nothing: it may go with every batch, and others show that this process lives.
    """

    lane: ClassVar[Lane] = Lane.CLAIMS
    repeat: ClassVar[str] = (
        "the holder's last nonce is stored: the same nonce returns what it still holds of that claim"
    )

    holder: str
    nonce: str
    limit: int
    lease_seconds: float
    agents: frozenset[str]
    exclude: tuple[int, ...] = ()
    holder_kind: str = "process"
    quiet: bool = False


@attrs.frozen
class Renewed:
    """`lost`: mailbox rows that are held at another epoch. `stops`: stop requests of those still held. `until`: store time."""

    lost: frozenset[int]
    stops: dict[int, StopRequest]
    until: float


@attrs.frozen
class Renew(Op[Renewed]):
    """Renew all leases of one process in one op (RT-7)."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "sets a lease end, fenced by epoch; a later end wins"

    leases: tuple[Lease, ...]
    lease_seconds: float

    @property
    def size(self) -> int:
        return 256 + 64 * len(self.leases)


@attrs.frozen
class VoidLeases(Op[int]):
    """End the leases of one holder kind and clear its stuck marks; returns how many. Only for the owner of an SQLite file, at start (RT-9)."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "void leases stay void"

    holder_kind: str = "process"
