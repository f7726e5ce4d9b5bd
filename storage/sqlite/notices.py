"""What the system itself sends: non-delivery notices and children's results. Both are exempt from depth and hop limits (RT-14, RT-15)."""

from __future__ import annotations

from contextlib import suppress

from ..model.addresses import SYSTEM, Scope, Sender, session_address
from ..model.errors import UnknownTarget
from ..model.limits import CONTENT_CHARS
from ..model.messages import Kind
from ..model.sessions import ChildState
from ..model.states import Reason
from ..ops.inbox import enqueue as build
from .accepting import enqueue
from .tx import Tx


def tell_sender(tx: Tx, scope: Scope, uid: str, kind: str, sender: Sender, reason: Reason) -> None:
    """Give a session whose message failed a non-delivery notice (SES-10); a notice never causes a notice (RT-14)."""
    if sender.kind != "session" or kind in {Kind.NOTICE, Kind.SUBAGENT_RESULT}:
        return
    found = tx.one("session_title", (sender.id,))
    if found is None or found[4] is not None:
        return
    notice = build(
        scope, found[3], SYSTEM, f"Your message {uid} was not delivered: {reason}.", kind=Kind.NOTICE,
        message_id=f"non-delivery-{uid}", payload={"message": uid, "reason": reason}, depth_limit=None,
    )  # fmt: skip
    # A sender that takes no mail (an internal session) is not told, and that must not keep its message from failing.
    with suppress(UnknownTarget):
        enqueue(tx, notice)


def end_child(tx: Tx, child: str, parent: str | None, state: ChildState, answer: str | None) -> None:
    """Give a running child its final state and wake its parent, once (SES-8)."""
    if tx.run("child_end", (state, child)).rowcount == 1:
        wake_parent(tx, child, parent, state, answer)


def wake_parent(tx: Tx, child: str, parent: str | None, state: ChildState, answer: str | None) -> None:
    """Enqueue a child's result for its parent, if that still exists, under the key that makes it once.

    The result keeps chain and hop of the child's start (RT-15).
    """
    found = None if parent is None else tx.one("session_title", (parent,))
    own = tx.one("session_title", (child,))
    if parent is None or found is None or found[4] is not None or own is None:
        return
    chain, hops = tx.one("child_task", (child,)) or (None, 0)
    message = build(
        Scope(found[5], found[6]), session_address(parent), Sender(child, "session", own[0] or own[1]),
        _result(answer, state), kind=Kind.SUBAGENT_RESULT,
        message_id=f"subagent-result-{child}", payload={"child": child, "state": state}, chain=chain, hops=hops,
        depth_limit=None,
    )  # fmt: skip
    with suppress(UnknownTarget):
        enqueue(tx, message)


def _result(answer: str | None, state: ChildState) -> str:
    """A child's answer as far as a message can hold it: a commit must not fail because of what the agent said."""
    text = (answer or "").replace("\0", "\ufffd")
    if not text or text.isspace():
        return f"The subagent ended without an answer: {state}."
    return text if len(text) <= CONTENT_CHARS else text[: CONTENT_CHARS - 1] + "…"
