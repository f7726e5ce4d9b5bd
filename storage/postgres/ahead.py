"""What a batch is sure to ask: it is asked together with the batch's locks, or with the end of the turns before it, which saves a way to
the server and back.

Not here: what is done with the answers (`handlers`), where they are kept (`tx.py`).

Invariant: an answer that was got ahead is what the statement would have answered in its place: nothing that the batch writes before
changes it, and all that it reads of is locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from .. import ops
from ..handlers.accepting import targets_of
from ..handlers.delivering import fences_of
from ..model.addresses import Scope
from ..rows import Row

K = TypeVar("K", bound=ops.Op[Any])
Question = tuple[str, Sequence[Any]]
"""A statement's name, and the arguments or the rows that it will be asked with."""
Answered = dict[str, tuple[Sequence[Any], list[Row]]]
"""What was answered, by name: the question's arguments, the rows."""


def ahead(batch: Sequence[ops.Op[Any]], scopes: Mapping[Scope, int]) -> list[Question]:
    """The questions of `batch`, at most one for each statement. `scopes`: rows of those that are known."""
    found: list[Question] = []
    commits = _leading(batch, ops.CommitTurn)
    sends = _leading(batch[len(commits) :], ops.Enqueue)
    if commits:
        found.append(("fence", fences_of([op.lease for op in commits])))
    elif (targets := _targets(sends, scopes)) is not None:
        found.append(targets)
    if len(sends) > 1:
        found.append(("message_ids", (len(sends),)))
    claims = [op for op in batch if isinstance(op, ops.Claim)]
    if len(claims) == 1:
        found.append(("process_nonce", (claims[0].holder,)))
    return found


def behind(batch: Sequence[ops.Op[Any]], scopes: Mapping[Scope, int]) -> Question | None:
    """What the sends ask that follow the ends of turns with which `batch` begins: to be asked when those have been written."""
    ends = len(_leading(batch, ops.CommitTurn))
    return _targets(_leading(batch[ends:], ops.Enqueue), scopes) if ends else None


def _targets(sends: Sequence[ops.Enqueue], scopes: Mapping[Scope, int]) -> Question | None:
    if not sends or any(op.scope not in scopes for op in sends):
        return None
    return "targets_for_enqueue", targets_of(sends, [scopes[op.scope] for op in sends])


def _leading(batch: Sequence[ops.Op[Any]], kind: type[K]) -> list[K]:
    """The ops of that kind with which the batch begins."""
    return [op for op in takewhile(lambda op: type(op) is kind, batch) if isinstance(op, kind)]
