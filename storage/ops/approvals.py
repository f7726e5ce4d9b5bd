"""Ops on approvals: a turn asks, a person answers, time runs out."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from ..model.addresses import Scope
from ..model.approvals import APPROVAL_SECONDS, Approval
from ..model.turns import Lease
from .base import Lane, Op, json_size


@attrs.frozen
class RequestApproval(Op[Approval]):
    """Ask whether a call may run: the question, `approval.required` and `turn.waiting` in one transaction. `key` is the action id."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "the question of this turn and key is returned as it stands, answered or not"

    lease: Lease
    id: str
    key: str
    tool: str
    arguments: dict[str, Any]
    seconds: float = APPROVAL_SECONDS

    @property
    def size(self) -> int:
        return 512 + json_size(self.arguments)


@attrs.frozen
class AnswerApproval(Op[Approval]):
    """Allow or deny a call; `by` is who answered. Raises `NotFound`; `Conflict` if it was answered otherwise, or too late."""

    repeat: ClassVar[str] = "the same answer again returns the first result"

    scope: Scope
    id: str
    approve: bool
    by: str


@attrs.frozen
class ExpireApproval(Op[Approval]):
    """Close a question that nobody has answered in time; one that was answered meanwhile is returned as it is. Raises `NotFound`."""

    lane: ClassVar[Lane] = Lane.HOLDERS
    repeat: ClassVar[str] = "only a waiting question whose time has passed changes"

    scope: Scope
    id: str
