"""What the system itself sends: non-delivery notices and children's results. Both are exempt from depth and hop limits (RT-14, RT-15)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from ..model.addresses import SYSTEM, Scope, Sender, session_address
from ..model.errors import UnknownTarget
from ..model.limits import CONTENT_CHARS
from ..model.messages import Kind
from ..model.sessions import ChildState
from ..model.states import Reason
from ..ops.inbox import Enqueue
from ..ops.inbox import enqueue as build
from .accepting import enqueue
from .tx import Tx

SINGLY_MOST: Final = 10
"""How many messages that failed together have a notice each for the same sender."""
TOGETHER: Final = 200
"""How many one notice names, if they are more; it fits into a message's text."""


def tell_sender(tx: Tx, scope: Scope, uid: str, kind: str, sender: Sender, reason: Reason) -> None:
    """Give a session whose message failed a non-delivery notice (SES-10); a notice never causes a notice (RT-14)."""
    tell_senders(tx, scope, [(uid, kind, sender.kind, sender.id)], reason)


def tell_senders(tx: Tx, scope: Scope, failed: Iterable[tuple[str, str, str, str]], reason: Reason) -> None:
    """The same for many messages that failed together: (uid, kind, sender's kind, sender's id) of each, in order.

    A sender that lost many is told in few notices, each of which names many messages: thousands of them would fill its mailbox, and
    everybody else would wait for this transaction.
    """
    by_sender: dict[str, list[str]] = {}
    for uid, kind, sender_kind, sender in failed:
        if sender_kind == "session" and kind not in {Kind.NOTICE, Kind.SUBAGENT_RESULT}:
            by_sender.setdefault(sender, []).append(uid)
    for sender, uids in by_sender.items():
        found = tx.one("session_title", (sender,))
        if found is None or found[4] is not None:
            continue
        together = 1 if len(uids) <= SINGLY_MOST else TOGETHER
        # A sender that takes no mail (an internal session) is not told, and that must not keep its message from failing.
        with suppress(UnknownTarget):
            for first in range(0, len(uids), together):
                enqueue(tx, _undelivered(scope, found[3], uids[first : first + together], reason))


def _undelivered(scope: Scope, recipient: str, uids: list[str], reason: Reason) -> Enqueue:
    if len(uids) == 1:
        text = f"Your message {uids[0]} was not delivered: {reason}."
        payload: dict[str, Any] = {"message": uids[0], "reason": reason}
    else:
        text = f"{len(uids)} of your messages were not delivered: {reason}. They are {', '.join(uids)}."
        payload = {"messages": uids, "reason": reason}
    return build(
        scope, recipient, SYSTEM, text, kind=Kind.NOTICE, message_id=f"non-delivery-{uids[0]}", payload=payload,
        depth_limit=None,
    )  # fmt: skip


def end_child(tx: Tx, child: str, parent: str | None, state: ChildState, answer: str | None) -> None:
    """Give a running child its final state and wake its parent, once (SES-8)."""
    if tx.run("child_end", (state, child)) == 1:
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
