"""What actors ask of whoever runs them: Protocols that the runtime fills in, and the figures it may tune.

Not here: any implementation. Invariant: actors start nothing by themselves; `Spawn` does, under a supervisor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
import trio

from ..storage.model import limits
from ..storage.model.approvals import APPROVAL_SECONDS
from ..storage.model.errors import InvalidField
from ..storage.model.policies import Edge
from ..storage.model.sessions import Session

T = TypeVar("T")


class Spawn(Protocol):
    """Starts a temporary child: never restarted, never counted; its failure harms nobody else (RT-3)."""

    def start(self, name: str, fn: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Start `fn(*args)` now. Raises if a child of that name lives or there are too many."""
        ...


class Staged(Protocol):
    """Something to do with an end of its own: what `begin` returns is awaited, and `end` is told how that went.

    Both are called in the task. `scope` is what stops it; it enters and leaves that itself.
    """

    @property
    def scope(self) -> trio.CancelScope: ...
    def begin(self) -> Awaitable[object]: ...
    async def end(self, result: object, error: BaseException | None, /) -> None: ...


class SpawnStaged(Protocol):
    """Starts temporary children of many thousands that wait most of the time."""

    def start_staged(self, name: str, staged: Staged, /) -> None:
        """Start it now. Raises if a child of that name lives or there are too many."""
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
class TurnFacts:
    """An attempt of a turn as people who look on may see it: ids and names, never text. `mailbox` and `epoch` name its lease."""

    project: str
    session: str
    agent: str
    turn: str
    attempt: int
    message: str
    """The head's id of ours (`msg_…`)."""
    message_id: str
    chain: str
    kind: str
    created_at: float
    mailbox: int
    epoch: int


@attrs.frozen
class TurnEnd:
    """How an attempt ended: answered, stopped, no_visible_reply, failed, retried, handed_back, lost or unknown. `seq` is the answer's entry."""

    end: str
    seconds: float
    seq: int | None = None


class TurnWatch(Protocol):
    """One attempt that is watched."""

    def running(self, run: Awaitable[T]) -> Awaitable[T]:
        """The run of the agent as it is to be awaited: itself, or something of yours around it."""
        ...

    def ended(self, end: TurnEnd) -> None: ...


class Meter(Protocol):
    """Told of turns and requests, for metrics and traces. Must not block or raise."""

    def turn(self, facts: TurnFacts) -> TurnWatch: ...
    def answered(self, route: str, method: str, status: int) -> None:
        """A request was answered; `route` is its template, empty for an address that does not exist."""
        ...


class Unwatched:
    """The meter, and the watch over a turn, where nobody looks on."""

    def turn(self, facts: TurnFacts) -> TurnWatch:
        return self

    def running(self, run: Awaitable[T]) -> Awaitable[T]:
        return run

    def ended(self, end: TurnEnd) -> None:
        return

    def answered(self, route: str, method: str, status: int) -> None:
        return


class Operations(Protocol):
    """What operators ask of a running process."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """All metrics in a format that `accept` (a field of HTTP) takes, and its content type."""
        ...

    async def doctor(self) -> dict[str, Any]:
        """{state, checks: [{name, state, detail, advice?}], processes: [{name, seen_seconds, leases, turns}], settings}"""
        ...

    async def prompt(self, session: Session) -> dict[str, Any]:
        """What the next call of a session's model would send, as `session.prompt.report` has it. Raises `Conflict` if none is asked here."""
        ...


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
    edge: Edge = Edge.COLLABORATE
    """Whether agents may write to each other in a project that has no rule about it (NS-4)."""
    timezone: str | None = None
    """An IANA name, as in Europe/Paris: the days that models are told of are those of there; None: of UTC. Raises `InvalidField`."""

    def __attrs_post_init__(self) -> None:
        if self.timezone is not None:
            check_timezone(self.timezone)


def check_timezone(name: str) -> str:
    """Return `name` if this machine knows the time zone. Raises `InvalidField`."""
    try:
        ZoneInfo(name)
    # For a name that is a folder's, or no name at all, it raises what opening a file does.
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidField("is no time zone that this machine knows, such as Europe/Paris", path="timezone") from None
    return name
