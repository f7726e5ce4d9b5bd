"""A handoff over the edges: replays with the same id, a reload finds it, navigation is noted, over restarts and from another process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard import Turn, client
from callboard.tests.flows.cli_kit import DEADLINE, Serving
from callboard.tests.flows.cli_kit import serving as serving_process
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.edge_readers import SeenEvent, event_of
from callboard.tests.flows.shared_kit import shared_store
from callboard.tests.flows.test_client import relay
from callboard.tests.flows.test_client_handoffs import told


async def guide(turn: Turn) -> str:
    """`PATH PATH …`: hands over to each, then says so."""
    for path in turn.text.split():
        await turn.tools.connect_user(path)
    return "Taking you there."


async def quiet(turn: Turn) -> None:
    """The same without a word."""
    await guide(turn)


AGENTS: dict[str, Any] = {"guide": guide, "quiet": quiet}


async def handed(served: Served, agent: str = "guide", content: str = "/ops/deploy") -> tuple[str, str]:
    """(session, turn) of a turn that has handed over."""
    for path in ("/ops/deploy", "/research/pricing"):
        await served.open("guide", path=path)
    session = await served.open(agent, path="/desk")
    return session, (await served.say(session, content))["turn_id"]


@pytest.mark.spec("HND-2", "EVT-2", "EVT-3")
async def test_it_comes_again_by_cursor_on_stream_and_websocket_with_the_same_id(
    tmp_path: Path, store_url: str
) -> None:
    """ "It replays through Last-Event-ID like any other event"; "the one-turn stream is the carrier"."""
    async with serving_runtime(tmp_path, agents=AGENTS, store=store_url) as served:
        session, turn = await handed(served)
        log = await served.log(session)
        (place,) = [place for place, (_, kind, _) in enumerate(log) if kind == "turn.handoff"]
        for cursor in (0, log[place][0] - 1):
            async with served.stream(f"/v1/sessions/{session}/events", last=cursor) as stream:
                assert await stream.events(len(log) - cursor) == log[cursor:]
            async with served.live() as live:
                await live.ask("subscribe", session=session, after=cursor)
                assert await live.events(len(log) - cursor) == log[cursor:]
        async with served.stream(f"/v1/turns/{turn}/events", last=log[place][0] - 1) as stream:
            assert await stream.rest() == log[place:], "the one-turn stream is its carrier"
        async with served.stream(f"/v1/sessions/{session}/events", last=log[place][0]) as stream:
            assert (await stream.event()) == log[place + 1], "and not once more behind its own id"
    path, last = f"/v1/sessions/{session}/events", log[place][0] - 1
    async with (
        serving_runtime(tmp_path, agents=AGENTS, store=store_url) as served,
        served.stream(path, last=last) as stream,
    ):
        assert await stream.events(len(log) - place) == log[place:], "nor after a restart under another one"


@pytest.mark.spec("HND-3")
async def test_a_reload_finds_the_last_one_in_the_transcript(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, agents=AGENTS) as served:
        session, _ = await handed(served, content="/ops/deploy /research/pricing")
        events = [(data["path"], number) for number, kind, data in await served.log(session) if kind == "turn.handoff"]
        assert [path for path, _ in events] == ["/ops/deploy", "/research/pricing"], "each has its event"
        entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
        target = (await served.runtime.desk.find(served.runtime.scope, "/research/pricing")).id
        assert [entry.get("handoff") for entry in entries] == [
            None,
            {"path": "/research/pricing", "channel_id": target, "event_id": events[-1][1]},
        ]
        assert (await served.log(session))[-1][2]["handoff"] == entries[-1]["handoff"]
        silent = await served.open("quiet", path="/silent")
        await served.say(silent, "/ops/deploy")
        last = (await served.client.get(f"/v1/sessions/{silent}/transcript")).json()["entries"][-1]
        assert (last["role"], last["content"]) == ("assistant", "Taking you to /ops/deploy.")
        assert last["handoff"]["path"] == "/ops/deploy"


@pytest.mark.spec("HND-5")
async def test_confirmation_is_said_where_the_path_wants_it(tmp_path: Path, store_url: str) -> None:
    async with serving_runtime(tmp_path, agents=AGENTS, store=store_url) as served:
        put = await served.client.put("/v1/policy", json={"prefix": "/ops", "confirm": True})
        assert put.status_code == 200
        session, _ = await handed(served, content="/research/pricing /ops/deploy")
        confirms = [data.get("confirm") for _, kind, data in await served.log(session) if kind == "turn.handoff"]
        assert confirms == [None, True]
        entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
        assert entries[-1]["handoff"]["confirm"] is True


@pytest.mark.spec("HND-4", "EVT-5")
async def test_navigate_notes_and_tells_the_newest_event_of_each_session(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, agents=AGENTS) as served:
        session, _ = await handed(served)
        target = (await served.runtime.desk.find(served.runtime.scope, "/ops/deploy")).id
        nameless = await served.open("guide")
        await served.say(nameless, "/ops/deploy")
        assert (await served.client.get("/v1/clients/tab-1")).status_code == 404
        async with served.live("?client=tab-1") as live:
            newest = (await live.ask("subscribe", session=nameless, after=10_000))["newest"]
            assert (await live.frame())["type"] == "resync"
            went = await live.ask("navigate", session=target)
            assert set(went) == {"type", "session", "frontiers"}
            assert (went["type"], went["session"]) == ("navigated", target)
            assert went["frontiers"][session] == (await served.log(session))[-1][0]
            assert went["frontiers"][target] == 0
            assert went["frontiers"][nameless] == newest, "what it follows is noted although it has no path"
            unknown = await live.ask("navigate", session="ses_nowhere")
            assert (unknown["type"], unknown["code"]) == ("error", "unknown_target")
            bad = await live.ask("navigate")
            assert (bad["type"], bad["code"]) == ("error", "invalid_field")
        noted = (await served.client.get("/v1/clients/tab-1")).json()
        assert {**noted, "at": None} == {
            "client": "tab-1", "session": target, "frontiers": went["frontiers"], "at": None,
        }  # fmt: skip
        # What is handed over from now on is above what was noted, and all that was before is not.
        await served.say(session, "/ops/deploy")
        ids = [number for number, kind, _ in await served.log(session) if kind == "turn.handoff"]
        assert ids[0] <= noted["frontiers"][session] < ids[1]
        async with served.live() as unnamed:
            refused = await unnamed.ask("navigate", session=target)
            assert (refused["type"], refused["code"], refused["session"]) == ("error", "unnamed_client", target)
        for other in ("tab-2", "a%20b", "x" * 65):
            assert (await served.client.get(f"/v1/clients/{other}")).status_code == 404


@pytest.mark.spec("HND-2", "HND-4", "RT-17")
async def test_another_process_has_the_same_events_the_same_result_and_the_same_navigation(tmp_path: Path) -> None:
    async with shared_store(tmp_path, size=2, agents=AGENTS) as shared:
        one, two = shared.all
        session, _ = await handed(one)
        log = await one.log(session)
        async with two.stream(f"/v1/sessions/{session}/events") as stream:
            assert await stream.events(len(log)) == log
        async with two.live("?client=tab-1") as live:
            await live.ask("subscribe", session=session, after=0)
            frames = [event_of(await live.frame()) for _ in log]
            assert frames == log
            went = await live.ask("navigate", session=session)
        entries = [(await served.client.get(f"/v1/sessions/{session}/transcript")).json() for served in (one, two)]
        assert entries[0] == entries[1]
        assert entries[0]["entries"][-1]["handoff"]["path"] == "/ops/deploy"
        assert (await one.client.get("/v1/clients/tab-1")).json()["frontiers"] == went["frontiers"]


@pytest.mark.spec("HND-2", "HND-3", "HND-4", "RT-9", "RT-17")
async def test_a_server_killed_between_the_handoff_and_its_turns_end_hands_over_once(
    tmp_path: Path, store_url: str
) -> None:
    """ "A handoff is acted on once … replays do not switch the user twice": the process of its turn is killed (-9) behind the handoff.

    On SQLite the next one is started then; on PostgreSQL it serves already, and takes the turn over.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(2 * DEADLINE))

        async def start() -> Serving:
            place = tmp_path / f"{len(servers)}"
            place.mkdir()
            given = ("--team", "callboard.tests.flows.handoff_team:team", "--store", store_url)
            return await stack.enter_async_context(serving_process(place, *given, CALLBOARD_LEASE_SECONDS="2"))

        servers: list[Serving] = []
        for _ in range(1 if store_url.startswith("sqlite") else 2):
            servers.append(await start())
        session, token = await servers[0].session("/"), await member_token(servers[0])
        path = await stack.enter_async_context(relay(servers[0]))
        front = await stack.enter_async_context(client.open_front(path.url, token))
        await told(front, client.Opened, by=client.By.START)
        post = await front.say("/ops/deploy /research/pricing")
        before = await seen(servers[-1], session, lambda event: event.data.get("path") == "/research/pricing")
        (holder,) = [data["holder"] for _, kind, data in before if kind == "attempt.claimed"]
        (struck,) = [server for server in servers if f".{server.pid}." in holder]
        path.lead_to(struck)
        assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
        await told(front, client.Offered)
        await front.back()
        await told(front, client.Opened, by=client.By.USER)
        struck.command.process.kill()
        await struck.command.end()
        if servers == [struck]:
            servers.append(await start())
        (other,) = [server for server in servers if server is not struck]
        path.lead_to(other)
        (other.folder / "let-go").touch()
        # Whatever else moved the user, or offered to, would fail this.
        ended = await told(front, client.Ended, message_id=post.message_id)
        assert (ended.show.whole, front.open.session) == ("Taking you there.", session)
        after = await seen(other, session, lambda event: event.kind == "turn.completed")
        answer = (await other.transcript("/"))[-1]
        pricing = await other.session("/research/pricing")
    assert after[: len(before)] == before, "what was seen comes again as it was, under the same ids"
    assert [kind for _, kind, _ in before].count("turn.handoff") == 2
    assert [kind for _, kind, _ in after[len(before) :]] == [
        "attempt.relinquished", "attempt.claimed", "turn.completed",
    ]  # fmt: skip
    assert after[-1][2]["attempt"] == 2
    handed = [number for number, kind, _ in before if kind == "turn.handoff"][-1]
    result = {"path": "/research/pricing", "channel_id": pricing, "event_id": handed}
    assert answer["handoff"] == after[-1][2]["handoff"] == result


async def member_token(server: Serving) -> str:
    """A member's token: any process of the store takes it."""
    async with server.http as http:
        assert (await http.post("/v1/members", json={"name": "ann", "project": "default"})).status_code == 201
        return (await http.post("/v1/tokens", json={"member": "ann"})).json()["token"]


async def seen(server: Serving, session: str, last: Callable[[client.LiveEvent], bool]) -> list[SeenEvent]:
    """All events of a session up to the one that `last` finds."""
    found: list[SeenEvent] = []
    with trio.fail_after(DEADLINE):
        async with client.connect(server.url, server.token_file.read_text().strip()) as board:
            async for event in board.subscribe(session):
                found.append((event.id, event.kind, event.data))
                if last(event):
                    break
    return found
