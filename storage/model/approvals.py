"""Approvals. Lives here: the states of a question to a person whether a call may run. Not here: who asks and who answers.

waiting → approved | denied | expired; those three are final. Nobody answers for 15 minutes: expired, which counts as denied (EVT-6).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

APPROVAL_SECONDS: Final = 15 * 60.0


class ApprovalState(StrEnum):
    """Where a question stands."""

    WAITING = "waiting"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


@attrs.frozen
class Approval:
    """A question about one call of one turn. `expires` is store time in seconds."""

    id: str
    session: str
    state: ApprovalState
    expires: float
