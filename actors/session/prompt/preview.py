"""A turn for looking only: what a model would be told next, found by running its agent on what is on record, and no further.

Lives here: the turn that writes nothing, made from rows. Not here: what agents do with it.

Invariant: nothing is sent, stored, streamed or asked for; the first thing that is not on record ends it (`Ahead`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import trio

from ....storage.model.addresses import SYSTEM, Scope, session_address
from ....storage.model.ids import turn_id
from ....storage.model.messages import Kind, MessageView
from ....storage.model.sessions import Session
from ....storage.model.states import OPEN, Status
from ....storage.model.turns import Claimed, Lease, Step, ToolClass, TurnMessage
from ..steps import StepLog
from ..tokens import Pulse
from ..turn import Turn

if TYPE_CHECKING:
    from ....storage.ops import Op
    from ....storage.store import Store
    from ...desk import Desk

PAGES_MOST: Final = 60
"""Pages of messages that are looked through for the oldest: a mailbox is full before that."""


class Ahead(Exception):
    """What would be done now is not on record."""


class PreviewTurn(Turn):
    """A turn that has done what is on record. `nobody`: it has no message, as none waits. `waits`: kinds of its messages that do still.

    `late`: the blocks that kept it waiting (`rendering`).
    """

    __slots__ = ("late", "waits")

    def __init__(
        self, claimed: Claimed, desk: Desk, committed: Iterable[Step], *, nobody: bool, waits: Iterable[str] = ()
    ) -> None:
        super().__init__(claimed, desk, Pulse(), committed)
        self.late = set[str]()
        self.waits = Counter(waits)
        if nobody:
            self._messages = []

    async def emit(self, text: str) -> None:
        await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    def _step_log(self, committed: Iterable[Step]) -> StepLog:
        claimed = self._claimed
        return _Recorded(cast("Store", _Unwritten()), claimed.scope, claimed.lease, self.id, committed)


class _Unwritten:
    """In place of the store that a step log writes to."""

    async def apply(self, op: Op[Any]) -> NoReturn:
        raise Ahead


class _Recorded(StepLog):
    """The steps that are on record."""

    __slots__ = ()

    async def call(
        self,
        tool: str,
        kind: ToolClass,
        arguments: Mapping[str, Any],
        run: Callable[[str], Awaitable[Any]],
        *,
        approval_seconds: float | None = None,
    ) -> Any:
        async def not_run(_: str) -> NoReturn:
            raise Ahead

        return await super().call(tool, kind, arguments, not_run)


async def preview_turn(desk: Desk, session: Session) -> tuple[PreviewTurn, str]:
    """The turn that a session runs (`running`), the one that it would run next (`next`), or one without a message (`none`)."""
    found = await _open(desk, session)
    running = any(view.status is Status.PROCESSING for view in found)
    head = _head(found, running=running)
    if head is None:
        nothing = TurnMessage(0, "msg_next", "msg_next", Kind.MEMBER_MESSAGE, SYSTEM, "", 0, "", 0, 0.0)
        return PreviewTurn(_claimed(session, nothing, ()), desk, (), nobody=True), "none"
    own = turn_id(head.id)
    carried = [
        _message(view, steered=view.turn_id == own)
        for view in found
        if view is not head
        and (view.turn_id == own or (view.kind == Kind.NOTICE and view.seq < head.seq and (not running or _held(view))))
    ]
    steps = await desk.store.reads.steps(session.scope, head.id)
    waits = () if running else (head.kind, *(message.kind for message in carried))
    turn = PreviewTurn(_claimed(session, _message(head), carried), desk, steps, nobody=False, waits=waits)
    return turn, "running" if running else "next"


def not_yet_taken(turn: Turn) -> Counter[str]:
    """How many of a turn's own messages wait, by kind: of one that is only looked at; who runs has taken them."""
    return turn.waits if isinstance(turn, PreviewTurn) else Counter()


async def _open(desk: Desk, session: Session) -> list[MessageView]:
    """All messages of a session that are not final, in the order of their acceptance."""
    found: list[MessageView] = []
    for status in OPEN:
        cursor: str | None = None
        for _ in range(PAGES_MOST):
            page = await desk.store.reads.inbox(
                session.scope, target=session.id, status=status, limit=200, cursor=cursor
            )
            found += page.items
            cursor = page.next
            if cursor is None:
                break
    return sorted(found, key=lambda view: view.seq)


def _head(found: list[MessageView], *, running: bool) -> MessageView | None:
    """The oldest that wakes and is not part of another one's turn; of a turn that runs, the one that it answers."""
    for view in found:
        if view.kind != Kind.NOTICE and view.turn_id == turn_id(view.id) and (_held(view) or not running):
            return view
    return None


def _held(view: MessageView) -> bool:
    return view.status is Status.PROCESSING


def _message(view: MessageView, *, steered: bool = False) -> TurnMessage:
    # Nobody asks for its row, only which of two came first.
    return TurnMessage(
        view.seq, view.id, view.message_id, view.kind, view.sender, view.content, view.seq, view.chain, view.hops,
        view.created_at, reply_to=view.reply_to, steered=steered,
    )  # fmt: skip


def _claimed(session: Session, head: TurnMessage, carried: Iterable[TurnMessage]) -> Claimed:
    return Claimed(
        lease=Lease(0, session_address(session.id), 0, head.row, 1),
        lease_until=0.0, scope=Scope(session.scope.tenant, session.scope.project), kind=session.kind, agent=session.agent,
        path=session.path, parent=session.parent, head=head, carried=tuple(carried), attempts=0, max_attempts=1, takeovers=0,
        stop=None, deadline=None,
    )  # fmt: skip
