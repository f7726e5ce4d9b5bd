"""Who is asking: credentials, what they stand for, and the project that a request acts in.

Lives here: principals, the check of tokens, cookies and tickets. Not here: which route is open to whom (access), the operator's
own token file (token_file), the way in for browsers (door), the rule for Origin (fields), rows (storage).

Invariant: who a message is from is stamped from the credential (AUTH-2). A secret is never kept, logged or shown: only its digest is, and it
is by the digest that a credential is found.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import Final

import attrs
import trio

from ...storage.model.access import Carrier, Grant, Kind, Purpose, Standing, digest, new_secret
from ...storage.model.addresses import SEGMENT, Scope, Sender
from ...storage.model.errors import CallboardError, InvalidField, NotFound, Unauthorized
from ...storage.model.ids import new_id
from ...storage.model.policies import By
from ...storage.ops import IssueTicket, NoteUse, RedeemTicket, RevokeCredential
from ...storage.store import Store
from .fields import Fields, bearer_token, cookie, one_field

PROJECT: Final = "Callboard-Project"
SECONDS: Final = {Purpose.WEBSOCKET: 30.0, Purpose.CONSOLE: 600.0}
"""How long a ticket is good."""
COOKIE_SECONDS: Final = 30 * 24 * 3600
NOTE_SECONDS: Final = 30.0
"""The last use of a credential is written at most this often."""


@attrs.frozen
class Principal:
    """Who a credential stands for: how its messages are signed, where it acts, and by which row (None: the operator's token file)."""

    sender: Sender
    scope: Scope
    kind: Kind = Kind.OPERATOR
    credential: str | None = None
    carrier: Carrier = Carrier.BEARER
    bound: bool = False
    projects: tuple[str, ...] | None = None
    """Those that it may choose from; None: any."""

    @property
    def grant(self) -> Grant:
        """What a credential made in its name may be good for at most."""
        return Grant(self.kind, self.sender.id if self.kind is Kind.MEMBER else None, self.bound)

    @property
    def by(self) -> By:
        """As whom it asks for paths: what was given up is the operator's to give away (NS-3)."""
        return By.OPERATOR if self.kind is Kind.OPERATOR else By.MEMBER

    @property
    def by_cookie(self) -> bool:
        """Whether a browser presented it unasked, so that any page may have caused the request."""
        return self.carrier is Carrier.COOKIE


@attrs.frozen
class Ticket:
    """A secret that is used once, and when it ends (store time in seconds)."""

    secret: str = attrs.field(repr=False)
    expires: float


class Auth:
    """Checks credentials: the operator's token, and those that are rows. `cookie_name` is what this server's cookie is called."""

    def __init__(self, token: str, operator: Principal, store: Store, *, cookie_name: str = "callboard") -> None:
        self._digest = digest(token)
        self.operator = operator
        self._store = store
        self.cookie_name = cookie_name

    def __repr__(self) -> str:
        return "<Auth>"

    async def principal(self, headers: Fields, *, anywhere: bool = False) -> Principal:
        """The principal of a request with these fields, in the project that it acts in (AUTH-2).

        With `anywhere` who has several projects need not choose one. Raises `Unauthorized`; `InvalidField` for a project that must be named or
        is none; `NotFound` for one that is not theirs.
        """
        fields = list(headers)
        standing = await self._standing(fields)
        return self._acting(standing, one_field(fields, PROJECT.lower().encode()), anywhere=anywhere)

    async def holds(self, principal: Principal) -> bool:
        """Whether what was granted a while ago still is (AUTH-3); also while the store can't tell."""
        if principal.credential is None:
            return True
        try:
            standing = await self._store.access.standing_of(principal.credential, self._store.now())
        except CallboardError:
            return True
        return standing is not None and _may_act(standing, principal.scope.project)

    async def until_refused(self, principal: Principal, every: float) -> None:
        """Return once what was granted no longer is; looks `every` so many seconds."""
        while True:
            await trio.sleep(every)
            if not await self.holds(principal):
                return

    async def issue(self, principal: Principal, purpose: Purpose, *, grant: Grant | None = None) -> Ticket:
        """A ticket that opens, once, what `principal` may open, or what `grant` is good for."""
        secret = new_secret()
        op = IssueTicket(
            principal.scope,
            digest(secret),
            purpose,
            grant or principal.grant,
            SECONDS[purpose],
            principal.credential,
        )
        return Ticket(secret, await self._store.apply(op))

    async def redeem(self, ticket: str) -> Principal:
        """The principal of a websocket that is opened with a ticket. Raises `Unauthorized`."""
        used = await self._store.apply(RedeemTicket(digest(ticket), Purpose.WEBSOCKET, new_id("use")))
        if used.maker is None:
            return attrs.evolve(self.operator, scope=used.home)
        standing = await self._store.access.standing_of(used.maker, self._store.now())
        if standing is None or not _may_act(standing, used.home.project):
            raise Unauthorized("the ticket is not valid any more")
        return attrs.evolve(self._acting(standing, used.home.project), carrier=Carrier.BEARER)

    async def enter(self, ticket: str) -> str:
        """The value of a new cookie, for a ticket to the console. Raises `Unauthorized`."""
        secret = new_secret()
        op = RedeemTicket(digest(ticket), Purpose.CONSOLE, new_id("cok"), digest(secret), COOKIE_SECONDS)
        await self._store.apply(op)
        return secret

    async def leave(self, principal: Principal) -> None:
        """Make the cookie of `principal` invalid."""
        assert principal.credential is not None
        await self._store.apply(RevokeCredential(principal.scope.tenant, principal.credential))

    async def _standing(self, fields: list[tuple[bytes, bytes]]) -> Standing | None:
        """The credential of a request; None for the operator's token file. Raises `Unauthorized`."""
        bearer = bearer_token(fields)
        if bearer is not None:
            known = digest(bearer)
            if hmac.compare_digest(known, self._digest):
                return None
            carrier, wrong = Carrier.BEARER, "the bearer token is not valid"
        else:
            value = cookie(fields, self.cookie_name)
            if value is None:
                raise Unauthorized("a bearer token is needed")
            known = digest(value)
            carrier, wrong = Carrier.COOKIE, "the cookie is not valid any more"
        now = self._store.now()
        standing = await self._store.access.standing(known, carrier, now)
        if standing is None or standing.projects == ():
            raise Unauthorized(wrong)
        if standing.used is None or now - standing.used >= NOTE_SECONDS:
            # When it was last used is good to know; a store that is too busy to note it must not keep anybody out.
            with suppress(CallboardError):
                await self._store.apply(NoteUse(standing.id, NOTE_SECONDS))
        return standing

    def _acting(self, standing: Standing | None, project: str | None, *, anywhere: bool = False) -> Principal:
        if project is not None and not SEGMENT.match(project):
            raise InvalidField("must be [a-z0-9][a-z0-9._-]{0,62}", path=PROJECT)
        projects = None if standing is None else standing.projects
        home = self.operator.scope
        if project is None and projects is not None:
            if len(projects) > 1 and not anywhere:
                raise InvalidField(f"must name one of {', '.join(projects)}", path=PROJECT)
            project = next(iter(projects))
        if project is not None and projects is not None and project not in projects:
            raise NotFound("there is no such project here", path=PROJECT)
        scope = Scope(home.tenant, project or home.project)
        if standing is None:
            return attrs.evolve(self.operator, scope=scope)
        return Principal(
            self._sender(standing),
            scope,
            standing.grant.kind,
            standing.id,
            standing.carrier,
            standing.grant.bound,
            projects,
        )

    def _sender(self, standing: Standing) -> Sender:
        match standing.grant.kind:
            case Kind.MEMBER:
                name = standing.grant.member or ""
                return Sender(name, "member", name)
            case Kind.PROJECT:
                # A cookie signs as the token that it came from: a message id is the same one from both.
                return Sender(standing.parent or standing.id, "member", standing.label or standing.home.project)
            case Kind.OPERATOR:
                return self.operator.sender


def _may_act(standing: Standing, project: str) -> bool:
    return standing.projects is None or project in standing.projects
