"""The console for who hears it, for who sees little, in light and in dark, and for who wants nothing to move."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.tests.flows.browser_kit import Desk, Page, browsing, console, served_team

pytestmark = pytest.mark.browser
FAINT = """((ratio) => {
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
})(4.5)"""
HEARD = """
window.said = [];
addEventListener("DOMContentLoaded", () => {
  const node = document.getElementById("announcer");
  const heard = new MutationObserver(() => { if (node.textContent) said.push(node.textContent); });
  heard.observe(node, { childList: true, characterData: true, subtree: true });
});
"""


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
        assert (
            await page.js(
                "all('[aria-live], [role=log], [role=status], [role=alert]').filter((n) => n.closest('#transcript')).length"
            )
            == 0
        )
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
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_can_be_read_in_light_and_in_dark(tmp_path: Path, scheme: str) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        dark = await page.js(
            "getComputedStyle(document.body).colorScheme && matchMedia('(prefers-color-scheme: dark)').matches"
        )
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
