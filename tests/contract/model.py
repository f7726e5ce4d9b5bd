"""What every op does, as a pure function of the model's state: the specification that a store is compared with.

Here: which function is which op's, and batches. Not here: the functions (`model_leases`, `model_turns`, `model_outside`), the state and
what they share (`model_state`), programs of ops (`model_program`). An op's function returns what the op must answer, or raises the
refusal; a refusal changes nothing. Where a store chooses (row numbers, ids of what it makes itself) the function is given its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from callboard.storage import ops
from callboard.storage.model.errors import CallboardError
from callboard.storage.ops import CommitTurn, Op
from callboard.tests.contract import model_leases, model_outside, model_turns
from callboard.tests.contract.model_state import State

_DO: dict[type[Op[Any]], Callable[[State, Any, Any], Any]] = {
    ops.Absorb: model_turns.absorb,
    ops.Cancel: model_outside.cancel,
    ops.Claim: model_leases.claim,
    ops.DeleteSession: model_outside.delete_session,
    ops.EmitTokens: model_turns.emit_tokens,
    ops.Enqueue: model_outside.accept,
    ops.Fail: model_turns.fail,
    ops.HandBack: model_turns.hand_back,
    ops.OpenSession: model_outside.open_session,
    ops.PruneEvents: model_outside.prune_events,
    ops.PruneMessages: model_outside.prune_messages,
    ops.RecordStep: model_turns.record_step,
    ops.Renew: model_leases.renew,
    ops.RequestStop: model_outside.request_stop,
    ops.Requeue: model_outside.requeue,
    ops.Retry: model_turns.retry,
    ops.VoidLeases: model_leases.void_leases,
}
"""All but `CommitTurn`, of which several may be one write."""


def carry_out(state: State, ops: Sequence[Op[Any]], answers: Sequence[Any], *, together: bool) -> list[Any]:
    """What a batch must answer, an error in place of a refusal. `together`: turns that commit side by side all commit before any of their
    children's results is written, as a store may do it that writes them with one statement."""
    expected: list[Any] = []
    later: model_turns.Later = []
    for n, op in enumerate(ops):
        try:
            if isinstance(op, CommitTurn):
                expected.append(model_turns.commit_turn(state, op, later))
            else:
                expected.append(_DO[type(op)](state, op, answers[n]))
        except CallboardError as refusal:
            expected.append(refusal)
        if not (together and n + 1 < len(ops) and isinstance(ops[n + 1], CommitTurn)):
            for box, end, answer in later:
                state.end_child(box, end, answer)
            later.clear()
    return expected
