"""The console, and a browser's own EventSource and WebSocket, over a server that is killed: everything goes on by cursor (EVT-3)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from callboard.tests.flows.browser_kit import Desk, Page, browsing, served_team
from callboard.tests.flows.cli_kit import Serving

pytestmark = pytest.mark.browser
COUNTED = " ".join(map(str, range(1, 41)))
NO_WEBSOCKET = "window.WebSocket = class { constructor() { setTimeout(() => this.onclose?.()); } close() {} };"
SUBSCRIBED = "frames_said.filter((frame) => frame.type === 'subscribe')"
EVENTS = (
    "frames_heard.filter((frame) => frame.type === 'event' && frame.session === arguments[0]).map((frame) => frame.id)"
)


async def kill(served: Serving) -> None:
    served.command.signal(signal.SIGKILL)
    await served.command.end()


@pytest.mark.spec("OPS-1", "EVT-3", "EVT-4", "EVT-5", "RT-9")
async def test_a_server_killed_in_a_turn_gives_exactly_one_answer(tmp_path: Path) -> None:
    async with browsing() as page:
        async with served_team(tmp_path) as served:
            await Desk(page, served).enter()
            await page.choose("/")
            await page.say("count 40")
            await page.shows(".streaming .text", "1 2 3 4")
            await kill(served)
            await page.shows("#banner", "The server does not answer")
            assert await page.js("text('#connection')") == "Server gone"
            await page.say("echo meanwhile")
            await page.until("text('.entry:last-child .stage') === 'sending'")
        async with served_team(tmp_path, served.port) as again:
            await page.until(
                "text('.entries').includes('meanwhile') && all('.streaming').length === 0 && all('.entry').length === 4"
            )
            await page.until("all('#banner').length === 0 && text('#connection') === 'Live'")
            said = [
                ["operator", "count 40"],
                ["operator", "echo meanwhile"],
                ["front-desk", COUNTED],
                ["front-desk", "meanwhile"],
            ]
            assert await page.transcript() == said
            rows = await again.transcript("/")
            assert [entry["content"] for entry in rows] == [content for _, content in said]
            await resumed_by_cursor(page, await again.session("/"))
            await page.reload()
            await page.until("all('.entry').length === 4")
            assert await page.transcript() == said


async def resumed_by_cursor(page: Page, session: str) -> None:
    """The page's websocket asked for what was missing and for nothing else."""
    ids = await page.js(EVENTS, session)
    last = (await page.js(SUBSCRIBED))[-1]
    assert last["session"] == session
    assert last["after"] in ids, "it asked for what follows the last event that it had"
    live = ids[ids.index(last["after"]) :]
    assert live == list(range(live[0], live[0] + len(live)))


@pytest.mark.spec("OPS-1", "EVT-3")
async def test_what_was_sent_while_the_server_is_away_survives_a_reload(tmp_path: Path) -> None:
    async with browsing() as page:
        async with served_team(tmp_path) as served:
            await Desk(page, served).enter()
            await page.choose("/")
            # The answer to the first is lost on its way: the same id must go out again.
            await page.js(
                "(() => { const real = fetch; let first = true; window.fetch = async (...given) => {"
                " const answer = await real(...given);"
                " if (first && given[1]?.method === 'POST') { first = false; throw new TypeError('lost'); }"
                " return answer; }; })()"
            )
            await page.say("echo once")
            await page.shows(".entry.theirs .text", "once")
            await kill(served)
            await page.shows("#banner", "The server does not answer")
            await page.say("echo later")
        async with served_team(tmp_path, served.port) as again:
            await page.reload()
            await page.choose("/")
            await page.shows(".entry.theirs:last-child .text", "later")
            contents = [entry["content"] for entry in await again.transcript("/")]
            assert contents == ["echo once", "once", "echo later", "later"]
            assert await page.js("sessionStorage.getItem('callboard.outbox')") == "[]"


@pytest.mark.spec("OPS-1", "EVT-2")
async def test_without_websockets_the_console_follows_by_server_sent_events(tmp_path: Path) -> None:
    async with browsing() as page:
        await page.at_each_start(NO_WEBSOCKET)
        async with served_team(tmp_path) as served:
            await Desk(page, served).enter()
            await page.choose("/")
            await page.until("text('#connection') === 'Live'")
            await page.say("count 40")
            await page.shows(".streaming .text", "1 2 3 4")
            await kill(served)
            await page.shows("#banner", "The server does not answer")
        async with served_team(tmp_path, served.port):
            await page.until("text('.entry.mine .stage') === 'answered'")
            assert await page.transcript() == [["operator", "count 40"], ["front-desk", COUNTED]]


@pytest.mark.spec("EVT-3", "AUTH-1")
async def test_an_event_source_goes_on_where_it_was(tmp_path: Path) -> None:
    async with browsing() as page:
        async with served_team(tmp_path) as served:
            await Desk(page, served).enter()
            session = await served.session("/")
            await page.js(
                """((session) => {
                  window.seen = [];
                  window.source = new EventSource(`/v1/sessions/${session}/events`);
                  for (const kind of ["message.created", "turn.started", "attempt.claimed", "turn.token", "turn.completed",
                    "attempt.relinquished", "resync"]) source.addEventListener(kind, (event) => seen.push([Number(event.lastEventId), kind]));
                })(...arguments)""",
                session,
            )
            await served.post("/", "count 40")
            await page.until("seen.filter(([, kind]) => kind === 'turn.token').length > 3")
            await kill(served)
            await page.until("source.readyState === EventSource.CONNECTING")
        async with served_team(tmp_path, served.port) as again:
            await page.until("seen.some(([, kind]) => kind === 'turn.completed')")
            ids = [number for number, _ in await page.js("seen")]
            assert ids == list(range(1, len(ids) + 1))
            async with again.http as http:
                assert (await http.get(f"/v1/sessions/{session}")).json()["status"] == "idle"


@pytest.mark.spec("OPS-1", "EVT-2")
async def test_a_second_tab_and_a_reload_show_the_same(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        await Desk(page, served).enter()
        await page.choose("/")
        await page.say("echo one")
        await page.shows(".entry.theirs .text", "one")
        first = await page.js("location.href")
        await page.new_tab(first)
        await page.shows(".entry.theirs .text", "one")
        await page.say("count 40")
        await page.shows(".streaming .text", "1 2 3")
        await page.reload()
        # What this turn has said before the page was there is shown too.
        await page.until("text('.streaming .text').startsWith('1 2 3')")
        await page.until("all('.entry').length === 4 && all('.streaming').length === 0")
        shown = await page.transcript()
        await page.tab(0)
        await page.until("all('.entry').length === 4 && all('.streaming').length === 0")
        assert await page.transcript() == shown
        assert [content for _, content in shown] == ["echo one", "one", "count 40", COUNTED]


@pytest.mark.spec("AUTH-1")
async def test_who_signs_out_is_told_how_to_come_back(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        await Desk(page, served).enter()
        await page.choose("/")
        await page.js("fetch('/v1/logout', { method: 'POST' }).then(() => true)")
        await page.shows("#banner", "callboard console")
        assert await page.js("text('#connection')") == "Signed out"
        assert all("401" in complaint for complaint in await page.complaints())
        await page.reload()
        await page.shows("main", "callboard console")
        assert all("401" in complaint for complaint in await page.complaints())


@pytest.mark.spec("EVT-2")
async def test_sessions_that_are_changed_in_haste_are_followed_all_the_same(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        await Desk(page, served).enter()
        await page.until("all('.row').length === 6")
        # Each is left before the server has answered for it; the last one stays.
        await page.js(
            "(() => { for (let at = 0; at < 12; at += 1) { all('.row')[at % 6].click(); dispatchEvent(new Event('hashchange')); } })()"
        )
        await page.until("text('#conversation-title') === '/silent'")
        for name in ("/", "/ops/deploy"):
            await page.js(
                f"(() => {{ for (const row of [...all('.row')].reverse()) row.click(); all('.row')[{0 if name == '/' else 1}].click(); }})()"
            )
            await page.until(f"text('#conversation-title') === {name!r}")
            await page.say("count 20")
            await page.shows(".streaming .text", "1 2 3")
            await page.until("text('.stage') === 'answered'")
