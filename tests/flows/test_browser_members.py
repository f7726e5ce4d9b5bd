"""The console as a member sees it: its projects, and nothing that it may not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.tests.flows.browser_kit import Page, browsing, served_team
from callboard.tests.flows.cli_kit import Serving

pytestmark = pytest.mark.browser


async def enter_as(page: Page, served: Serving, member: str) -> None:
    async with served.http as http:
        ticket = (await http.post("/v1/tickets", json={"kind": "console", "member": member})).json()["ticket"]
    await page.go(f"{served.url}/?ticket={ticket}")
    await page.until("document.body.dataset.kind === 'member'")


async def add(served: Serving, name: str, project: str) -> None:
    async with served.http as http:
        answer = await http.post("/v1/members", json={"name": name, "project": project})
        assert answer.status_code in (200, 201), answer.text


@pytest.mark.spec("AUTH-1", "AUTH-3", "OPS-1")
async def test_a_member_takes_part_and_is_offered_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        await served.post("/silent", "echo waits")
        async with served.http as http:
            project = (await http.get("/v1/whoami")).json()["project"]
        await add(served, "ann", project)
        await enter_as(page, served, "ann")
        assert await page.js("all('nav.views a').map((node) => node.textContent)") == ["Sessions", "Inbox"]
        await page.choose("/")
        await page.say("echo hello")
        await page.shows(".entry.theirs .text", "hello")
        assert await page.transcript() == [["ann", "echo hello"], ["front-desk", "hello"]]
        await page.choose("/ops/release")
        await page.say("release billing")
        await page.shows(".question", "May release run?")
        assert await page.js("all('.question button').length") == 0
        async with served.http as http:
            assert (await http.post("/v1/members/ann/suspend")).status_code == 200
        await page.shows("#banner", "You are signed out")
        assert all("401" in complaint for complaint in await page.complaints())


@pytest.mark.spec("AUTH-2", "OPS-1")
async def test_a_member_of_two_projects_looks_at_one_at_a_time(tmp_path: Path) -> None:
    async with browsing() as page, served_team(tmp_path) as served:
        async with served.http as http:
            project = (await http.get("/v1/whoami")).json()["project"]
            await add(served, "bob", project)
            await add(served, "bob", "lab")
            headers = {"Callboard-Project": "lab"}
            answer = await http.post("/v1/sessions", json={"agent": "front-desk", "path": "/bench"}, headers=headers)
            assert answer.status_code == 201, answer.text
        await enter_as(page, served, "bob")
        await page.until("all('.row').length > 0")
        await page.select("#project", "lab")
        await page.until("text('.row-name') === '/bench'")
        await page.choose("/bench")
        await page.until("text('#connection') === 'Live'")
        await page.say("count 20")
        await page.shows(".streaming .text", "1 2 3")
        await page.until("text('.stage') === 'answered'")
        assert await page.js("frames_heard.some((frame) => frame.kind === 'turn.token')"), (
            "it did not come over the websocket"
        )
        await page.select("#project", project)
        await page.until("text('.row-name').includes('/ops/deploy')")
