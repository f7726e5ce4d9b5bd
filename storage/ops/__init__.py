"""Every write as a value, with its repeat rule beside its class. Data only: how an op is carried out is its driver's business.

`Op` names the lane (`holders` before `claims` before `enqueues`) and the rule that makes it safe to apply twice. An op is checked
when it is built; what it answers is its `Result` type. An expected refusal is raised to its caller alone (INB-13).
"""

from __future__ import annotations

from .access import AddMember, IssueTicket, IssueToken, NoteUse, RedeemTicket, RevokeCredential, SuspendMember
from .approvals import AnswerApproval, ExpireApproval, RequestApproval
from .base import Lane, Op
from .deliveries import Absorb, CommitTurn, EmitTokens, Fail, HandBack, RecordStep, Retry
from .inbox import Cancel, Enqueue, Requeue
from .leases import Claim, Renew, VoidLeases
from .namespace import Navigate, SetPolicy
from .sessions import DeleteSession, OpenSession, UpdateSession
from .upkeep import ClearStuck, PruneEvents, PruneMessages, PruneProcesses, RequestStop

__all__ = [
    "Absorb",
    "AddMember",
    "AnswerApproval",
    "Cancel",
    "Claim",
    "ClearStuck",
    "CommitTurn",
    "DeleteSession",
    "EmitTokens",
    "Enqueue",
    "ExpireApproval",
    "Fail",
    "HandBack",
    "IssueTicket",
    "IssueToken",
    "Lane",
    "Navigate",
    "NoteUse",
    "Op",
    "OpenSession",
    "PruneEvents",
    "PruneMessages",
    "PruneProcesses",
    "RecordStep",
    "RedeemTicket",
    "Renew",
    "RequestApproval",
    "RequestStop",
    "Requeue",
    "Retry",
    "RevokeCredential",
    "SetPolicy",
    "SuspendMember",
    "UpdateSession",
    "VoidLeases",
]
