"""Waiting for a person's word before a call runs (EVT-6). Lives here: asking and waiting inside a turn. Not here: answering (edges).

The question is a row, so waiting survives a restart: the next attempt finds the same question under the call's action id, answered or not.
"""

from __future__ import annotations

import hashlib
from typing import Any

import trio

from ...storage.changes import Aspect
from ...storage.model.addresses import Scope
from ...storage.model.approvals import APPROVAL_SECONDS, Approval, ApprovalState
from ...storage.model.errors import Denied
from ...storage.model.turns import Lease
from ...storage.ops import ExpireApproval, RequestApproval
from ...storage.store import Store

LOOK_SECONDS = 5.0
"""The longest that a lost hint delays an answer."""


async def approved(
    store: Store,
    scope: Scope,
    lease: Lease,
    action: str,
    tool: str,
    arguments: dict[str, Any],
    seconds: float = APPROVAL_SECONDS,
) -> None:
    """Return once somebody has allowed the call `action`. Raises `Denied` if it was denied or nobody answered in time."""
    answered = trio.Event()

    def hint(aspect: int) -> None:
        if aspect & Aspect.CONTROL:
            answered.set()

    name = f"apr_{hashlib.blake2b(action.encode(), digest_size=16).hexdigest()}"
    with store.changes.watch(lease.recipient, hint):
        question = await store.apply(RequestApproval(lease, name, action, tool, arguments, seconds))
        while question.state is ApprovalState.WAITING:
            with trio.move_on_after(min(LOOK_SECONDS, max(0.0, question.expires - store.now()))):
                await answered.wait()
            answered = trio.Event()
            question = await _look(store, scope, question)
    if question.state is not ApprovalState.APPROVED:
        raise Denied(f"the call of {tool} was {question.state}", path=tool)


async def _look(store: Store, scope: Scope, question: Approval) -> Approval:
    if question.expires <= store.now():
        return await store.apply(ExpireApproval(scope, question.id))
    return await store.reads.approval(scope, question.id)
