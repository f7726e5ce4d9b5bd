"""Which function carries out which op. The table is complete: a test compares it with `storage.ops`."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from .. import ops
from . import accepting, admitting, approving, changing, delivering, ending, housing, leasing, pruning
from .tx import Tx

Handler = Callable[[Tx, Any], Any]

HANDLERS: Final[MappingProxyType[type[ops.Op[Any]], Handler]] = MappingProxyType(
    {
        ops.Absorb: delivering.absorb,
        ops.AddMember: admitting.add_member,
        ops.AnswerApproval: approving.answer_approval,
        ops.Cancel: changing.cancel,
        ops.Claim: leasing.claim,
        ops.ClearStuck: housing.clear_stuck,
        ops.CommitTurn: ending.commit_turn,
        ops.DeleteSession: housing.delete_session,
        ops.EmitTokens: delivering.emit_tokens,
        ops.Enqueue: accepting.enqueue,
        ops.ExpireApproval: approving.expire_approval,
        ops.Fail: ending.fail,
        ops.HandBack: ending.hand_back,
        ops.IssueTicket: admitting.issue_ticket,
        ops.IssueToken: admitting.issue_token,
        ops.NoteUse: admitting.note_use,
        ops.OpenSession: housing.open_session,
        ops.PruneEvents: housing.prune_events,
        ops.PruneMessages: pruning.prune_messages,
        ops.RecordStep: delivering.record_step,
        ops.RedeemTicket: admitting.redeem_ticket,
        ops.Renew: leasing.renew,
        ops.RequestApproval: approving.request_approval,
        ops.RequestStop: housing.request_stop,
        ops.Requeue: changing.requeue,
        ops.Retry: ending.retry,
        ops.RevokeCredential: admitting.revoke_credential,
        ops.SuspendMember: admitting.suspend_member,
        ops.UpdateSession: housing.update_session,
        ops.VoidLeases: leasing.void_leases,
    }
)
