"""A person walks from desk to desk, as the source document (001, "Session namespace and handoff") draws and rules it, by its words.

With real processes: on PostgreSQL two at once, of which the member's client knows only the one that runs none of the turns; on SQLite one
that is killed (-9) and started again between two steps of each walk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard import client
from callboard.actors.client.handoffs import handoff_of, post_id
from callboard.tests.flows.cli_kit import Here
from callboard.tests.flows.desk_kit import Desks, desks_on
from callboard.tests.flows.test_client_handoffs import told

ROOT, DEPLOY, PRICING = "/", "/ops/deploy", "/research/pricing"


@pytest.fixture
async def desks(tmp_path: Path, store_url: str) -> AsyncIterator[Desks]:
    async with desks_on(store_url, tmp_path) as opened:
        yield opened


@pytest.mark.spec("HND-1", "HND-2", "HND-3", "HND-4", "HND-5", "EVT-2", "EVT-3", "RT-17")
async def test_sequence_diagram_take_me_to_deploy(desks: Desks) -> None:
    """Each edge of the diagram in its order, and what the document says of it."""
    desk, deploy = await desks.at(ROOT), await desks.at(DEPLOY)
    memory = client.InMemory()
    async with desks.voice(memory) as voice:
        assert voice.open.session == desk
        # U->>C: "take me to deploy". C->>S: message in open session.
        post = await voice.say("take me to deploy")
        opened = await told(voice, client.Opened, by=client.By.HANDOFF)
        assert (await told(voice, client.Ended, message_id=post.message_id)).show.whole == "Taking you to deploy."
        log = await desks.log(desk)
        turn = (await desks.ask("GET", f"/v1/messages/{post.message_id}"))["turn_id"]
        kinds = [kind for _, kind, _ in log]
        assert kinds == [
            "message.created", "turn.started", "attempt.claimed", "tool.call", "tool.result", "turn.handoff", "turn.completed",
        ]  # fmt: skip
        created, _, claimed, call, result, handed, completed = [data for _, _, data in log]
        assert (created["content"], created["message_id"]) == ("take me to deploy", post.message_id)
        # S->>A: turn.
        assert f".{desks.far.pid}." in claimed["holder"]
        # A->>S: tool.call connect_user(/ops/deploy), "committed as tool.call and tool.result, keyed by action id".
        assert (call["tool"], call["arguments"]) == ("connect_user", {"path": DEPLOY})
        assert result["action_id"] == call["action_id"]
        assert result["result"] == {"ok": {"status": "recorded", "path": DEPLOY, "channel_id": deploy}}
        # S-->>C: turn.handoff /ops/deploy (SSE), "on the one-turn SSE stream", which "replays through Last-Event-ID".
        assert {name: handed[name] for name in ("path", "channel_id", "from_path")} == {
            "path": DEPLOY, "channel_id": deploy, "from_path": ROOT,
        }  # fmt: skip
        await desks.strike()
        at = kinds.index("turn.handoff")
        for last in (log[at - 1][0], log[at][0]):
            async with desks.stream(f"/v1/turns/{turn}/events", last) as carrier:
                assert await carrier.rest() == [event for event in log if event[0] > last]
        # C->>C: open /ops/deploy; voice follows.
        assert (opened.place.session, opened.place.path, voice.open) == (deploy, DEPLOY, opened.place)
        assert opened.cue == "Now at deploy."
        next_post = await voice.say("echo is it up?")
        assert (await told(voice, client.Ended, message_id=next_post.message_id)).show.whole == "is it up?"
    assert await desks.said(deploy) == ["echo is it up?", "is it up?"]
    assert await desks.said(desk) == ["take me to deploy", "Taking you to deploy."]
    # "A client that only reloads the channel (refresh) finds it", and "replays do not switch the user twice".
    (event_id,) = [number for number, kind, _ in log if kind == "turn.handoff"]
    assert completed["handoff"] == {"path": DEPLOY, "channel_id": deploy, "event_id": event_id}
    async with desks.voice(client.InMemory(client.Kept(voice.client, desk))) as reloaded:
        assert (await told(reloaded, client.Opened, by=client.By.HANDOFF)).place.session == deploy
    async with desks.voice(memory) as again:
        assert again.open.session == deploy
        await again.navigate(ROOT)
        await told(again, client.Opened, by=client.By.USER)
        back = await again.say("echo back")
        await told(again, client.Ended, message_id=back.message_id)
        assert again.open.session == desk


@pytest.mark.spec("HND-2", "HND-4", "EVT-3", "RT-17")
async def test_the_one_turn_stream_is_the_carrier(desks: Desks) -> None:
    """ "No socket is added. The one-turn stream is the carrier": a client that has nothing else acts, once, over a stream that breaks off."""
    desk, deploy = await desks.at(ROOT), await desks.at(DEPLOY)
    rules = client.Rules("plain", opened=desk)
    post = await desks.post(desk, "take me to deploy", post_id("plain"))
    carrier = f"/v1/turns/{post['turn_id']}/events"
    async with desks.stream(carrier) as stream:
        seen = await stream.until("tool.result")
    await desks.strike()
    async with desks.stream(carrier, seen[-1][0]) as stream:
        number, kind, data = await stream.event() or (0, "", {})
        assert kind == "turn.handoff", "exactly what was missed"
        handoff = handoff_of(desk, number, data)
        assert (handoff.path, rules.decide(handoff).verdict) == (DEPLOY, client.Verdict.FOLLOW)
        rules.followed(handoff)
        assert [kind for _, kind, _ in await stream.rest()][-1] == "turn.completed"
    assert rules.open is not None
    await desks.post(rules.open, "echo here", post_id("plain"))
    assert (await desks.log(deploy))[-1][2]["content"] == "here"
    for server in desks.all:
        async with desks.stream(carrier, server=server) as stream:
            replayed = [handoff_of(desk, n, data) for n, kind, data in await stream.rest() if kind == "turn.handoff"]
        assert replayed == [handoff], "the same in every process"
        assert rules.decide(handoff) == client.Decision(client.Verdict.IGNORE, client.Why.HANDLED)


@pytest.mark.spec("HND-4", "NS-3", "RT-17")
async def test_voice_is_locked_to_the_open_session_and_an_unrouted_one_starts_at_the_root(
    tmp_path: Path, store_url: str
) -> None:
    """ "There is no per-utterance routing. Never infer at speech time which bot a line is for": the same words go to whichever is open.

    Also when the process that has led the user there is no more. Nobody has opened the root of this project, which "is where an unrouted
    conversation starts".
    """
    words = "echo deploy, tell the bot at /research/pricing that front-desk is here"
    async with desks_on(store_url, tmp_path, "shop") as desks, desks.voice(client.InMemory()) as voice:
        assert (voice.open.path, voice.open.agent) == (ROOT, "front-desk")
        places = {ROOT: voice.open.session, DEPLOY: "", PRICING: ""}
        for path, bot in ((DEPLOY, "deploy"), (PRICING, "pricing")):
            places[path] = await desks.open(path, bot)

        async def said() -> None:
            post = await voice.say(words)
            ended = await told(voice, client.Ended, message_id=post.message_id)
            assert (ended.place, ended.show.whole) == (voice.open, words.removeprefix("echo "))

        await said()
        # "The only way the target changes is that the open session changes, and the voice session follows that change."
        await voice.say("take me to deploy")
        await told(voice, client.Opened, by=client.By.HANDOFF)
        await told(voice, client.Ended)
        await desks.strike()
        await said()
        await voice.navigate(PRICING)
        await told(voice, client.Opened, by=client.By.USER)
        await said()
        heard = {path: await desks.said(session, "user") for path, session in places.items()}
    assert heard == {ROOT: [words, "take me to deploy"], DEPLOY: [words], PRICING: [words]}


@pytest.mark.spec("NS-2", "NS-3", "HND-5", "RT-17")
async def test_flowchart_each_path_is_one_session_with_one_bot(desks: Desks, here: Here) -> None:
    """ "Each path names exactly one session, and each session has exactly one bot": the flowchart's tree, as each process draws it.

    First without sessions at /ops and /research: "whether a directory level is itself a session is open".
    """
    ids = {path: await desks.at(path) for path in (ROOT, DEPLOY, PRICING)}
    async with desks.voice(client.InMemory()) as voice:
        assert await drawn(desks, here) == [
            "/            front-desk",
            "  ops",
            "    deploy   deploy",
            "  research",
            "    pricing  pricing",
        ]
        assert await walked_up(voice, DEPLOY, PRICING) == [ROOT, ROOT], "levels without a session are passed over"
        ids |= {level: await desks.open(level, bot) for level, bot in (("/ops", "deploy"), ("/research", "pricing"))}
        await desks.strike()
        assert await drawn(desks, here) == [
            "/            front-desk",
            "  ops        deploy",
            "    deploy   deploy",
            "  research   pricing",
            "    pricing  pricing",
        ]
        assert await walked_up(voice, DEPLOY, PRICING) == ["/ops", ROOT, "/research", ROOT]
    for server in desks.all:
        for path, session in ids.items():
            found = (await desks.ask("GET", f"/v1/sessions?path={path}", server))["sessions"]
            assert [one["id"] for one in found] == [session]
    for bot in ("deploy", "pricing"):
        async with desks.far.http as http:
            other = await http.post("/v1/sessions", json={"path": DEPLOY, "agent": bot})
        assert (other.status_code, other.json()["error"]["code"]) == (409, "path_taken")


async def walked_up(voice: client.Front, *paths: str) -> list[str | None]:
    """Where "up" leads from each path, as far as it goes."""
    seen: list[str | None] = []
    for path in paths:
        await voice.navigate(path)
        while (place := await voice.up()) is not None:
            seen.append(place.path)
    return seen


async def drawn(desks: Desks, here: Here) -> list[str]:
    """The tree, which is the same in every process."""
    drawings: list[tuple[list[str], list[dict[str, Any]]]] = []
    for server in desks.all:
        tree = await here("sessions", "list", "--tree", folder=server.token_file.parent)
        drawings.append((tree.out.splitlines(), (await desks.ask("GET", "/v1/directory", server))["entries"]))
    assert all(drawing == drawings[0] for drawing in drawings)
    return drawings[0][0]
