"""A reload decides from the last result: "a client that only reloads the channel finds it", also when the event is in no log any more.

One process with one runtime, on both databases. Not here: reloads while the event is there (`test_client_handoffs`), the console's
(`test_browser_reload`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from callboard import Tuning, Turn, client
from callboard.storage.ops import PruneEvents
from callboard.tests.flows.edge_kit import Served
from callboard.tests.flows.test_client_handoffs import Gates, echoed, front_of, served_by, told


@attrs.define
class Desks(Gates):
    """`stay` works until it may end, and `silent` ends, without a word of it."""

    stayed: trio.Event = attrs.field(factory=trio.Event)

    async def guide(self, turn: Turn) -> str | None:
        if turn.text == "silent":
            return None
        if turn.text == "stay":
            await self.stayed.wait()
            return "Stayed."
        return await super().guide(turn)


@asynccontextmanager
async def missed(desks: Desks, folder: Path, url: str, memory: client.InMemory) -> AsyncIterator[Served]:
    """A server whose desk has handed over while the client was away, and has forgotten the event since."""
    async with served_by(desks, folder, store=url, tuning=Tuning(stop_grace_seconds=0.1)) as served:
        async with front_of(served, memory=memory) as front:
            post = await front.say("late /ops/deploy")
        desks.hand_over.set()
        desks.end.set()
        await served.runtime.wait(post.message_id)
        await forget(served)
        yield served


async def forget(served: Served) -> None:
    """The log as it is a day later."""
    await served.runtime.store.apply(PruneEvents(keep_seconds=-1))
    desk = await served.runtime.desk.find(served.runtime.scope, "/")
    assert "turn.handoff" not in [kind for _, kind, _ in await served.log(desk.id)]


@pytest.mark.spec("HND-3", "HND-4", "EVT-3")
async def test_after_the_event_is_forgotten_a_reload_finds_the_handoff_in_the_result_and_acts_once(
    tmp_path: Path, store_url: str
) -> None:
    memory = client.InMemory()
    async with missed(Desks(), tmp_path, store_url, memory) as served:
        assert memory.kept is not None
        desk = memory.kept.open
        async with front_of(served, None, memory) as front:
            opened = await told(front, client.Opened, by=client.By.HANDOFF)
            assert opened.place.path == "/ops/deploy"
            assert opened.handoff is not None
            assert (opened.handoff.session, opened.handoff.by) == (desk, front.client)
        # As if it had been kept before the user was moved: the same id, and it was acted upon.
        memory.save(attrs.evolve(memory.kept, open=desk))
        async with front_of(served, None, memory) as front:
            assert await echoed(front) == "/ heard hello"


@pytest.mark.spec("HND-3", "HND-4")
@pytest.mark.parametrize("since", ["nothing", "silent", "stopped"])
async def test_where_the_log_has_no_result_any_more_the_transcript_has_it(
    tmp_path: Path, store_url: str, since: str
) -> None:
    """The last result is the one within the day: a turn that has ended since, without a word, is seen by its message."""
    memory, desks = client.InMemory(), Desks()
    async with missed(desks, tmp_path, store_url, memory) as served:
        assert memory.kept is not None
        desk = memory.kept.open or ""
        if since == "silent":
            await served.say(desk, "silent")
        elif since == "stopped":
            post = await begun(served, desk)
            assert (await served.client.post(f"/v1/sessions/{desk}/stop")).status_code == 202
            await served.runtime.wait(post)
        ended = (await served.log(desk))[-1][0]
        post = await begun(served, desk)
        await forget(served)
        page = await served.runtime.store.reads.events(served.runtime.scope, desk, after=0)
        assert page.floor > ended, "no reader of the log is told of a result"
        entries = (await served.client.get(f"/v1/sessions/{desk}/transcript")).json()["entries"]
        assert [entry for entry in entries if entry["role"] == "assistant"][-1]["handoff"]["path"] == "/ops/deploy"
        async with front_of(served, None, memory) as front:
            if since == "nothing":
                assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
            desks.stayed.set()
            assert await echoed(front) == ("/ops/deploy" if since == "nothing" else "/") + " heard hello"
        await served.runtime.wait(post)


async def begun(served: Served, desk: str) -> str:
    """The message of a turn that has begun to `stay`."""
    newest = (await served.log(desk))[-1][0]
    post = await served.post(desk, "stay")
    async with served.runtime.follow(desk, after=newest) as feed:
        while (await anext(feed)).kind != "attempt.claimed":
            pass
    return post["message_id"]


@pytest.mark.spec("HND-4")
@pytest.mark.parametrize("how", ["went elsewhere", "is not known any more"])
async def test_of_a_user_who_has_moved_on_the_result_pulls_nobody_back(
    tmp_path: Path, store_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "A handoff older than the user's last explicit navigation is ignored", and what can't be known to be newer is as well."""
    memory = client.InMemory()
    async with missed(Desks(), tmp_path, store_url, memory) as served:
        if how == "went elsewhere":
            async with front_of(served, "/research/pricing", memory) as front:
                await front.navigate("/")
        else:
            monkeypatch.setattr("callboard.storage.handlers.naming.CLIENTS_MOST", 1)
            async with front_of(served, "/research/pricing"):
                assert (await served.client.get(f"/v1/clients/{memory.kept and memory.kept.client}")).status_code == 404
        async with front_of(served, None, memory) as front:
            assert front.open.path == "/"
            assert await echoed(front) == "/ heard hello"
            assert memory.kept is not None
            assert memory.kept.handled == (), "it was not handled, it is older"
