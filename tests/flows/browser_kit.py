"""What the browser tests share: headless Chromium before the console of a real `callboard serve`.

Not here: any judgement; the team (browser_team). Selenium is imported when a browser is opened, so that the tests can be collected, and
deselected, without it.

Nothing sleeps: a page waits for what a test names with an observer of its own, and answers when it is there.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from callboard.tests.flows.cli_kit import Serving, serving

T = TypeVar("T")
SECONDS = 30
WIDE = (1280, 800)
PHONE = (390, 844)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_HELPERS = """
const all = (css) => [...document.querySelectorAll(css)].filter((node) => node.checkVisibility());
const text = (css) => all(css).map((node) => node.textContent).join("\\n");
"""
_UNTIL = (
    _HELPERS
    + """
const [holds, done] = [() => { try { return %s; } catch (error) { return false; } }, arguments[arguments.length - 1]];
const look = () => {
  const found = holds();
  if (!found) return;
  observer.disconnect();
  clearInterval(clock);
  done(found);
};
const observer = new MutationObserver(look);
observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
const clock = setInterval(look, 100);
look();
"""
)
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective + " " + event.blockedURI));
window.frames_heard = [];
window.frames_said = [];
const Native = window.WebSocket;
window.WebSocket = class extends Native {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", (message) => window.frames_heard.push(JSON.parse(message.data)));
  }
  send(data) { window.frames_said.push(JSON.parse(data)); super.send(data); }
};
"""
NETWORK = ("net::ERR_", "WebSocket connection to")
"""What the browser itself logs of a server that is away."""


class Page:
    """One tab. Every method waits until what it needs is there."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    async def do(self, work: Callable[..., T], *given: Any) -> T:
        return await trio.to_thread.run_sync(partial(work, *given))

    async def go(self, url: str) -> None:
        await self.do(self._driver.get, url)

    async def reload(self) -> None:
        await self.do(self._driver.refresh)

    async def js(self, expression: str, *given: Any) -> Any:
        """The value of an expression; `all(css)` and `text(css)` are what can be seen."""
        return await self.do(self._driver.execute_script, f"{_HELPERS} return {expression};", *given)

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true; returns it."""
        try:
            return await self.do(self._driver.execute_async_script, _UNTIL % expression)
        except Exception as error:
            shown = await self.js("document.body.innerText")
            raise AssertionError(f"never: {expression}\nshown was:\n{shown}") from error

    async def shows(self, css: str, words: str) -> None:
        """Wait until what can be seen at `css` has `words` in it."""
        await self.until(f"text({css!r}).includes({words!r})")

    async def click(self, css: str) -> None:
        await self.until(f"all({css!r}).some((node) => !node.disabled)")
        await self.do(lambda: self._driver.find_element("css selector", css).click())

    async def select(self, css: str, value: str) -> None:
        """Choose an option as a person does: the page is told."""
        choose = "((css, value) => { const box = document.querySelector(css); box.value = value; box.dispatchEvent(new Event('change')); })"
        await self.js(f"{choose}(...arguments)", css, value)

    async def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        await self.do(lambda: self._driver.switch_to.active_element.send_keys(*keys))

    async def say(self, content: str) -> None:
        """Send a message by the composer."""
        await self.until("all('#text').length")
        await self.do(lambda: self._driver.find_element("id", "text").send_keys(content, "\ue007"))

    async def choose(self, name: str) -> None:
        """Open the session of that name."""
        await self.until(f"all('.row-name').some((node) => node.textContent === {name!r})")
        await self.js(f"all('.row').find((row) => row.querySelector('.row-name').textContent === {name!r}).click()")
        await self.until(f"text('#conversation-title') === {name!r}")
        await self.until("!text('#transcript').includes('Loading')")

    async def transcript(self) -> list[list[str]]:
        """Who said what, as it is shown."""
        return await self.js(
            "all('.entry').map((node) => [node.querySelector('.who').textContent, node.querySelector('.text').textContent])"
        )

    async def new_tab(self, url: str) -> None:
        """Go on in a new tab."""
        await self.do(self._driver.switch_to.new_window, "tab")
        await self.go(url)

    async def tab(self, number: int) -> None:
        await self.do(lambda: self._driver.switch_to.window(self._driver.window_handles[number]))

    async def cdp(self, command: str, **given: Any) -> Any:
        return await self.do(self._driver.execute_cdp_cmd, command, given)

    async def at_each_start(self, script: str) -> None:
        """Run a script before any page's own."""
        await self.cdp("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def complaints(self) -> list[str]:
        """Errors and warnings in the browser's log since the last look, but for a server that is away."""
        log = await self.do(self._driver.get_log, "browser")
        return [
            entry["message"]
            for entry in log
            if entry["level"] in ("SEVERE", "WARNING") and not any(part in entry["message"] for part in NETWORK)
        ]


@attrs.frozen
class Desk:
    """A browser that has entered the console of a server."""

    page: Page
    serving: Serving

    async def enter(self, serving: Serving | None = None) -> None:
        """Use up a new console link."""
        served = serving or self.serving
        async with served.http as http:
            ticket = (await http.post("/v1/tickets", json={"kind": "console"})).json()["ticket"]
        await self.page.go(f"{served.url}/?ticket={ticket}")
        await self.page.until("document.body.dataset.kind")


def served_team(folder: Path, port: int = 0) -> Any:
    """A server with the browser tests' team."""
    return serving(folder, "--team", "callboard.tests.flows.browser_team:team", port=port)


@asynccontextmanager
async def browsing(size: tuple[int, int] = WIDE) -> AsyncIterator[Page]:
    """A fresh browser; at the end nothing in it may have complained."""
    driver = await trio.to_thread.run_sync(_open, size)
    page = Page(driver)
    await page.at_each_start(_WATCH)
    try:
        yield page
        assert await page.complaints() == []
        assert await page.js("window.violations") == []
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
            await trio.to_thread.run_sync(driver.quit)


@asynccontextmanager
async def console(folder: Path, size: tuple[int, int] = WIDE) -> AsyncIterator[Desk]:
    """A browser in the console of a server of its own."""
    async with served_team(folder) as served, browsing(size) as page:
        desk = Desk(page, served)
        await desk.enter()
        yield desk


def _open(size: tuple[int, int]) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*FLAGS, f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))
    driver.set_script_timeout(SECONDS)
    driver.set_page_load_timeout(SECONDS)
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return driver
