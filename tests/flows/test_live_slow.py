"""Websockets of clients that are slow, mute or gone: each costs itself its connection, and nobody else anything."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from callboard.actors.edges.edge import Pace
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.edge_readers import SeenEvent, event_of
from callboard.tests.flows.raw_client import CLOSE, PING, PONG, TEXT, Client, client_frame, handshake


@asynccontextmanager
async def raw_live(served: Served, *, receive_buffer: int | None = None) -> AsyncIterator[tuple[Client, str]]:
    """A websocket that reads only when the test does, and the name of its child in the tree."""
    before = {child.name for child in served.front.connections.snapshot().children}
    async with await served.raw(receive_buffer=receive_buffer) as client:
        head = handshake("/v1/live", f"Authorization: Bearer {served.token}\r\n".encode())
        await client.send(head.replace(b"Host: test", b"Host: localhost"))
        assert (await client.answer()).status == 101
        (name,) = {child.name for child in served.front.connections.snapshot().children} - before
        yield client, name


async def subscribe(client: Client, session: str, after: int = 0) -> None:
    frame = json.dumps({"type": "subscribe", "session": session, "after": after})
    await client.send(client_frame(TEXT, frame.encode()))


async def read_all(client: Client) -> tuple[list[SeenEvent], tuple[int, str] | None]:
    """Events up to the close frame, and its code and reason; None if the connection ends without one."""
    seen: list[SeenEvent] = []
    while client.buffer or await client.more():
        try:
            opcode, payload = await client.frame()
        except AssertionError:
            return seen, None  # cut within a frame
        if opcode == CLOSE:
            return seen, (int.from_bytes(payload[:2], "big"), payload[2:].decode())
        frame = json.loads(payload) if opcode == TEXT else {"type": "control"}
        if frame["type"] == "event":
            seen.append(event_of(frame))
    return seen, None


class Told(logging.Handler):
    """Sets an event when the live log says something."""

    def __init__(self) -> None:
        super().__init__()
        self.event = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    handler = Told()
    logger = logging.getLogger("callboard.live")
    caplog.set_level(logging.INFO, "callboard.live")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.spec("EVT-5", "EVT-3")
@pytest.mark.parametrize("live", [False, True])
async def test_a_slow_client_is_told_1013_and_resumes_by_cursor(tmp_path: Path, told: Told, live: bool) -> None:
    async with serving_runtime(tmp_path, pace=Pace(slow=0.2, close=10.0)) as served:
        session = await served.open("loud")
        if not live:
            await served.say(session, "shout 300")
        async with raw_live(served, receive_buffer=65536) as (client, name):
            await subscribe(client, session)
            if live:
                await served.say(session, "shout 300")
            await told.event.wait()
            # Nobody else waited for it.
            async with served.live() as other:
                await other.ask("subscribe", session=session, after=len(await served.log(session)))
                await served.say(session, "shout 1")
                await other.until("turn.completed")
            seen, end = await read_all(client)
            await client.send(client_frame(CLOSE, (1013).to_bytes(2, "big")))
            await served.front.connections.wait_ended(name)
        assert end == (1013, "too slow, resume by cursor")
        log = await served.log(session)
        assert 0 < len(seen) < len(log)
        assert seen == log[: len(seen)]
        async with served.live() as again:
            await again.ask("subscribe", session=session, after=seen[-1][0])
            assert await again.events(len(log) - len(seen)) == log[len(seen) :]


@pytest.mark.spec("RT-14", "EVT-5")
async def test_a_client_that_never_reads_again_is_cut(tmp_path: Path) -> None:
    limits = Limits(send_seconds=0.3, close_seconds=0.2, linger_seconds=0.1, grace_seconds=1.0)
    async with serving_runtime(tmp_path, limits=limits, pace=Pace(slow=0.1, close=0.1)) as served:
        session = await served.open("loud")
        await served.say(session, "shout 300")
        async with raw_live(served, receive_buffer=65536) as (client, name):
            await subscribe(client, session)
            await served.front.connections.wait_ended(name)
            seen, _ = await read_all(client)
        log = await served.log(session)
        assert seen == log[: len(seen)]
        assert len(seen) < len(log)


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_a_client_that_falls_behind_and_catches_up_has_everything_once(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path) as served:
        session = await served.open("loud")
        async with raw_live(served, receive_buffer=65536) as (client, _):
            await subscribe(client, session)
            assert json.loads((await client.frame())[1])["type"] == "subscribed"
            seen: list[SeenEvent] = []
            for round_ in range(2):
                # It reads nothing while this goes on, so pushing must give way to reading rows.
                await served.say(session, "shout 300")
                assert client.buffer == b""
                while sum(kind == "turn.completed" for _, kind, _ in seen) <= round_:
                    _, payload = await client.frame()
                    seen.append(event_of(json.loads(payload)))
            # And it is live again.
            await served.say(session, "shout 1")
            while sum(kind == "turn.completed" for _, kind, _ in seen) < 3:
                seen.append(event_of(json.loads((await client.frame())[1])))
        assert seen == await served.log(session)


@pytest.mark.spec("EVT-5")
async def test_pings_are_sent_and_a_mute_client_is_closed(tmp_path: Path) -> None:
    assert Pace().ping == 20.0
    async with serving_runtime(tmp_path, pace=Pace(ping=0.1, close=0.1)) as served, raw_live(served) as (client, name):
        for _ in range(3):
            opcode, payload = await client.frame()
            assert opcode == PING
            await client.send(client_frame(PONG, payload))
        opcode, payload = await client.frame()
        assert opcode == PING
        opcode, payload = await client.frame()
        assert (opcode, payload) == (CLOSE, (1011).to_bytes(2, "big") + b"no answer to a ping")
        await served.front.connections.wait_ended(name)


@pytest.mark.spec("EVT-5")
async def test_pings_of_the_client_are_answered_while_commands_run(served: Served) -> None:
    session = await served.open("patient")
    async with raw_live(served) as (client, _):
        send = json.dumps({"type": "send", "session": session, "content": "x"}).encode()
        await client.send(client_frame(TEXT, send) * 5 + client_frame(PING, b"?") + client_frame(TEXT, send) * 5)
        frames = [await client.frame() for _ in range(11)]
    assert [frame for frame in frames if frame[0] == PONG] == [(PONG, b"?")]
    assert [json.loads(payload)["seq"] for opcode, payload in frames if opcode == TEXT] == list(range(1, 11))


@pytest.mark.spec("EVT-2")
async def test_clients_that_vanish_stop_nothing_and_leave_nothing(served: Served) -> None:
    session = await served.open("counter")
    names: list[str] = []
    receipt = await served.post(session, "count 300")
    for _ in range(20):
        async with raw_live(served) as (client, name):
            await subscribe(client, session)
            await client.frame()
            names.append(name)
    for name in names:
        await served.front.connections.wait_ended(name)
    assert (await served.runtime.wait(receipt["message_id"])).outcome == "answered"
    tail = served.runtime.desk.tails._tails.get((served.runtime.scope, session))
    assert tail is None or not tail.sinks


@pytest.mark.spec("EVT-5")
async def test_a_flood_of_commands_holds_back_its_sender_only(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path) as served:
        session = await served.open("patient")
        async with raw_live(served, receive_buffer=65536) as (client, _), trio.open_nursery() as nursery:
            frame = client_frame(TEXT, json.dumps({"type": "stop", "session": "ses_" + "x" * 100}).encode())
            flooding = trio.Event()

            async def flood() -> None:
                for _ in range(200):
                    await client.send(frame * 500)
                    flooding.set()

            nursery.start_soon(flood)
            await flooding.wait()
            for number in range(20):
                await served.post(session, f"message {number}")
            nursery.cancel_scope.cancel()
        entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
        assert len(entries) == 20
