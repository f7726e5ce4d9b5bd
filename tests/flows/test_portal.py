"""The runtime in a thread, for hosts that do not run Trio (RT-16)."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import callboard
from callboard import Handoff, NotPermitted, Turn
from callboard.storage.model.errors import InvalidField, Unavailable, UnknownTarget


async def echo(turn: callboard.Turn) -> str:
    return f"heard {turn.text}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/portal.db"


@pytest.mark.spec("RT-16")
def test_threads_send_follow_and_read(url: str) -> None:
    with callboard.open_portal(url, agents={"echo": echo}) as portal:
        session = portal.open_session(agent="echo", path="/")
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda number: portal.send("/", str(number), message_id=f"m{number}"), range(40)))
            views = list(pool.map(lambda receipt: portal.wait(receipt.id), receipts))
        assert {view.outcome for view in views} == {"answered"}
        assert not portal.send("/", "7", message_id="m7").created
        with portal.follow(session.id, after=0) as events:
            ids = [next(events).id for _ in range(160)]
        assert ids == list(range(1, 161))
        answers = sorted(entry.content for entry in portal.read(session.id) if entry.role == "assistant")
        assert answers == sorted(f"heard {number}" for number in range(40))
        assert [listed.id for listed in portal.list_sessions()] == [session.id]
        assert portal.receipt("m7").status == "delivered"
        with pytest.raises(UnknownTarget):
            portal.stop("ses_none")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("callboard", "sqlite"))]
    with pytest.raises(Unavailable):
        portal.list_sessions()


@pytest.mark.spec("RT-16")
def test_an_asyncio_program_uses_it_through_to_thread(url: str) -> None:
    async def main() -> str:
        with callboard.open_portal(url, agents={"echo": echo}) as portal:
            session = await asyncio.to_thread(portal.open_session, agent="echo")
            receipt = await asyncio.to_thread(portal.send, session.id, "asyncio")
            await asyncio.to_thread(portal.wait, receipt.id)
            return (await asyncio.to_thread(portal.read, session.id))[-1].content

    assert asyncio.run(main()) == "heard asyncio"


def test_what_is_wrong_at_the_start_is_raised_in_the_opening_thread(url: str) -> None:
    with pytest.raises(InvalidField) as caught, callboard.open_portal(url, agents={"echo": 3}):
        pass
    assert caught.value.path == "agents.echo"


def test_an_error_of_the_block_ends_the_runtime_and_goes_on(url: str) -> None:
    def fails() -> None:
        with callboard.open_portal(url, agents={"echo": echo}) as portal:
            portal.open_session(agent="echo", path="/")
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with callboard.open_portal(url, agents={"echo": echo}) as again:
        assert again.list_sessions()[0].path == "/"


@pytest.mark.spec("NS-3", "NS-4")
def test_paths_and_rules(url: str) -> None:
    async def guide(turn: Turn) -> str:
        try:
            await turn.tools.agent_send("/ops/release", turn.text)
        except NotPermitted:
            await turn.tools.connect_user("/ops/release")
        return "done"

    with callboard.open_portal(url, agents={"guide": guide}) as portal:
        portal.open_session(agent="guide", path="/")
        deploy = portal.open_session(agent="guide", path="/ops/deploy")
        assert portal.rename_session("/ops/deploy", path="/ops/release", title="Release").id == deploy.id
        assert portal.send("/ops/deploy", "by its old path").session == deploy.id
        portal.set_policy(edge="handoff_only")
        portal.set_policy("/ops", confirm=True)
        portal.wait(portal.send("/", "please").id)
        handed = portal.read("/")[-1].handoff
        assert handed is not None
        assert handed.event_id > 0
        assert handed == Handoff("/ops/release", deploy.id, confirm=True, event_id=handed.event_id)
