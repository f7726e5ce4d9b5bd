"""The console in a browser: sending, streaming, stopping, approving, requeueing, looking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callboard.tests.flows.browser_kit import console
from callboard.tests.flows.test_browser_senses import HEARD
from callboard.tests.unit.hostile_kit import TITLES

pytestmark = pytest.mark.browser
ISOLATED = """((css, title) => [...document.querySelectorAll(css)].some((node) => [node, ...node.querySelectorAll("*")].some((part) =>
  part.textContent === title && !part.firstElementChild && getComputedStyle(part).unicodeBidi === "isolate")))"""
"""Whether a text stands there, in an element of its own whose marks of direction hold inside it alone."""
HEBREW = "\u05d3\u05e1\u05e7 1"
COUNTED = " ".join(map(str, range(1, 31)))


@pytest.mark.spec("OPS-1", "EVT-5")
async def test_a_message_is_sent_and_its_answer_streams_in(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        await page.say("count 30")
        await page.until("/^1 2 3( \\d+)*$/.test(text('.streaming .text')) && !text('.streaming .text').endsWith('30')")
        assert await page.js("text('.entry.mine .stage')") == "working"
        await page.until("text('.entry.mine .stage') === 'answered'")
        assert await page.transcript() == [["operator", "count 30"], ["front-desk", COUNTED]]
        assert [entry["content"] for entry in await desk.serving.transcript("/")] == ["count 30", COUNTED]
        assert await page.js("all('.streaming').length") == 0
        assert await page.js("document.querySelector('#text').value") == ""


@pytest.mark.spec("OPS-1")
async def test_a_long_turn_is_stopped(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        assert await page.js("all('#stop').length") == 0
        await page.say("count 10000")
        await page.shows(".streaming .text", "1 2 3")
        await page.click("#stop")
        await page.until("text('.entry.mine .stage') === 'stopped'")
        assert (await page.transcript())[1][1].startswith("1 2 3")
        await page.until("all('#stop').length === 0")


@pytest.mark.spec("EVT-6")
@pytest.mark.parametrize(("button", "answer"), [("Approve", "released billing"), ("Deny", "not released")])
async def test_an_approval_is_answered(tmp_path: Path, button: str, answer: str) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/ops/release")
        await page.say("release billing")
        await page.shows(".question", "May release run?")
        assert '"service": "billing"' in await page.js("text('.question pre')")
        assert await page.js("text('.streaming .chip')") == "waits for you"
        await page.reload()
        await page.shows(".question", "May release run?")
        await page.click(".question button" + (".primary" if button == "Approve" else ":not(.primary)"))
        await page.shows(".entry.theirs:not(.streaming) .text", answer)
        assert await page.js("all('.question').length") == 0


@pytest.mark.spec("OPS-1")
async def test_a_failed_message_is_found_and_requeued(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/shy")
        await page.say("hello")
        await page.shows(".streaming .why", "I fail the first time")
        assert await page.js("text('.entry.mine .stage')") == "will be tried again"
        await page.click("nav.views a[data-view=inbox]")
        await page.shows(".card .stages", "waits for its next attempt")
        await page.click(".card .acting button")
        await page.shows(".card .stages", "failed")
        await page.shows(".card .why", "cancelled")
        await page.click("nav.views a[data-view=sessions]")
        await page.choose("/shy")
        await page.shows(".entry.mine .stage", "failed: cancelled")
        await page.click(".stage details summary")
        await page.shows(".stage .details-body", "I fail the first time")
        await page.click(".stage .acting button")
        await page.shows(".entry.theirs .text", "now I dare: hello")
        assert [entry[1] for entry in await page.transcript()] == ["hello", "hello", "now I dare: hello"]


@pytest.mark.spec("OPS-1")
async def test_the_inbox_is_filtered_by_stage_and_session(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page, served = desk.page, desk.serving
        for path, content in (("/", "echo one"), ("/ops/deploy", "echo two"), ("/", "hang 600"), ("/", "echo four")):
            await served.post(path, content)
        await page.click("nav.views a[data-view=inbox]")
        await page.until("all('.card').length === 4")
        for status, wanted in (("pending", "echo four"), ("processing", "hang 600"), ("failed", "")):
            await page.select("#inbox-status", status)
            await page.until(f"text('.card .text') === {wanted!r}")
        assert await page.js("text('#inbox-empty')") == "No messages here."
        await page.select("#inbox-status", "")
        await page.select("#inbox-session", await served.session("/ops/deploy"))
        await page.until("text('.card .text') === 'echo two'")


@pytest.mark.spec("OPS-1")
async def test_the_tree_shows_every_part_with_its_state(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.click("nav.views a[data-view=supervisors]")
        await page.shows("#tree-note", "all running")
        async with desk.serving.http as http:
            tree = (await http.get("/v1/tree")).json()
        shown = await page.js("text('.node-name').split('\\n')")
        assert {tree["name"], *(child["name"] for child in tree["children"])} <= set(shown)
        assert set(await page.js("all('.node .chip').map((chip) => chip.textContent)")) == {"running"}


@pytest.mark.spec("OPS-1")
async def test_what_is_written_is_shown_as_text_and_never_run(tmp_path: Path) -> None:
    hostile = '<img src=x onerror="document.title=1"><script>document.title=2</script>&lt;b&gt; \u202e'
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        await page.say(f"echo {hostile}")
        await page.shows(".entry.theirs .text", "onerror")
        assert (await page.transcript())[1][1] == hostile.rstrip()
        assert await page.js("document.querySelectorAll('main img, main script, main b').length") == 0


@pytest.mark.spec("OPS-1")
async def test_titles_are_shown_as_text_and_turn_nothing_around(tmp_path: Path) -> None:
    """ "Template syntax, markup, control characters, right-to-left marks … in … titles … stay inert" wherever the console names a session:
    in its list, above the transcript, where an offer comes from, on a card of the inbox, and to a screen reader.

    A sender's label can be one clean line alone, but of any letters; the supervisors' tree has no titles, and purposes are shown nowhere.
    """
    async with console(tmp_path) as desk:
        page = desk.page
        await page.at_each_start(HEARD)
        async with desk.serving.http as http:
            opened = [await http.post("/v1/sessions", json={"agent": "front-desk", "title": title}) for title in TITLES]
            ids = [answer.json()["id"] for answer in opened]
            shy = f"/v1/sessions/{await desk.serving.session('/shy')}"
            assert (await http.patch(shy, json={"title": TITLES[4]})).status_code == 200
        await page.reload()
        for session, title in zip(ids, TITLES, strict=True):
            await page.js("void (location.hash = `#/s/${arguments[0]}`)", session)
            await page.until(f"document.querySelector('#conversation-title').textContent === {json.dumps(title)}")
            for css in (f".row[href$='{session}']", "#conversation-title", "#where"):
                assert await page.js(f"{ISOLATED}(...arguments)", css, title), (css, title)
            shown = await page.js("document.title")
            assert (shown.isprintable(), shown.endswith(" · Callboard")) == (True, True), shown
            # Another client asks there: this one is offered it, and a screen reader is told in one line.
            asked = {"content": "take me to deploy", "message_id": f"other::{session[-32:]}"}
            async with desk.serving.http as http:
                assert (await http.post(f"/v1/sessions/{session}/messages", json=asked)).status_code == 202
            await page.shows("#offer", "offers to take you to /ops/deploy.")
            assert await page.js(f"{ISOLATED}(...arguments)", "#offer-text", title), title
            told = await page.until("said.find((text) => text.includes(' offers to take you to /ops/deploy.'))")
            assert (told.isprintable(), told.startswith("front-desk at ")) == (True, True), told
            await page.click("#offer-close")
            await page.js("void (said.length = 0)")
        shy_row = f".row[href$='{shy.rpartition('/')[2]}'] .row-about"
        assert await page.js(f"{ISOLATED}(...arguments)", shy_row, TITLES[4]), "it stands beside the agent's name"
        async with desk.serving.http as http:
            made = (await http.post("/v1/tokens", json={"project": "default", "label": HEBREW})).json()
            asked, theirs = {"content": "hello"}, {"Authorization": f"Bearer {made['token']}"}
            assert (await http.post(f"{shy}/messages", json=asked, headers=theirs)).status_code == 202
        await page.choose("/shy")
        await page.shows(".entry .text", "hello")
        for css, shown in (("#conversation-about", TITLES[4]), (".entry .who", HEBREW)):
            assert await page.js(f"{ISOLATED}(...arguments)", css, shown), css
        await page.click("nav.views a[data-view=supervisors]")
        await page.shows("#tree-note", "all running")
        names = await page.js("[...document.querySelectorAll('.node-name')].map((node) => node.textContent)")
        assert not [name for name in names for title in TITLES if title in name]
        await page.click("nav.views a[data-view=inbox]")
        await page.until(f"all('.card').length === {len(TITLES) + 1}")
        for session, title in zip(ids, TITLES, strict=True):
            assert await page.js(f"{ISOLATED}(...arguments)", f".card-head a[href$='{session}']", title), title
        options = await page.js(
            "[...document.querySelectorAll('#inbox-session option')].map((node) => node.textContent)"
        )
        assert all(option.isprintable() for option in options)
        assert await page.js("document.querySelectorAll('main img, main b, #offer img, #offer b').length") == 0


@pytest.mark.spec("OPS-1")
async def test_a_refused_message_can_be_mended(tmp_path: Path) -> None:
    async with console(tmp_path) as desk:
        page = desk.page
        await page.choose("/")
        await page.js("document.querySelector('#text').value = 'x'.repeat(20001)")
        await page.say("y")
        await page.shows(".entry.mine .stage", "not sent")
        await page.click(".entry.mine .stage button")
        await page.until("all('.entry').length === 0")
        assert await page.js("document.querySelector('#text').value.length") == 20002
        [refusal] = await page.complaints()
        assert "400" in refusal
