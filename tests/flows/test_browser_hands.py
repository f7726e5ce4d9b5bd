"""The console by keyboard alone, on a phone, for a screen reader, and with very much in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import callboard
from callboard.tests.flows.browser_kit import PHONE, Desk, Page, browsing, console, served_team

pytestmark = pytest.mark.browser
TAB, ENTER, ESCAPE, SHIFT, SPACE = "\ue004", "\ue007", "\ue00c", "\ue008", " "
MANY = 5_000
OUTLINED = "getComputedStyle(document.activeElement).outlineStyle !== 'none' && document.activeElement.matches(':focus-visible')"
FOCUSED = "document.activeElement.id || document.activeElement.dataset.view || document.activeElement.className"
FAINT = """
((ratio) => {
  const parts = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return found.length === 3 ? [...found, 1] : found; };
  const over = (top, under) => top.slice(0, 3).map((value, at) => value * top[3] + under[at] * (1 - top[3]));
  const ground = (node) => {
    if (!node) return [255, 255, 255];
    const own = parts(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, ground(node.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => value / 255).map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest(".sr, .skip, noscript, option, button:disabled")) continue;
    const under = ground(node);
    const [a, b] = [light(over(parts(getComputedStyle(node).color), under)), light(under)];
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < ratio) faint.push(node.className + ": " + walker.currentNode.data);
  }
  return faint;
})(4.5)
"""
HEARD = """
window.said = [];
addEventListener("DOMContentLoaded", () => {
  const node = document.getElementById("announcer");
  new MutationObserver(() => { if (node.textContent) said.push(node.textContent); }).observe(node, { childList: true, characterData: true, subtree: true });
});
"""


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
async def test_a_screen_reader_hears_an_answer_once_and_every_control_has_a_name(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        await page.at_each_start(HEARD)
        await Desk(page, served).enter()
        await page.choose("/ops/release")
        await page.say("release billing")
        await page.shows(".question", "May release run?")
        await nameless(page)
        await page.choose("/")
        await page.say("count 20")
        await page.until("text('.stage').includes('answered')")
        await page.until("said.some((text) => text.startsWith('front-desk: '))")
        counted = " ".join(map(str, range(1, 21)))
        assert await page.js("said") == ["Approval needed: may release run?", f"front-desk: {counted}"]
        assert await page.js("all('[aria-live], [role=log], [role=status], [role=alert]').filter((n) => n.closest('#transcript')).length") == 0
        for view in ("inbox", "supervisors"):
            await page.click(f"nav.views a[data-view={view}]")
            await page.until("all('.card, .node').length > 0")
            await nameless(page)
        landmarks = await roles(page)
        assert {"banner", "main", "navigation"} <= landmarks


async def roles(page: Page) -> set[str]:
    tree = await page.cdp("Accessibility.getFullAXTree")
    return {node["role"]["value"] for node in tree["nodes"] if not node["ignored"]}


async def nameless(page: Page) -> None:
    """No control is without a name."""
    tree = await page.cdp("Accessibility.getFullAXTree")
    controls = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "DisclosureTriangle", "region"}
    found = [node for node in tree["nodes"] if not node["ignored"] and node["role"]["value"] in controls]
    assert found
    assert [node["role"] for node in found if not node.get("name", {}).get("value", "").strip()] == []


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
        assert await page.js("document.querySelector('#transcript').scrollWidth <= document.querySelector('#transcript').clientWidth")
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
        return None

    async with callboard.open_runtime(f"sqlite:///{folder}/callboard.db", agents={"silent": silent}) as runtime:
        session = await runtime.open_session(path=path, agent="silent")
        async with trio.open_nursery() as nursery:
            for number in range(count - 1):
                nursery.start_soon(runtime.send, session.id, f"number {number}")
        await runtime.wait((await runtime.send(session.id, "the last")).message_id)


@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_can_be_read_in_light_and_in_dark(tmp_path: Path, scheme: str) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        dark = await page.js("getComputedStyle(document.body).colorScheme && matchMedia('(prefers-color-scheme: dark)').matches")
        assert dark == (scheme == "dark")
        await page.choose("/ops/release")
        await page.say("release billing")
        await page.shows(".question", "May release run?")
        assert await page.js(FAINT) == []
        await page.choose("/shy")
        await page.say("hello")
        await page.shows(".streaming .why", "I fail")
        assert await page.js(FAINT) == []
        await page.click("nav.views a[data-view=inbox]")
        await page.shows(".card .stages", "waits for its next attempt")
        await page.click(".card .acting button")
        await page.shows(".card .stages", "failed")
        assert await page.js(FAINT) == []
        await page.click("nav.views a[data-view=supervisors]")
        await page.shows("#tree-note", "all running")
        assert await page.js(FAINT) == []


@pytest.mark.spec("OPS-1")
async def test_nothing_moves_for_who_wants_no_motion(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        await page.say("count 10000")
        await page.shows(".streaming .text", "1 2")
        moving = "document.getAnimations().filter((animation) => animation.playState === 'running').length"
        assert await page.js(moving) > 0
        await page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        await page.until(f"{moving} === 0")
        await page.click("#stop")
        await page.until("text('.stage').includes('stopped')")
