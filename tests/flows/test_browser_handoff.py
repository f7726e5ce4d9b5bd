"""Handoffs in the console: followed once by the tab that asked, over reloads, restarts and replays, and nobody is dragged back (HND-4)."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from callboard.tests.flows.browser_kit import PHONE, WIDE, Desk, Page, browsing
from callboard.tests.flows.cli_kit import Serving, serving
from callboard.tests.flows.front_team import HAND_OVER, LET_GO
from callboard.tests.flows.test_browser_restart import NO_WEBSOCKET
from callboard.tests.flows.test_browser_senses import HEARD
from callboard.tests.unit.handoff_kit import RESULTS, RULES, TRANSCRIPTS

pytestmark = pytest.mark.browser
AT = "text('#conversation-title')"
OPENED = "said.filter((text) => text === 'Opened /ops/deploy').length"
CLIENT = "JSON.parse(sessionStorage.getItem('callboard.tab')).client"
HANDED = "frames_heard.filter((frame) => frame.kind === 'turn.handoff').map((frame) => `${frame.session} ${frame.id}`)"
SLOW_LOCKS = """
const request = navigator.locks.request.bind(navigator.locks);
navigator.locks.request = async (name, options, taken) => {
  await new Promise((resolve) => setTimeout(resolve, 500));
  options.signal?.throwIfAborted();
  return request(name, options, taken);
};
"""
TABLE = """(async (cases, results, transcripts, session) => {
  const { Rules, LastResult, handoffOf, transcriptResult } = await import("/console/handoffs.js");
  const faults = [];
  for (const [name, steps] of Object.entries(cases)) {
    const rules = new Rules("me");
    for (const [step, given, ...wanted] of steps) {
      if (step === "open") rules.open = given;
      else if (step === "navigate") rules.navigate(given);
      else if (step === "navigated") rules.navigated(given);
      else if (step === "follow") rules.followed(handoffOf(...given));
      else if (step === "settle") rules.settle(handoffOf(...given));
      else if (String(rules.decide(handoffOf(...given))) !== String(wanted)) faults.push([name, given, rules.decide(handoffOf(...given))]);
    }
  }
  for (const [name, [events, found, known]] of Object.entries(results)) {
    const last = new LastResult(session);
    for (const event of events) last.see(...event);
    if ((last.found?.id ?? null) !== found || last.known !== known) faults.push([name, last.found, last.known]);
    if (last.found && last.found.by !== "me") faults.push([name, last.found.by]);
  }
  for (const [name, [entries, wanted]] of Object.entries(transcripts)) {
    const found = transcriptResult(session, entries);
    if ((found?.id ?? null) !== wanted || (found && found.by !== "me")) faults.push([name, found]);
  }
  return [[cases, results, transcripts].map((table) => Object.keys(table).length), faults];
})(...arguments)"""


def served(folder: Path, port: int = 0) -> AbstractAsyncContextManager[Serving]:
    return serving(folder, "--team", "callboard.tests.flows.front_team:team", port=port)


@asynccontextmanager
async def at_desk(folder: Path, size: tuple[int, int] = WIDE) -> AsyncIterator[Desk]:
    """A browser whose tab has `/` open, and hears what a screen reader would."""
    async with served(folder) as server, browsing(size) as page:
        await page.at_each_start(
            HEARD.replace("heard.observe", "if (node) heard.observe")
        )  # there is a page without it, too
        desk = Desk(page, server)
        await desk.enter()
        await page.choose("/")
        yield desk


async def settled(page: Page, path: str, *, heard: str = "hello") -> None:
    """What is said now is heard at `path`, and nowhere else: everything before it has had its effect."""
    await page.until(f"{AT} === {path!r}")
    await page.say(heard)
    await page.until(f"all('.entry.theirs .text').some((node) => node.textContent === '{path} heard {heard}')")
    assert await page.js(AT) == path


@pytest.mark.spec("HND-4", "HND-5")
async def test_take_me_to_deploy_switches_the_open_session_once(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        await page.say("take me to deploy")
        await page.until(f"{AT} === '/ops/deploy' && {OPENED} === 1")
        assert await page.js("document.activeElement.id") == "text", "who was writing can go on writing"
        assert await page.js("[...document.querySelectorAll('#where li')].map((node) => node.textContent)") == [
            "/", "ops", "deploy",
        ]  # fmt: skip
        assert await page.js("all('#where a').map((node) => node.textContent)") == ["/"], "a level without a session"
        assert await page.js("document.title") == "/ops/deploy · Callboard"
        await settled(page, "/ops/deploy")
        await page.reload()
        await settled(page, "/ops/deploy", heard="again")
        assert [entry["content"] for entry in await desk.serving.transcript("/ops/deploy")][::2] == ["hello", "again"]


@pytest.mark.spec("HND-4")
async def test_what_the_target_has_handed_over_before_moves_nobody_on(tmp_path: Path) -> None:
    """A reload looks at the open session's last result; being handed over to a session does not, though it is newer than where the user went."""
    async with at_desk(tmp_path) as desk:
        page = desk.page
        await desk.serving.post("/ops/deploy", "to /research/pricing")
        await desk.serving.until("/ops/deploy", lambda kind, _: kind == "turn.completed")
        await page.say("take me to deploy")
        await page.until(f"{AT} === '/ops/deploy' && text('.entry.theirs').includes('Taking you there.')")
        for words in ("hello", "again"):
            await settled(page, "/ops/deploy", heard=words)
        assert await page.js("said.filter((text) => text.startsWith('Opened')).at(-1)") == "Opened /ops/deploy"


@pytest.mark.spec("HND-2", "HND-4")
async def test_a_replayed_stream_moves_nobody_twice(tmp_path: Path) -> None:
    """ "The client records the handoff's event id as handled so replays do not switch the user twice."

    The user is back by another handoff, which is no navigation: only that the event was handled keeps it from moving them again.
    """
    async with at_desk(tmp_path) as desk:
        page = desk.page
        await page.say("take me to deploy")
        await page.until(f"{AT} === '/ops/deploy' && {HANDED}.length === 1")
        await page.say("to /")
        await page.until(f"{AT} === '/' && {HANDED}.length === 3")
        first, back, again = await page.js(HANDED)
        assert first == again != back, "the session's stream was replayed"
        await page.reload()
        await page.until(f"{HANDED}.length > 0")
        assert await page.js(HANDED) == [first], "the page that was loaded anew has heard it too"
        await settled(page, "/")
        assert await page.js(OPENED) == 0
        assert await page.js("all('#offer').length") == 0


@pytest.mark.spec("HND-3", "HND-4")
async def test_a_reload_in_the_middle_finds_it(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        # The turn runs when the page is loaded again.
        await page.say("late /ops/deploy")
        await page.shows(".entry.mine .stage", "working")
        await page.reload()
        await page.shows(".entry.mine .stage", "working")
        (tmp_path / HAND_OVER).touch()
        await page.until(f"{AT} === '/ops/deploy' && {OPENED} === 1")
        # It is over before the page is there again.
        (tmp_path / HAND_OVER).unlink()
        await page.click("#go-back")
        await page.until(f"{AT} === '/'")
        await page.say("late /research/pricing")
        await page.shows(".entry.mine:last-child .stage", "working")
        await page.go("about:blank")
        (tmp_path / HAND_OVER).touch()
        await desk.serving.until(
            "/", lambda kind, data: kind == "turn.completed" and data["handoff"]["path"] == "/research/pricing"
        )
        await page.go(desk.serving.url)
        await settled(page, "/research/pricing")
        # And it has handed over, but has not ended yet.
        (tmp_path / HAND_OVER).unlink()
        await page.click("#go-back")
        await page.until(f"{AT} === '/'")
        await page.say("both /ops/deploy")
        await page.shows(".entry.mine:last-child .stage", "working")
        await page.go("about:blank")
        (tmp_path / HAND_OVER).touch()
        seen: list[str] = []
        await desk.serving.until("/", lambda kind, _: kind == "turn.handoff" and len(seen.append(kind) or seen) == 3)
        await page.go(desk.serving.url)
        await settled(page, "/ops/deploy")
        (tmp_path / LET_GO).touch()


@pytest.mark.spec("HND-2", "HND-4", "RT-9")
async def test_a_restart_of_the_server_in_the_middle(tmp_path: Path) -> None:
    async with browsing() as page:
        await page.at_each_start(HEARD)
        async with served(tmp_path) as server:
            await Desk(page, server).enter()
            await page.choose("/")
            await page.say("late /ops/deploy")
            await page.shows(".entry.mine .stage", "working")
            await kill(server)
            await page.shows("#banner", "The server does not answer")
        (tmp_path / HAND_OVER).touch()
        async with served(tmp_path, server.port) as server:
            await page.until(f"{AT} === '/ops/deploy' && {OPENED} === 1")
            # And cut off behind the handoff: the turn runs again, and its user is not moved a second time.
            await page.click("#go-back")
            await page.until(f"{AT} === '/'")
            await page.say("slow /ops/deploy")
            await page.until(f"{AT} === '/ops/deploy' && {OPENED} === 2")
            await page.click("#go-up")
            await page.until(f"{AT} === '/'")
            await kill(server)
            await page.shows("#banner", "The server does not answer")
        (tmp_path / LET_GO).touch()
        async with served(tmp_path, server.port):
            await page.until("text('.entry.mine:last-child .stage, .entry.theirs:last-child').includes('Taking you')")
            await settled(page, "/")
            assert await page.js(OPENED) == 2


async def kill(server: Serving) -> None:
    server.command.signal(signal.SIGKILL)
    await server.command.end()


@pytest.mark.spec("HND-4")
async def test_a_second_tab_is_another_client_and_is_asked(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        root = await page.js("location.href")
        first = await page.js(CLIENT)
        # Where the browser is slow to say whose an id is, a page that is loaded anew keeps its own all the same.
        await page.at_each_start(SLOW_LOCKS)
        await page.reload()
        await page.until(f"{AT} === '/' && text('#connection') === 'Live'")
        assert await page.js(CLIENT) == first
        await page.new_tab(root)
        await page.until(f"{AT} === '/'")
        # A copy of the first tab, with all that it keeps: as a browser duplicates one.
        await page.tab(0)
        await page.js("void window.open(location.href)")
        await page.until("true")
        ids = [first]
        for number in (1, 2):
            await page.tab(number)
            await page.until(f"{AT} === '/' && {CLIENT} !== {first!r}")
            ids.append(await page.js(CLIENT))
        assert len(set(ids)) == 3
        await page.tab(0)
        await page.say("to /ops/deploy")
        await page.until(f"{AT} === '/ops/deploy'")
        assert await page.js("frames_said.filter((frame) => frame.type === 'navigate').length") == 0, (
            "it went nowhere itself"
        )
        for number in (1, 2):
            await page.tab(number)
            await page.shows("#offer", "guide at / offers to take you to /ops/deploy.")
            await settled(page, "/", heard=f"in tab {number}")
        await page.click("#offer-open")
        await settled(page, "/ops/deploy")
        assert await page.js("all('#offer').length") == 0
        # One that is opened behind it begins with its user's own doing: what was before is void.
        await page.new_tab(root)
        await settled(page, "/", heard="afresh")
        assert await page.js("all('#offer').length") == 0
        await page.tab(0)


@pytest.mark.spec("HND-4")
async def test_a_user_who_went_elsewhere_is_offered_it_and_never_dragged_back(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        await page.say("late /ops/deploy")
        await page.shows(".entry.mine .stage", "working")
        await page.choose("/research/pricing")
        (tmp_path / HAND_OVER).touch()
        await page.shows("#offer", "guide at / offers to take you to /ops/deploy.")
        await page.until("said.includes('guide at / offers to take you to /ops/deploy.')")
        await settled(page, "/research/pricing")
        await page.click("#offer-close")
        await page.until("all('#offer').length === 0")
        # What was handed over while nobody listened is older than the way back there.
        await desk.serving.post("/", "to /ops/deploy")
        await desk.serving.until("/", lambda kind, data: kind == "turn.handoff" and data["message_id"][:4] != "web-")
        await page.choose("/")
        await settled(page, "/")
        await page.reload()
        await settled(page, "/", heard="again")
        # In another view there is no open session to follow from.
        await page.click("nav.views a[data-view=inbox]")
        await desk.serving.post("/", "to /ops/deploy")
        await page.shows("#offer", "/ops/deploy")
        assert await page.js("document.body.dataset.view") == "inbox"
        await page.keys("o")
        await settled(page, "/ops/deploy")


@pytest.mark.spec("HND-5")
async def test_a_path_that_wants_confirmation_asks_until_it_has_an_answer(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        async with desk.serving.http as http:
            assert (await http.put("/v1/policy", json={"prefix": "/ops", "confirm": True})).status_code == 200
        await page.say("to /ops/deploy")
        await page.shows("#offer", "guide at / offers to take you to /ops/deploy.")
        await page.until("text('.stage').includes('answered')")
        await page.reload()
        await page.shows("#offer-open", "Open /ops/deploy")
        await page.click("#offer-close")
        await page.reload()
        await settled(page, "/")
        assert await page.js("all('#offer').length") == 0
        await page.say("to /ops/deploy")
        await page.click("#offer-open")
        await settled(page, "/ops/deploy")


@pytest.mark.spec("HND-4", "HND-5", "OPS-1")
async def test_the_tree_has_every_level_and_back_and_up_go_by_key(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        page = desk.page
        rows = "all('.level, .row-name').map((node) => node.textContent)"
        assert await page.js(rows) == ["/", "/ops", "/ops/deploy", "/ops/deploy/eu", "/research", "/research/pricing"]
        assert await page.js("document.querySelector('#go-up').disabled && document.querySelector('#go-back').disabled")
        await page.choose("/ops/deploy/eu")
        await page.js("document.activeElement.blur()")
        for key, path in (("u", "/ops/deploy"), ("u", "/"), ("b", "/ops/deploy"), ("b", "/ops/deploy/eu"), ("b", "/")):
            await page.keys(key)
            await page.until(f"{AT} === {path!r}")
        await page.until("said.length === 5")
        assert await page.js("said.at(-1)") == "Opened /"
        await page.choose("/ops/deploy/eu")
        await page.js("all('#where a').find((node) => node.textContent === 'deploy').click()")
        await page.until(f"{AT} === '/ops/deploy'")
        # What the server was told is where the user went, each time and no more.
        went = await page.js("frames_said.filter((frame) => frame.type === 'navigate').length")
        assert went == 9


@pytest.mark.spec("HND-4")
async def test_without_websockets_the_same_is_followed(tmp_path: Path) -> None:
    async with served(tmp_path) as server, browsing() as page:
        await page.at_each_start(NO_WEBSOCKET)
        await Desk(page, server).enter()
        await page.choose("/")
        await page.until("text('#connection') === 'Live'")
        await page.say("to /ops/deploy")
        await settled(page, "/ops/deploy")
        await page.click("#go-back")
        await settled(page, "/")
        await page.reload()
        await settled(page, "/", heard="again")


@pytest.mark.spec("HND-4", "OPS-1")
async def test_on_a_phone_it_is_followed_and_nothing_sticks_out(tmp_path: Path) -> None:
    async with at_desk(tmp_path, PHONE) as desk:
        page = desk.page
        await page.say("to /ops/deploy/eu /research/pricing")
        await page.until(f"{AT} === '/ops/deploy/eu'")
        await page.shows("#offer", "/research/pricing")
        assert await page.js("document.scrollingElement.scrollWidth") == PHONE[0]
        small = "all('button, nav.views a').filter((node) => node.getBoundingClientRect().height < 24).length"
        assert await page.js(small) == 0
        await settled(page, "/ops/deploy/eu")


@pytest.mark.spec("HND-3", "HND-4", "HND-5")
async def test_the_rules_are_those_of_the_client_library(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as desk:
        count, faults = await desk.page.js(TABLE, json.loads(json.dumps(RULES)), RESULTS, TRANSCRIPTS, "ses_desk")
        assert (count, faults) == ([len(RULES), len(RESULTS), len(TRANSCRIPTS)], [])
