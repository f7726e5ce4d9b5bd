"""Who may come in is one thing for all processes of a store: tickets, cookies, suspensions, wherever they are asked for or used."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from callboard.actors.edges.edge import Pace
from callboard.storage.model.access import Carrier, Purpose, digest
from callboard.storage.model.errors import CallboardError, Unauthorized
from callboard.storage.model.ids import new_id
from callboard.storage.ops import NoteUse, RedeemTicket
from callboard.tests.flows.access_kit import ask_for_ticket, browser, cookie_of, enter, member_key, without_token
from callboard.tests.flows.shared_kit import shared_store

QUICK = Pace(recheck=0.05, close=0.5)
LOST = (1008, "the credential is not valid any more")


@pytest.mark.spec("AUTH-3", "RT-17")
async def test_a_suspension_at_one_process_ends_the_streams_of_the_others(tmp_path: Path) -> None:
    async with shared_store(tmp_path, pace=QUICK) as shared:
        one, two, three = shared.all
        ann, session = await member_key(one, "ann"), await one.open()
        path = f"/v1/sessions/{session}/events"
        async with two.stream(path, **ann.headers) as events, three.live(**ann.headers) as live:
            await live.ask("subscribe", session=session)
            assert (await one.client.post("/v1/members/ann/suspend")).status_code == 200
            assert await events.rest() == []
            assert await live.closing() == LOST
        for served in shared.all:
            await served.refused("GET", path, 401, "unauthorized", headers=ann.headers)


@pytest.mark.spec("AUTH-1", "RT-17")
@pytest.mark.parametrize("purpose", list(Purpose), ids=str)
async def test_a_ticket_is_used_once_by_whichever_process_is_asked_first(tmp_path: Path, purpose: Purpose) -> None:
    async with shared_store(tmp_path) as shared:
        ticket = await ask_for_ticket(shared.all[0], kind=str(purpose))
        answers: list[object] = []

        async def use(n: int) -> None:
            cookie = digest(f"cookie {n}") if purpose is Purpose.CONSOLE else None
            op = RedeemTicket(digest(ticket), purpose, new_id("cok"), cookie, 60.0)
            try:
                answers.append(await shared.all[n % 3].runtime.store.apply(op))
            except CallboardError as refusal:
                answers.append(refusal)

        async with trio.open_nursery() as nursery:
            for n in range(9):
                nursery.start_soon(use, n)
        assert len(answers) == 9
        assert sum(isinstance(answer, Unauthorized) for answer in answers) == 8, answers


@pytest.mark.spec("AUTH-1", "RT-17")
async def test_a_browser_that_one_process_let_in_is_let_in_by_all(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        one, two, _ = shared.all
        async with enter(one) as page:
            cookie = cookie_of(page)
            name = cookie.partition("=")[0]
            assert str(one.port) not in name, "behind a proxy all of them are one to the browser"
            async with browser(two) as other:
                assert (await other.get("/v1/whoami", headers={"Cookie": cookie})).json()["kind"] == "operator"
            async with without_token(two).live(Cookie=cookie, Origin=two.url) as live:
                assert (await live.ask("stop", session="ses_no"))["code"] == "unknown_target"
            assert (await page.post("/v1/logout")).status_code == 204
        async with browser(two) as other:
            assert (await other.get("/v1/whoami", headers={"Cookie": cookie})).status_code == 401


@pytest.mark.spec("AUTH-1", "RT-17")
async def test_the_last_use_is_noted_from_all_processes_at_once(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        ann = await member_key(shared.all[0], "ann")

        async def come(n: int) -> None:
            served = shared.all[n % 3]
            assert (await served.client.get("/v1/sessions", headers=ann.headers)).status_code == 200
            await served.runtime.store.apply(NoteUse(ann.id, 0.0))

        async with trio.open_nursery() as nursery:
            for n in range(12):
                nursery.start_soon(come, n)
        store = shared.all[0].runtime.store
        standing = await store.access.standing(digest(ann.token), Carrier.BEARER, store.now())
        assert standing is not None
        assert standing.used is not None
        assert 0 <= store.now() - standing.used < 10
