"""The console by keyboard alone, on a phone, and with very much in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import callboard
from callboard.tests.flows.browser_kit import PHONE, console

pytestmark = pytest.mark.browser
TAB, ENTER, ESCAPE, SHIFT, SPACE = "\ue004", "\ue007", "\ue00c", "\ue008", " "
MANY = 5_000
OUTLINED = "getComputedStyle(document.activeElement).outlineStyle !== 'none' && document.activeElement.matches(':focus-visible')"
FOCUSED = "document.activeElement.id || document.activeElement.dataset.view || document.activeElement.className"


@pytest.mark.spec("OPS-1")
async def test_everything_can_be_done_by_keyboard(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.until("text('#conversation-title') === '/'")
        await page.keys("c")
        await page.until("document.activeElement.id === 'text'")
        await page.keys("echo two", SHIFT + ENTER, SHIFT, "lines", ENTER)
        await page.shows(".entry.theirs .text", "two\nlines")
        await page.keys("count 10000", ENTER)
        await page.shows(".streaming .text", "1 2")
        await page.keys("x")
        assert await page.js("document.querySelector('#text').value") == "x", "a shortcut acted while a person wrote"
        await page.keys(ESCAPE)
        await page.until("document.activeElement.id === 'transcript'")
        await page.keys("x")
        await page.until("text('.stage').includes('stopped')")
        await page.keys("j")
        await page.until("text('#conversation-title') === '/ops/deploy'")
        await page.keys("k")
        await page.until("text('#conversation-title') === '/'")
        await page.keys("2")
        await page.until("all('.card').length === 2 && document.activeElement.id === 'inbox-heading'")
        await page.keys("3")
        await page.until("all('.node').length > 5 && document.activeElement.id === 'supervisors-heading'")
        await page.keys("?")
        await page.until("document.querySelector('#help').open")
        await page.keys("1")
        await page.keys(ESCAPE)
        await page.until("!document.querySelector('#help').open && location.hash === '#/supervisors'")
        await page.keys("f")
        await page.until("document.activeElement.id === 'session-filter'")
        await page.keys("pri")
        await page.until("text('.row-name') === '/research/pricing'")


@pytest.mark.spec("OPS-1")
async def test_tab_reaches_all_in_the_order_of_the_page_and_is_seen(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.until("text('#conversation-title') === '/'")
        await page.until("all('.row').length === 6")
        order: list[str] = []
        while len(order) < 40 and (not order or order[-1] != "send"):
            await page.keys(TAB)
            order.append(await page.js(FOCUSED))
            assert await page.js(OUTLINED), f"{order[-1]} has the focus and does not show it"
        top = ["skip", "sessions", "inbox", "supervisors", "help-open", "session-filter"]
        assert order == [*top, *["row"] * 6, "transcript", "text", "send"]


@pytest.mark.spec("OPS-1")
async def test_single_keys_can_be_turned_off(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.until("text('#conversation-title') === '/'")
        await page.click("#help-open")
        await page.click("#keys-on")
        await page.click("#help-close")
        await page.keys("2")
        await page.reload()
        await page.until("text('#conversation-title') === '/'")
        await page.keys("2")
        assert await page.js("document.body.dataset.view") == "sessions"


@pytest.mark.spec("OPS-1")
async def test_what_was_begun_is_there_again(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        await page.keys("c")
        await page.until("document.activeElement.id === 'text'")
        await page.keys("half a tho")
        await page.choose("/shy")
        assert await page.js("document.querySelector('#text').value") == ""
        await page.choose("/")
        assert await page.js("document.querySelector('#text').value") == "half a tho"


@pytest.mark.spec("OPS-1")
async def test_a_phone_shows_one_thing_at_a_time_and_nothing_sticks_out(tmp_path: Path) -> None:
    wide = "document.scrollingElement.scrollWidth"
    async with console(tmp_path, PHONE) as desk:
        page = desk.page
        await desk.serving.post("/", f"echo {'x' * 300} and {'words ' * 60}")
        await page.until("all('.row').length === 6 && all('#conversation').length === 0")
        assert await page.js(wide) == PHONE[0]
        await page.choose("/")
        await page.shows(".entry.theirs .text", "words")
        assert await page.js("all('.rail').length") == 0
        assert await page.js(wide) == PHONE[0]
        assert await page.js(
            "document.querySelector('#transcript').scrollWidth <= document.querySelector('#transcript').clientWidth"
        )
        await page.click("#back")
        await page.until("all('.rail').length === 1 && all('#conversation').length === 0")
        for view in ("inbox", "supervisors"):
            await page.click(f"nav.views a[data-view={view}]")
            await page.until("all('.card, .node').length > 0")
            assert await page.js(wide) == PHONE[0]
        small = "all('button, nav.views a').filter((node) => node.getBoundingClientRect().height < 24).length"
        assert await page.js(small) == 0


@pytest.mark.spec("OPS-1")
async def test_a_transcript_of_thousands_is_shown_in_part_and_stays_quick(tmp_path: Path) -> None:
    await fill(tmp_path, "/silent", MANY)
    async with console(tmp_path) as desk:
        page = desk.page
        await page.until("all('.row').length === 6")
        await page.choose("/silent")
        await page.shows("#transcript .more", f"earlier of {MANY - 150:,}")
        assert await page.js("document.querySelectorAll('.entry').length") == 150
        await page.until("text('.entry:last-child .text') === 'the last'")
        at = "document.querySelector('.entry[data-seq=\"4851\"]').getBoundingClientRect().top"
        await page.js("(() => { document.querySelector('#transcript').scrollTop = 0; })()")
        before = await page.js(at)
        await page.click("#transcript .more")
        await page.until("document.querySelectorAll('.entry').length === 350")
        assert abs(await page.js(at) - before) < 60
        await page.say("one more")
        await page.until("text('.entry:last-child .text') === 'one more'")
        assert await page.js("document.querySelectorAll('.entry').length") <= 351


async def fill(folder: Path, path: str, count: int) -> None:
    """A session with so many messages, all delivered; the last one says so."""

    async def silent(turn: callboard.Turn) -> None:
        while await turn.steered():
            pass

    async with callboard.open_runtime(f"sqlite:///{folder}/callboard.db", agents={"silent": silent}) as runtime:
        session = await runtime.open_session(path=path, agent="silent")
        async with trio.open_nursery() as nursery:
            for number in range(count - 1):
                nursery.start_soon(runtime.send, session.id, f"number {number}")
        await runtime.wait((await runtime.send(session.id, "the last")).message_id)
