"""The files of the console as the server gives them: headers, caching, and what they may not contain."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest

from callboard.actors.edges.routes.console import ASSETS, FILES, FOLDER, PAGE, POLICY, PREFIX
from callboard.tests.flows.edge_kit import DEADLINE, Served

MARKUP = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "DOMParser",
    "setHTML",
)
"""Ways by which data would become markup or code."""


class Reader(HTMLParser):
    """Every tag of a page with its attributes, and whether text stood in a script or style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.inline += data.strip()


@pytest.mark.spec("OPS-1")
async def test_files_need_no_secret_and_are_asked_for_again_only_when_they_changed(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=DEADLINE) as stranger:
        for address in ASSETS:
            first = await stranger.get(address)
            assert first.status_code == 200, address
            assert first.content == FILES[address.removeprefix(PREFIX)].body
            assert first.headers["content-security-policy"] == POLICY
            assert first.headers["x-content-type-options"] == "nosniff"
            assert first.headers["cache-control"] == "no-cache"
            tag = first.headers["etag"]
            for field in (tag, f"W/{tag}", f'"other", {tag}', "*"):
                again = await stranger.get(address, headers={"If-None-Match": field})
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), field
            assert (await stranger.get(address, headers={"If-None-Match": '"other"'})).status_code == 200
            head = await stranger.head(address)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(first.content))
        for address in (PREFIX, f"{PREFIX}{PAGE}", f"{PREFIX}no.js", f"{PREFIX}../app.py", f"{PREFIX}%2e%2e/app.py"):
            assert (await stranger.get(address)).status_code in (401, 404), address


@pytest.mark.spec("OPS-1", "AUTH-1")
async def test_the_page_is_for_who_may_enter(served: Served) -> None:
    page = await served.client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert page.content == FILES[PAGE].body
    async with httpx.AsyncClient(base_url=served.url, timeout=DEADLINE) as stranger:
        answer = await stranger.get("/")
        assert answer.status_code == 401
        assert "callboard console" in answer.text
        assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.spec("OPS-1")
def test_the_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    reader = Reader()
    reader.feed(FILES[PAGE].body.decode())
    assert reader.inline == ""
    linked = set()
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href"):
            value = attributes.get(name)
            if value is not None and not value.startswith("#"):
                linked.add(value)
    assert linked <= set(ASSETS)


@pytest.mark.spec("OPS-1")
def test_scripts_import_only_each_other_and_make_no_markup_of_data() -> None:
    scripts = {name: file.body.decode() for name, file in FILES.items() if name.endswith(".js")}
    used = {"console.js"}
    for name, source in scripts.items():
        assert not [word for word in MARKUP if word in source], name
        imported = set(re.findall(r'^import .* from "\./([a-z]+\.js)";$', source, re.MULTILINE))
        assert len(imported) == len(re.findall(r"^import |import\(", source, re.MULTILINE)), name
        assert imported <= set(scripts), name
        used |= imported
        assert len(source.splitlines()) <= 400, name
    assert used == set(scripts), "a file that nothing loads"
    for name, file in FILES.items():
        assert b"http://" not in file.body.replace(b"http://www.w3.org/2000/svg", b""), name
        assert b"https://" not in file.body, name
    assert {path.name for path in FOLDER.iterdir()} == set(FILES), "a file that is not served"
