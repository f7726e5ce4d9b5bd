"""Which function carries out which op, and carrying out a batch. The table is complete: a test compares it with `storage.ops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from .. import ops
from ..commit import Failure
from ..model.errors import CallboardError, UsageError
from . import accepting, admitting, approving, changing, delivering, ending, housing, leasing, naming, pruning
from .tx import Clash, Tx

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
        ops.Navigate: naming.navigate,
        ops.NoteUse: admitting.note_use,
        ops.OpenSession: housing.open_session,
        ops.PruneEvents: housing.prune_events,
        ops.PruneMessages: pruning.prune_messages,
        ops.PruneProcesses: pruning.prune_processes,
        ops.RecordStep: delivering.record_step,
        ops.RedeemTicket: admitting.redeem_ticket,
        ops.Renew: leasing.renew,
        ops.RequestApproval: approving.request_approval,
        ops.RequestStop: housing.request_stop,
        ops.Requeue: changing.requeue,
        ops.Retry: ending.retry,
        ops.RevokeCredential: admitting.revoke_credential,
        ops.SetPolicy: naming.set_policy,
        ops.SuspendMember: admitting.suspend_member,
        ops.UpdateSession: housing.update_session,
        ops.VoidLeases: leasing.void_leases,
    }
)

Bulk = Callable[[Tx, Sequence[Any]], list[Any]]

BULK: Final[MappingProxyType[type[ops.Op[Any]], Bulk]] = MappingProxyType(
    {
        ops.Enqueue: accepting.enqueue_all,
        ops.CommitTurn: ending.commit_turns,
    }
)
"""Those of which many come together: one call carries out all of a batch that stand side by side. An error in place of a result is a refusal."""


def carry_out(tx: Tx, batch: Sequence[ops.Op[Any]]) -> list[Any]:
    """Carry out a batch in its order, without savepoints: a result or a `Failure` for each op.

    Whatever it raises after the first write means that the batch must be rolled back and carried out op by op, under savepoints.
    """
    outcomes: list[Any] = []
    for kind, group in groupby(batch, type):
        together = BULK.get(kind)
        if together is not None:
            try:
                done = together(tx, tuple(group))
            except UsageError as refusal:
                raise Clash from refusal  # it came after a write: carried out alone, the op that is refused fails alone
            outcomes.extend(Failure(item) if isinstance(item, CallboardError) else item for item in done)
        else:
            outcomes.extend(_alone(tx, op) for op in group)
    return outcomes


def _alone(tx: Tx, op: ops.Op[Any]) -> Any:
    """One op without a savepoint: a refusal before its first write is an answer, anything later fails the attempt."""
    tx.wrote = False
    try:
        return HANDLERS[type(op)](tx, op)
    except CallboardError as refusal:
        if tx.wrote:
            raise Clash from refusal
        return Failure(refusal)
