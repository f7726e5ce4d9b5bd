"""Who may come in, as rows: members, tokens, cookies, tickets; what each is good for, and for how long."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from callboard.storage.model.access import Carrier, Credential, Grant, Kind, Purpose, Standing, digest, new_secret
from callboard.storage.model.addresses import Scope
from callboard.storage.model.errors import Conflict, InvalidField, NotFound, Unauthorized
from callboard.storage.model.ids import new_id
from callboard.storage.ops import (
    AddMember,
    IssueTicket,
    NoteUse,
    RedeemTicket,
    RevokeCredential,
    SuspendMember,
)
from callboard.storage.ops.access import issue_token
from callboard.storage.store import open_store

if TYPE_CHECKING:
    from conftest import Kit

HOUR = 3_600.0
OPERATOR = Grant(Kind.OPERATOR)


@attrs.frozen
class Made:
    """A token and its secret."""

    secret: str
    row: Credential


async def token(kit: Kit, *, member: str | None = None, project: str | None = None, tenant: str = "default") -> Made:
    secret = new_secret()
    op = issue_token(Scope(tenant), digest(secret), member=member, project=project, label="test")
    return Made(secret, await kit.store.apply(op))


async def standing(kit: Kit, secret: str, carrier: Carrier = Carrier.BEARER) -> Standing | None:
    return await kit.store.access.standing(digest(secret), carrier, kit.store.now())


async def cookie(kit: Kit, grant: Grant = OPERATOR, maker: str | None = None, seconds: float = HOUR) -> tuple[str, str]:
    """The secret and the id of a cookie that a ticket was exchanged for."""
    ticket, secret, name = new_secret(), new_secret(), new_id("cok")
    await kit.store.apply(IssueTicket(kit.scope, digest(ticket), Purpose.CONSOLE, grant, HOUR, maker))
    await kit.store.apply(RedeemTicket(digest(ticket), Purpose.CONSOLE, name, digest(secret), seconds))
    return secret, name


@pytest.mark.spec("AUTH-3")
async def test_a_member_has_the_projects_that_were_given(kit: Kit) -> None:
    for project in ("beta", "alpha", "beta"):
        member = await kit.store.apply(AddMember(Scope(project=project), "ann"))
    assert member.projects == ("alpha", "beta")
    assert member.suspended is None
    made = await token(kit, member="ann")
    found = await standing(kit, made.secret)
    assert found is not None
    assert (found.projects, found.grant) == (("alpha", "beta"), Grant(Kind.MEMBER, "ann"))
    # Later ones count as well: what a token may do is looked up, not copied into it.
    await kit.store.apply(AddMember(Scope(project="gamma"), "ann"))
    again = await standing(kit, made.secret)
    assert again is not None
    assert again.projects == ("alpha", "beta", "gamma")


@pytest.mark.spec("AUTH-3")
async def test_a_suspended_member_may_do_nothing_until_it_is_lifted(kit: Kit) -> None:
    await kit.store.apply(AddMember(kit.scope, "ann"))
    await kit.store.apply(AddMember(kit.scope, "bob"))
    ann, bob = await token(kit, member="ann"), await token(kit, member="bob")
    browser, _ = await cookie(kit, Grant(Kind.MEMBER, "ann"), ann.row.id)
    suspended = await kit.store.apply(SuspendMember("default", "ann"))
    assert suspended.suspended is not None
    for secret, carrier in ((ann.secret, Carrier.BEARER), (browser, Carrier.COOKIE)):
        found = await standing(kit, secret, carrier)
        assert found is not None
        assert found.projects == ()
    other = await standing(kit, bob.secret)
    assert other is not None
    assert other.projects == ("default",)
    with pytest.raises(Conflict, match="suspended"):
        await token(kit, member="ann")
    with pytest.raises(Conflict, match="suspended"):
        await cookie(kit, Grant(Kind.MEMBER, "ann"))
    # A project that is given meanwhile does not let them in by the side door.
    await kit.store.apply(AddMember(Scope(project="new"), "ann"))
    found = await standing(kit, ann.secret)
    assert found is not None
    assert found.projects == ()
    assert (await kit.store.apply(SuspendMember("default", "ann", suspended=False))).suspended is None
    found = await standing(kit, ann.secret)
    assert found is not None
    assert found.projects == ("default", "new")


async def test_a_token_for_one_project_is_good_for_no_other(kit: Kit) -> None:
    for project in ("alpha", "beta"):
        await kit.store.apply(AddMember(Scope(project=project), "ann"))
    bound = await standing(kit, (await token(kit, member="ann", project="beta")).secret)
    backend = await standing(kit, (await token(kit, project="alpha")).secret)
    operator = await standing(kit, (await token(kit)).secret)
    assert bound is not None
    assert backend is not None
    assert operator is not None
    assert (bound.projects, bound.grant) == (("beta",), Grant(Kind.MEMBER, "ann", bound=True))
    assert (backend.projects, backend.grant) == (("alpha",), Grant(Kind.PROJECT, None, bound=True))
    assert (operator.projects, operator.grant) == (None, OPERATOR)


async def test_what_does_not_exist_gets_no_token(kit: Kit) -> None:
    await kit.store.apply(AddMember(Scope(project="alpha"), "ann"))
    await kit.open(scope=Scope(project="beta"))
    for member, project in (("bob", None), ("ann", "beta"), ("ann", "never"), (None, "never")):
        with pytest.raises(NotFound):
            await token(kit, member=member, project=project)
    for op in (SuspendMember("default", "bob"), RevokeCredential("default", "tok_no"), SuspendMember("other", "ann")):
        with pytest.raises(NotFound):
            await kit.store.apply(op)
    for name in ("", "Ann", "a b", "operator", "system", "a" * 64):
        with pytest.raises(InvalidField, match="member"):
            await token(kit, member=name)


async def test_a_revoked_token_is_good_for_nothing_and_takes_its_cookies_with_it(kit: Kit) -> None:
    made, other = await token(kit), await token(kit)
    browser, _ = await cookie(kit, maker=made.row.id)
    from_cookie, _ = await cookie(kit, maker=(await standing_of_cookie(kit, browser)).id)
    apart, _ = await cookie(kit, maker=other.row.id)
    assert await standing(kit, from_cookie, Carrier.COOKIE) is not None
    revoked = await kit.store.apply(RevokeCredential("default", made.row.id))
    assert revoked.revoked is not None
    assert await standing(kit, made.secret) is None
    assert await kit.store.access.standing_of(made.row.id, kit.store.now()) is None
    # Also a cookie whose link was made with the first cookie: it goes back to the same token.
    assert await standing(kit, browser, Carrier.COOKIE) is None
    assert await standing(kit, from_cookie, Carrier.COOKIE) is None
    assert await standing(kit, other.secret) is not None
    assert await standing(kit, apart, Carrier.COOKIE) is not None


async def standing_of_cookie(kit: Kit, secret: str) -> Standing:
    found = await standing(kit, secret, Carrier.COOKIE)
    assert found is not None
    return found


async def test_a_cookie_is_revoked_alone(kit: Kit) -> None:
    made = await token(kit)
    first, named = await cookie(kit, maker=made.row.id)
    second, _ = await cookie(kit, maker=named)
    await kit.store.apply(RevokeCredential("default", named))
    assert await standing(kit, first, Carrier.COOKIE) is None
    assert await standing(kit, second, Carrier.COOKIE) is not None
    assert await standing(kit, made.secret) is not None


async def test_a_credential_is_good_only_as_what_it_was_made_for(kit: Kit) -> None:
    made = await token(kit)
    browser, _ = await cookie(kit)
    assert await standing(kit, made.secret, Carrier.COOKIE) is None
    assert await standing(kit, browser, Carrier.BEARER) is None


async def test_a_cookie_ends_at_its_time(kit: Kit) -> None:
    browser, named = await cookie(kit, seconds=HOUR)
    now = kit.store.now()
    assert await kit.store.access.standing(digest(browser), Carrier.COOKIE, now + HOUR - 60) is not None
    assert await kit.store.access.standing(digest(browser), Carrier.COOKIE, now + HOUR + 1) is None
    assert await kit.store.access.standing_of(named, now + HOUR + 1) is None


@pytest.mark.spec("AUTH-1")
async def test_a_ticket_is_used_once_in_time_and_for_its_purpose(kit: Kit) -> None:
    good, over = new_secret(), new_secret()
    await kit.store.apply(IssueTicket(kit.scope, digest(good), Purpose.WEBSOCKET, OPERATOR, HOUR))
    await kit.store.apply(IssueTicket(kit.scope, digest(over), Purpose.WEBSOCKET, OPERATOR, -1.0))
    refused = (
        RedeemTicket(digest(good), Purpose.CONSOLE, "cok_1", digest("x"), HOUR),
        RedeemTicket(digest(over), Purpose.WEBSOCKET, "use_1"),
        RedeemTicket(digest(new_secret()), Purpose.WEBSOCKET, "use_2"),
    )
    for op in refused:
        with pytest.raises(Unauthorized):
            await kit.store.apply(op)
    first, second = await kit.together(
        RedeemTicket(digest(good), Purpose.WEBSOCKET, "use_3"), RedeemTicket(digest(good), Purpose.WEBSOCKET, "use_4")
    )
    # Two at the same moment: exactly one comes in.
    assert sorted(type(answer).__name__ for answer in (first, second)) == ["Redeemed", "Unauthorized"]
    with pytest.raises(Unauthorized):
        await kit.store.apply(RedeemTicket(digest(good), Purpose.WEBSOCKET, "use_5"))


async def test_a_ticket_of_a_token_that_was_revoked_opens_nothing(kit: Kit) -> None:
    made, ticket = await token(kit), new_secret()
    await kit.store.apply(IssueTicket(kit.scope, digest(ticket), Purpose.WEBSOCKET, OPERATOR, HOUR, made.row.id))
    await kit.store.apply(RevokeCredential("default", made.row.id))
    with pytest.raises(Unauthorized):
        await kit.store.apply(RedeemTicket(digest(ticket), Purpose.WEBSOCKET, "use_1"))


@pytest.mark.spec("AUTH-1")
async def test_the_last_use_is_noted_now_and_then(kit: Kit) -> None:
    made = await token(kit)
    assert made.row.used is None
    await kit.store.apply(NoteUse(made.row.id, 30.0))
    (first,) = (await kit.store.access.credentials("default")).items
    assert first.used is not None
    await kit.store.apply(NoteUse(made.row.id, 30.0))
    (again,) = (await kit.store.access.credentials("default")).items
    assert again.used == first.used
    await kit.store.apply(NoteUse(made.row.id, 0.0))
    (later,) = (await kit.store.access.credentials("default")).items
    assert later.used is not None
    assert later.used > first.used


@pytest.mark.spec("NS-5")
async def test_listings_go_in_pages_and_show_one_tenant(kit: Kit) -> None:
    for name in ("cem", "ann", "bob"):
        await kit.store.apply(AddMember(kit.scope, name))
    await kit.store.apply(AddMember(Scope("other", "default"), "eve"))
    made = [(await token(kit)).row.id for _ in range(3)]
    foreign = (await token(kit, tenant="other")).row.id
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await kit.store.access.members("default", limit=2, cursor=cursor)
        names += [member.name for member in page.items]
        if (cursor := page.next) is None:
            break
    assert names == ["ann", "bob", "cem"]
    ids: list[str] = []
    while True:
        tokens = await kit.store.access.credentials("default", limit=2, cursor=cursor)
        ids += [credential.id for credential in tokens.items]
        if (cursor := tokens.next) is None:
            break
    assert ids == made[::-1]
    assert [member.name for member in (await kit.store.access.members("other")).items] == ["eve"]
    assert [item.id for item in (await kit.store.access.credentials("other")).items] == [foreign]
    with pytest.raises(NotFound):
        await kit.store.apply(RevokeCredential("default", foreign))
    for wrong in (0, 201):
        with pytest.raises(InvalidField):
            await kit.store.access.members("default", limit=wrong)
    with pytest.raises(InvalidField):
        await kit.store.access.credentials("default", cursor="tok_x")


@pytest.mark.spec("AUTH-1")
async def test_no_secret_is_in_the_database(tmp_path: Path) -> None:
    secrets = [new_secret() for _ in range(3)]
    bearer, ticket, browser = secrets

    async with open_store(f"sqlite:///{tmp_path}/store.db") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        op = issue_token(Scope(), digest(bearer), member=None, project=None, label="")
        made = await store.apply(op)
        issue = IssueTicket(Scope(), digest(ticket), Purpose.CONSOLE, OPERATOR, HOUR, made.id)
        redeem = RedeemTicket(digest(ticket), Purpose.CONSOLE, "cok_1", digest(browser), HOUR)
        await store.apply(issue)
        await store.apply(redeem)
        texts = repr((op, issue, redeem, made, (await store.access.credentials("default")).items))
        nursery.cancel_scope.cancel()
    content = everything_in(tmp_path)
    assert digest(bearer) in content
    for secret in secrets:
        assert secret.encode() not in content
        assert secret not in texts
        assert repr(digest(secret)) not in texts


async def test_tickets_and_cookies_that_ended_long_ago_are_forgotten(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        made = [digest(new_secret()) for _ in range(4)]
        for ticket, seconds in zip(made, (-2 * HOUR, -2 * HOUR, -1.0, HOUR), strict=True):
            await store.apply(IssueTicket(Scope(), ticket, Purpose.CONSOLE, OPERATOR, seconds))
        # One that is not over yet, exchanged for a cookie that is, which the next exchange finds.
        await store.apply(RedeemTicket(made[3], Purpose.CONSOLE, "cok_1", digest("a"), -2 * HOUR))
        last = digest(new_secret())
        await store.apply(IssueTicket(Scope(), last, Purpose.CONSOLE, OPERATOR, HOUR))
        await store.apply(RedeemTicket(last, Purpose.CONSOLE, "cok_2", digest("b"), HOUR))
        assert [item.id for item in (await store.access.credentials("default")).items] == ["cok_2"]
        nursery.cancel_scope.cancel()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        left = {ticket for (ticket,) in connection.execute("SELECT digest FROM ticket")}
    assert left == {made[2], made[3], last}


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())
