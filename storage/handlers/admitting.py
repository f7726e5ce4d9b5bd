"""Who may come in: AddMember, SuspendMember, IssueToken, RevokeCredential, NoteUse, IssueTicket, RedeemTicket.

Not here: which routes a credential opens. Invariant: a ticket has one user; a cookie's row is written in the transaction that uses it up.
"""

from __future__ import annotations

from ..model.access import Carrier, Credential, Grant, Kind, Member, Purpose, Redeemed, Standing
from ..model.addresses import Scope
from ..model.errors import Conflict, NotFound, Unauthorized, UnknownTarget
from ..ops.access import AddMember, IssueTicket, IssueToken, NoteUse, RedeemTicket, RevokeCredential, SuspendMember
from ..rows import credential_from, standing_from
from .tx import Tx

KEEP_SECONDS = 3_600.0
"""How long after its end a ticket or cookie is still a row, so that a repeated op finds it."""


def add_member(tx: Tx, op: AddMember) -> Member:
    """Carry out `AddMember`."""
    scope = tx.scope(op.scope, create=True)
    places = tx.all("member_places", (op.scope.tenant, op.name))
    if op.scope.project not in {place[0] for place in places}:
        tx.put("member_insert", (scope, op.name, tx.now, places[0][2] if places else None))
    return _member(tx, op.scope.tenant, op.name)


def suspend_member(tx: Tx, op: SuspendMember) -> Member:
    """Carry out `SuspendMember`."""
    found = _member(tx, op.tenant, op.name)
    if (found.suspended is not None) == op.suspended:
        return found
    tx.put("member_suspend", (tx.now if op.suspended else None, op.name, op.tenant))
    return _member(tx, op.tenant, op.name)


def issue_token(tx: Tx, op: IssueToken) -> Credential:
    """Carry out `IssueToken`."""
    known = tx.one("token_row", (op.id, op.scope.tenant))
    if known is not None:
        return credential_from(known)
    scope = _home(tx, op.scope, op.grant)
    _insert(tx, op.id, scope, Carrier.BEARER, op.digest, op.grant, op.label, None, None)
    return _credential(tx, op.id, op.scope.tenant)


def revoke_credential(tx: Tx, op: RevokeCredential) -> Credential:
    """Carry out `RevokeCredential`."""
    found = _credential(tx, op.id, op.tenant)
    if found.revoked is not None:
        return found
    tx.put("token_revoke", (tx.now, op.id))
    return _credential(tx, op.id, op.tenant)


def note_use(tx: Tx, op: NoteUse) -> None:
    """Carry out `NoteUse`."""
    tx.put("token_use", (tx.now, op.id, tx.now - op.every))


def issue_ticket(tx: Tx, op: IssueTicket) -> float:
    """Carry out `IssueTicket`; forgets old ones on the way, so their number follows how many are asked for."""
    known = tx.one("ticket_row", (op.digest,))
    if known is not None:
        return known[5]
    scope = _home(tx, op.scope, op.grant)
    tx.put("tickets_forget", (tx.now - KEEP_SECONDS,))
    ends = tx.now + op.seconds
    tx.put(
        "ticket_insert",
        (scope, op.digest, op.purpose, op.grant.kind, op.grant.member, op.grant.bound, op.maker, ends),
    )
    return ends


def redeem_ticket(tx: Tx, op: RedeemTicket) -> Redeemed:
    """Carry out `RedeemTicket`."""
    row = tx.one("ticket_row", (op.digest,))
    used = row is not None and row[6] is not None
    if row is None or row[0] != op.purpose or (row[6] != op.by if used else row[5] <= tx.now):
        raise _no_ticket()
    grant = Grant(Kind(row[1]), row[2], bool(row[3]))
    home, maker = Scope(row[7], row[8]), row[4]
    label = ""
    if maker is not None:
        made = tx.all("standing_by_id", {"id": maker, "now": tx.now})
        if not made:
            raise _no_ticket()
        standing = standing_from(made[0])
        label = standing.label
        maker = maker if op.purpose is Purpose.WEBSOCKET else standing.parent or _bearer(standing)
    if not used:
        tx.put("ticket_use", (op.by, op.digest))
        if op.cookie is not None:
            tx.put("cookies_forget", (tx.now - KEEP_SECONDS,))
            ends = tx.now + op.cookie_seconds
            _insert(tx, op.by, row[9], Carrier.COOKIE, op.cookie, grant, label, maker, ends)
    return Redeemed(grant, home, maker, label)


def _no_ticket() -> Unauthorized:
    return Unauthorized("the ticket is not valid: it can be used once, and not for long")


def _bearer(maker: Standing) -> str | None:
    """A cookie that was made with another cookie lives on its own: leaving with one browser must not end the other."""
    return maker.id if maker.carrier is Carrier.BEARER else None


def _home(tx: Tx, scope: Scope, grant: Grant) -> int:
    """The row of the scope that a credential is made in. Raises `NotFound`, `Conflict` for what it can't stand for."""
    if grant.member is not None:
        member = _member(tx, scope.tenant, grant.member)
        if member.suspended is not None:
            raise Conflict(f"{grant.member} is suspended", path="member")
        if grant.bound and scope.project not in member.projects:
            raise NotFound(f"{grant.member} has no project of that name", path="project")
    if not grant.bound:
        return tx.scope(scope, create=True)
    try:
        return tx.scope(scope)
    except UnknownTarget:
        raise NotFound("there is no such project", path="project") from None


def _insert(
    tx: Tx,
    id: str,
    scope: int,
    carrier: Carrier,
    digest: bytes,
    grant: Grant,
    label: str,
    parent: str | None,
    expires: float | None,
) -> None:
    row = (id, scope, carrier, digest, grant.kind, grant.member, grant.bound, label, parent, tx.now, expires)
    tx.put("token_insert", row)


def _member(tx: Tx, tenant: str, name: str) -> Member:
    places = tx.all("member_places", (tenant, name))
    if not places:
        raise NotFound("there is no such member", path="member")
    return Member(name, tuple(place[0] for place in places), min(place[1] for place in places), places[0][2])


def _credential(tx: Tx, id: str, tenant: str) -> Credential:
    row = tx.one("token_row", (id, tenant))
    if row is None:
        raise NotFound("there is no such token", path="id")
    return credential_from(row)
