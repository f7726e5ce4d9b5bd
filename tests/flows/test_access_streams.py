"""A stream that is open outlives its credential by less than half a minute, and nobody else's stream ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from callboard.actors.edges.edge import Pace
from callboard.storage.model.errors import StoreDown
from callboard.tests.flows.access_kit import (
    Key,
    add_member,
    ask_for_ticket,
    cookie_of,
    enter,
    make_key,
    member_key,
    without_token,
)
from callboard.tests.flows.edge_kit import Served, serving_runtime

QUICK = Pace(recheck=0.05, close=0.5)
LOST = (1008, "the credential is not valid any more")


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Served]:
    """A served runtime that looks often at whether credentials are still good."""
    async with serving_runtime(tmp_path, pace=QUICK) as served:
        yield served


async def suspend(served: Served, name: str = "ann") -> None:
    assert (await served.client.post(f"/v1/members/{name}/suspend")).status_code == 200


async def revoke(served: Served, key: Key) -> None:
    assert (await served.client.post(f"/v1/tokens/{key.id}/revoke")).status_code == 200


@pytest.mark.spec("AUTH-3")
def test_the_usual_pace_keeps_the_promise() -> None:
    usual = Pace()
    assert usual.recheck + usual.close < 30


@pytest.mark.spec("AUTH-3")
@pytest.mark.parametrize("how", ["suspended", "revoked"])
async def test_a_stream_and_a_websocket_end_with_their_credential(quick: Served, how: str) -> None:
    session = await quick.open()
    ann, bob = await member_key(quick, "ann"), await member_key(quick, "bob")
    path = f"/v1/sessions/{session}/events"
    async with (
        quick.stream(path, **ann.headers) as events,
        quick.live(**ann.headers) as live,
        quick.stream(path, **bob.headers) as other_events,
        quick.live(**bob.headers) as other_live,
        quick.live() as operator,
    ):
        for socket in (live, other_live, operator):
            await socket.ask("subscribe", session=session)
        await (suspend(quick) if how == "suspended" else revoke(quick, ann))
        assert await events.rest() == []
        assert await live.closing() == LOST
        # Everybody else's go on.
        await quick.post(session, "echo hi")
        await other_events.until("turn.completed")
        for socket in (other_live, operator):
            await socket.until("turn.completed")
    await quick.refused("GET", path, 401, "unauthorized", headers=ann.headers)


@pytest.mark.spec("AUTH-3")
async def test_a_turn_s_stream_ends_as_well(quick: Served) -> None:
    session = await quick.open("patient")
    ann = await member_key(quick, "ann")
    message = await quick.post(session, "work")
    turn = "turn_" + message["message_id"].removeprefix("msg_")
    async with quick.stream(f"/v1/turns/{turn}/events", **ann.headers) as events:
        await events.until("turn.token")
        await suspend(quick)
        assert await events.rest() == []


@pytest.mark.spec("AUTH-3")
async def test_what_came_from_a_token_ends_with_it(quick: Served) -> None:
    session = await quick.open()
    ann = await member_key(quick, "ann")
    ticket = await ask_for_ticket(quick, ann.headers)
    nobody = without_token(quick)
    async with enter(quick, ann.headers) as page:
        cookie = cookie_of(page)
    path = f"/v1/sessions/{session}/events"
    async with (
        nobody.live(f"?ticket={ticket}") as by_ticket,
        nobody.live(Cookie=cookie, Origin=quick.url) as by_cookie,
        nobody.stream(path, Cookie=cookie) as events,
    ):
        await revoke(quick, ann)
        assert await by_ticket.closing() == LOST
        assert await by_cookie.closing() == LOST
        assert await events.rest() == []


@pytest.mark.spec("AUTH-3")
async def test_leaving_ends_the_streams_of_that_browser_alone(quick: Served) -> None:
    nobody = without_token(quick)
    async with enter(quick) as page, enter(quick) as other:
        mine, theirs = cookie_of(page), cookie_of(other)
        async with (
            nobody.live(Cookie=mine, Origin=quick.url) as live,
            nobody.live(Cookie=theirs, Origin=quick.url) as other_live,
        ):
            assert (await page.post("/v1/logout")).status_code == 204
            assert await live.closing() == LOST
            assert (await other_live.ask("stop", session="ses_no"))["code"] == "unknown_target"


@pytest.mark.spec("AUTH-3")
async def test_a_reader_that_takes_nothing_loses_its_stream_too(quick: Served) -> None:
    session = await quick.open("loud")
    ann = await member_key(quick, "ann")
    head = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1:{quick.port}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in ann.headers.items())
    before = _connections(quick)
    async with await quick.raw(receive_buffer=4096) as client:
        await client.send(f"{head}{fields}\r\n".encode())
        await client.head()
        (connection,) = _connections(quick) - before
        await quick.say(session, "shout 400")
        await suspend(quick)
        # The client has read nothing that could have told it: the server ends it alone.
        await quick.front.connections.wait_ended(connection)


def _connections(served: Served) -> set[str]:
    return {child.name for child in served.front.connections.snapshot().children}


@pytest.mark.spec("AUTH-3")
async def test_a_suspension_that_is_lifted_lets_in_again(quick: Served) -> None:
    await add_member(quick, "ann", "default")
    ann = await make_key(quick, member="ann")
    await suspend(quick)
    assert (await quick.client.get("/v1/sessions", headers=ann.headers)).status_code == 401
    assert (await quick.client.post("/v1/members/ann/resume")).json()["suspended"] is None
    assert (await quick.client.get("/v1/sessions", headers=ann.headers)).status_code == 200
    async with quick.live(**ann.headers) as live:
        assert (await live.ask("stop", session="ses_no"))["code"] == "unknown_target"


async def test_a_store_that_can_not_tell_ends_nothing(quick: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = await member_key(quick, "ann")
    asked = trio.Event()

    async def down(*_: object) -> None:
        asked.set()
        raise StoreDown("the store is not running")

    async with quick.live(**ann.headers) as live:
        with monkeypatch.context() as patch:
            patch.setattr(quick.runtime.store.access, "standing_of", down)
            await asked.wait()
        assert (await live.ask("stop", session="ses_no"))["code"] == "unknown_target"
