"""The console loaded anew after something has happened meanwhile: the event is forgotten, the target was moved, or is gone.

Not here: reloads in the middle of a turn (`test_browser_handoff`), the same of the client library (`test_client_reloads`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from callboard.storage.ops import PruneEvents
from callboard.storage.store import open_store
from callboard.tests.flows.browser_kit import Desk, browsing
from callboard.tests.flows.cli_kit import Serving
from callboard.tests.flows.front_team import HAND_OVER
from callboard.tests.flows.test_browser_handoff import AT, HANDED, at_desk, kill, served, settled

pytestmark = pytest.mark.browser


@pytest.mark.spec("HND-3", "HND-4")
async def test_a_reload_finds_in_the_result_what_is_in_no_log_any_more(tmp_path: Path) -> None:
    """ "A client that only reloads the channel (refresh, or the stream already closed) finds it", a day later as well, and once."""

    async def missed(desk: Desk, server: Serving, path: str) -> None:
        await desk.page.until(f"{AT} === '/'")
        (tmp_path / HAND_OVER).unlink(missing_ok=True)
        await desk.page.say(f"late {path}")
        await desk.page.shows(".entry.mine:last-child .stage", "working")
        await desk.page.go("about:blank")
        (tmp_path / HAND_OVER).touch()
        await server.until(
            "/", lambda kind, data: kind == "turn.completed" and data.get("handoff", {}).get("path") == path
        )

    async with browsing() as page:
        async with served(tmp_path) as server:
            desk = Desk(page, server)
            await desk.enter()
            await page.choose("/")
            await missed(desk, server, "/ops/deploy")
        await forget(tmp_path)
        async with served(tmp_path, server.port) as server:
            await page.go(server.url)
            await settled(page, "/ops/deploy")
            assert await page.js(HANDED) == [], "its event came from nowhere"
            # And one that is only in the transcript: of what is left of the log, all is about the turn that runs.
            await page.click("#go-back")
            await missed(desk, server, "/research/pricing")
            (tmp_path / HAND_OVER).unlink()
            await server.post("/", "late /ops/deploy/eu")
            await server.until("/", lambda kind, data: kind == "turn.started" and data["message_id"][:4] != "web-")
            await kill(server)
        await forget(tmp_path)
        async with served(tmp_path, server.port) as server:
            await page.go(server.url)
            await settled(page, "/research/pricing")
            (tmp_path / HAND_OVER).touch()
            # Acted upon: the way back leads to no second move, whatever the last result is.
            await page.click("#go-back")
            await page.until(f"{AT} === '/'")
            await settled(page, "/")


async def forget(folder: Path) -> None:
    """The log of a stopped server's sessions as it is a day later."""
    async with open_store(f"sqlite:///{folder}/callboard.db") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        assert await store.apply(PruneEvents(keep_seconds=-1)) > 0
        nursery.cancel_scope.cancel()


@pytest.mark.spec("HND-2", "HND-4", "NS-3")
async def test_it_leads_to_its_session_whatever_has_the_path_by_then_and_nowhere_if_that_is_gone(
    tmp_path: Path,
) -> None:
    """ "The client never resolves paths"; and permission is checked again at open."""
    async with at_desk(tmp_path) as desk:
        page, server = desk.page, desk.serving
        first = await server.session("/ops/deploy")
        for path, wanted in (("/ops/deploy", "/ops/ship"), ("/research/pricing", None)):
            (tmp_path / HAND_OVER).unlink(missing_ok=True)
            await page.say(f"late {path}")
            await page.shows(".entry.mine:last-child .stage", "working")
            await page.go("about:blank")
            (tmp_path / HAND_OVER).touch()
            await server.until(
                "/", lambda kind, data, path=path: bool(data.get("handoff", {}).get("path") == path and kind)
            )
            address = f"/v1/sessions/{await server.session(path)}"
            async with server.http as http:
                if wanted is not None:
                    assert (await http.patch(address, json={"path": wanted})).status_code == 200
                else:
                    assert (await http.delete(address)).status_code == 204
                taken = await http.post("/v1/sessions", json={"agent": "guide", "path": path})
                assert taken.status_code == 201, taken.text
            await page.go(server.url)
            if wanted is not None:
                await page.until(f"{AT} === {wanted!r}")
                assert (await page.js("location.hash")).endswith(first)
                await page.click("#go-back")
                await page.until(f"{AT} === '/'")
            else:
                await page.until(f"said.includes(`{path} can't be opened.`)")
                await settled(page, "/")
                assert all("404" in complaint for complaint in await page.complaints())
