"""What a batch locks before it reads anything (DESIGN decision 2): the one place that knows which op touches which mailboxes.

Lives here: the table of ops, complete by a test, and the statements of the lock phase. Not here: carrying ops out.

Invariants: mailboxes are locked in the order of their rows, those that a batch only writes to included (the targets of what it sends,
the parents of children that end, the senders that are told of a failure), so batches never wait for each other in a circle; a later
statement computes `due`. What is no mailbox is locked by name before them. More than needed may be locked, never less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from .. import ops
from ..model.addresses import session_address
from ..model.turns import Lease
from .bridge import Statement

UPKEEP: Final = frozenset[type[ops.Op[Any]]]({ops.PruneEvents, ops.PruneMessages, ops.PruneProcesses})
"""Ops that have a transaction of their own: they lock what they find on their way, and take long."""

LOCK_NAMES: Final = "SELECT pg_advisory_xact_lock(name) FROM unnest($1::bigint[]) AS v (name)"
LOCK_MAILBOXES: Final = """WITH own (id) AS (
    SELECT unnest($1::bigint[])
    UNION SELECT id FROM mailbox WHERE recipient = ANY($2::text[])
    UNION SELECT mailbox FROM message WHERE uid = ANY($3::text[])
), ending (mailbox) AS (
    SELECT unnest($4::bigint[])
    UNION SELECT mailbox FROM message WHERE uid = ANY($3::text[])
    UNION SELECT id FROM mailbox WHERE recipient = ANY($6::text[])
), told (session) AS (
    SELECT s.parent FROM ending AS e CROSS JOIN LATERAL (SELECT * FROM session AS x WHERE x.mailbox = e.mailbox OFFSET 0) AS s
        WHERE s.child_state = 'running'
    UNION SELECT sender FROM message WHERE id = ANY($5::bigint[]) AND sender_kind = 'session'
    UNION SELECT sender FROM message WHERE uid = ANY($3::text[]) AND sender_kind = 'session'
    UNION SELECT h.sender FROM mailbox AS m CROSS JOIN LATERAL (
            SELECT * FROM message AS x WHERE x.mailbox = m.id AND x.status IN ('pending', 'processing') OFFSET 0
        ) AS h WHERE m.recipient = ANY($6::text[]) AND h.sender_kind = 'session'
)
SELECT id, recipient FROM mailbox WHERE id = ANY(ARRAY(
    SELECT id FROM own UNION SELECT s.mailbox FROM session AS s WHERE s.id IN (SELECT session FROM told)
)) ORDER BY id FOR NO KEY UPDATE"""


@attrs.define
class Keys:
    """What the ops of a batch name, each set as far as the database can hold its values: an op with another value fails by itself."""

    mailboxes: set[int] = attrs.field(factory=set[int])
    recipients: set[str] = attrs.field(factory=set[str])
    messages: set[str] = attrs.field(factory=set[str])
    """Ids of messages that may fail: their mailboxes, and whoever is told."""
    ending: set[int] = attrs.field(factory=set[int])
    """Mailboxes whose turns end: a parent may be told."""
    heads: set[int] = attrs.field(factory=set[int])
    """Rows of messages that may fail with their turns: a sender may be told."""
    emptied: set[str] = attrs.field(factory=set[str])
    """Recipients whose waiting messages may all fail."""
    names: set[int] = attrs.field(factory=set[int])

    def lease(self, lease: Lease, *, ends: bool = False, fails: bool = False) -> None:
        """A turn's own mailbox, and whom its end may concern."""
        self.mailboxes.add(lease.mailbox)
        if ends:
            self.ending.add(lease.mailbox)
        if fails:
            self.heads.add(lease.head)

    def name(self, *parts: str) -> None:
        """Something that is not a mailbox."""
        text = "".join(f"{len(part)}:{part}" for part in parts).encode(errors="replace")
        self.names.add(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True))

    def statements(self) -> list[Statement]:
        """The lock phase, in its order; the answer of the last one is what was locked."""
        found: list[Statement] = []
        if self.names:
            found.append((LOCK_NAMES, (sorted(self.names),)))
        if self.mailboxes or self.recipients or self.messages:
            sets = (self.mailboxes, self.recipients, self.messages, self.ending, self.heads, self.emptied)
            found.append((LOCK_MAILBOXES, tuple(list(filter(_storable, values)) for values in sets)))
        return found


def keys_of(batch: Iterable[ops.Op[Any]]) -> Keys:
    """What the ops of a batch touch. An op of an unknown type has no key: it is refused."""
    keys = Keys()
    for op in batch:
        add = TABLE.get(type(op))
        if add is not None:
            add(keys, op)
    return keys


def _storable(value: int | str) -> bool:
    """Whether the database can hold it: a wrong value in one op must not fail the lock phase of all."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _nothing(keys: Keys, op: ops.Op[Any]) -> None:
    """A unique index or a row that the op's own statements lock is enough."""


def _held(keys: Keys, op: ops.Absorb | ops.EmitTokens | ops.HandBack | ops.RequestApproval) -> None:
    keys.lease(op.lease)


def _commit_turn(keys: Keys, op: ops.CommitTurn) -> None:
    keys.lease(op.lease, ends=True)
    keys.messages.update(op.undecodable)


def _failing(keys: Keys, op: ops.Retry | ops.Fail) -> None:
    keys.lease(op.lease, ends=True, fails=True)


def _record_step(keys: Keys, op: ops.RecordStep) -> None:
    keys.lease(op.lease)
    inner: Sequence[ops.Op[Any]] = (*op.opens, *op.sends, *op.stops)
    for other in inner:
        TABLE[type(other)](keys, other)


def _renew(keys: Keys, op: ops.Renew) -> None:
    keys.mailboxes.update(lease.mailbox for lease in op.leases)


def _enqueue(keys: Keys, op: ops.Enqueue) -> None:
    keys.recipients.add(op.recipient)


def _message(keys: Keys, op: ops.Cancel | ops.Requeue) -> None:
    keys.messages.add(op.id)


def _open_session(keys: Keys, op: ops.OpenSession) -> None:
    _path(keys, op)
    if op.parent is not None:
        # Children are counted, and then one more is made.
        keys.name("children", op.scope.tenant, op.scope.project)


def _path(keys: Keys, op: ops.OpenSession | ops.UpdateSession) -> None:
    if op.path is not None:
        # A path is looked for among those of today and those of the last month, and then taken.
        keys.name("path", op.scope.tenant, op.scope.project, op.path)


def _update_session(keys: Keys, op: ops.UpdateSession) -> None:
    _path(keys, op)
    # The path that it leaves is read and then leads to it: two moves of one session follow each other.
    keys.recipients.add(session_address(op.id))


def _delete_session(keys: Keys, op: ops.DeleteSession) -> None:
    address = session_address(op.id)
    keys.recipients.add(address)
    keys.emptied.add(address)


def _request_stop(keys: Keys, op: ops.RequestStop) -> None:
    keys.recipients.add(op.recipient)
    if op.drop_queued:
        keys.emptied.add(op.recipient)


def _clear_stuck(keys: Keys, op: ops.ClearStuck) -> None:
    keys.mailboxes.add(op.mailbox)


def _upkeep(keys: Keys, op: ops.PruneEvents | ops.PruneMessages | ops.PruneProcesses) -> None:
    keys.name("upkeep")


def _add_member(keys: Keys, op: ops.AddMember) -> None:
    keys.name("member", op.scope.tenant, op.name)


def _suspend_member(keys: Keys, op: ops.SuspendMember) -> None:
    keys.name("member", op.tenant, op.name)


def _issue(keys: Keys, op: ops.IssueToken | ops.IssueTicket) -> None:
    if op.grant.member is not None:
        keys.name("member", op.scope.tenant, op.grant.member)


TABLE: Final[MappingProxyType[type[ops.Op[Any]], Callable[[Keys, Any], None]]] = MappingProxyType(
    {
        ops.Absorb: _held,
        ops.AddMember: _add_member,
        ops.AnswerApproval: _nothing,
        ops.Cancel: _message,
        ops.Claim: _nothing,  # what is due is locked when its turn comes: what the batch makes due is too
        ops.ClearStuck: _clear_stuck,
        ops.CommitTurn: _commit_turn,
        ops.DeleteSession: _delete_session,
        ops.EmitTokens: _held,
        ops.Enqueue: _enqueue,
        ops.ExpireApproval: _nothing,
        ops.Fail: _failing,
        ops.HandBack: _held,
        ops.IssueTicket: _issue,
        ops.IssueToken: _issue,
        ops.Navigate: _nothing,
        ops.NoteUse: _nothing,
        ops.OpenSession: _open_session,
        ops.PruneEvents: _upkeep,
        ops.PruneMessages: _upkeep,
        ops.PruneProcesses: _upkeep,
        ops.RecordStep: _record_step,
        ops.RedeemTicket: _nothing,
        ops.Renew: _renew,
        ops.RequestApproval: _held,
        ops.RequestStop: _request_stop,
        ops.Requeue: _message,
        ops.Retry: _failing,
        ops.RevokeCredential: _nothing,
        ops.SetPolicy: _nothing,
        ops.SuspendMember: _suspend_member,
        ops.UpdateSession: _update_session,
        ops.VoidLeases: _nothing,  # only an SQLite file has one owner, who may void what others left
    }
)
