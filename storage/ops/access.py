"""Ops on who may come in: members, tokens, tickets and the cookies they are exchanged for."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..model.access import (
    Credential,
    Grant,
    Kind,
    Member,
    Purpose,
    Redeemed,
    check_label,
    check_member_name,
    check_project,
)
from ..model.addresses import Scope
from ..model.ids import new_id
from .base import Op


@attrs.frozen
class AddMember(Op[Member]):
    """Give the member `name` the project of `scope`; either is made on first use. Who is suspended stays so."""

    repeat: ClassVar[str] = "a member who has the project is returned as they are"

    scope: Scope
    name: str


@attrs.frozen
class SuspendMember(Op[Member]):
    """Suspend a member in all projects of `tenant`, or lift it. Raises: `NotFound`."""

    repeat: ClassVar[str] = "a member who is in the asked state keeps the time at which they came into it"

    tenant: str
    name: str
    suspended: bool = True


@attrs.frozen
class IssueToken(Op[Credential]):
    """A token whose secret has `digest`, made in `scope`.

    Raises: `NotFound` for a member, or a project to be bound to, that does not exist; `Conflict` for a suspended member.
    """

    repeat: ClassVar[str] = "a token of this id is returned as it is"

    scope: Scope
    id: str
    digest: bytes = attrs.field(repr=False)
    grant: Grant
    label: str = ""


def issue_token(home: Scope, digest: bytes, *, member: str | None, project: str | None, label: str) -> IssueToken:
    """Build an `IssueToken` from checked fields: for a member, else for a project, else for the operator.

    With a project it is good for that one alone. Raises `InvalidField` naming the wrong field.
    """
    bound = project is not None
    if member is not None:
        grant = Grant(Kind.MEMBER, check_member_name(member, "member"), bound)
    else:
        grant = Grant(Kind.PROJECT if bound else Kind.OPERATOR, None, bound)
    scope = home if project is None else Scope(home.tenant, check_project(project))
    return IssueToken(scope, new_id("tok"), digest, grant, check_label(label))


@attrs.frozen
class RevokeCredential(Op[Credential]):
    """Make a token or cookie invalid, and with a token every cookie that came from it. Raises: `NotFound`."""

    repeat: ClassVar[str] = "what is revoked keeps the time of its first revocation"

    tenant: str
    id: str


@attrs.frozen
class NoteUse(Op[None]):
    """A credential was used at the time of this op; written only if the last noted use is at least `every` seconds ago."""

    repeat: ClassVar[str] = "a second use so soon after the first is not noted"

    id: str
    every: float


@attrs.frozen
class IssueTicket(Op[float]):
    """A ticket whose secret has `digest`, for `seconds`; returns when it ends. `maker`: the credential that asks, None for the operator's own.

    Raises: `NotFound` for a member who does not exist; `Conflict` for one who is suspended.
    """

    repeat: ClassVar[str] = "a ticket of this digest is left as it is"

    scope: Scope
    digest: bytes = attrs.field(repr=False)
    purpose: Purpose
    grant: Grant
    seconds: float
    maker: str | None = None


@attrs.frozen
class RedeemTicket(Op[Redeemed]):
    """Use a ticket up. `by` is a fresh id of the caller's; for the console it becomes the id of a cookie whose secret has the digest `cookie`.

    Raises: `Unauthorized` if the ticket is unknown, over, used by somebody else, or for another purpose.
    """

    repeat: ClassVar[str] = "who has used the ticket gets the same answer again"

    digest: bytes = attrs.field(repr=False)
    purpose: Purpose
    by: str
    cookie: bytes | None = attrs.field(default=None, repr=False)
    cookie_seconds: float = 0.0
