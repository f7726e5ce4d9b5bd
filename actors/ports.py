"""What actors ask of whoever runs them: Protocols that the runtime fills in, and the figures it may tune.

Not here: any implementation. Invariant: actors start nothing by themselves; `Spawn` does, under a supervisor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from ..storage.model import limits
from ..storage.model.approvals import APPROVAL_SECONDS


class Spawn(Protocol):
    """Starts a temporary child: never restarted, never counted; its failure harms nobody else (RT-3)."""

    def start(self, name: str, fn: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Start `fn(*args)` now. Raises if a child of that name lives or there are too many."""
        ...


class TreeNode(Protocol):
    """One node of the supervision tree, for people to look at. `since` is in seconds since the epoch."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def restarts(self) -> int: ...
    @property
    def since(self) -> float: ...
    @property
    def children(self) -> tuple[TreeNode, ...]: ...


class TreeView(Protocol):
    """Where the supervision tree can be looked at."""

    def snapshot(self) -> TreeNode: ...


@attrs.frozen
class Tuning:
    """Figures of one process. Seconds, counts; defaults are the product's."""

    lease_seconds: float = limits.LEASE_SECONDS
    renew_seconds: float = limits.RENEW_SECONDS
    stop_grace_seconds: float = limits.STOP_GRACE_SECONDS
    stuck_after_seconds: float = limits.STUCK_AFTER_SECONDS
    live_turns: int = 4_000
    mailbox_depth: int = limits.MAILBOX_DEPTH
    pair_per_minute: int = limits.PAIR_PER_MINUTE
    max_hops: int = limits.MAX_HOPS
    event_keep_seconds: float = limits.EVENT_KEEP_SECONDS
    approval_seconds: float = APPROVAL_SECONDS
    message_keep_seconds: float | None = None
    """After this the body of a final message goes (INB-12); None: never."""
    poll_seconds: float = 1.0
    """The longest that a lost hint delays a message."""
