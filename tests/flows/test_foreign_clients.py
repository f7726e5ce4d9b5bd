"""Clients that others wrote hold whole conversations: `websockets` and `httpx-sse`, in threads, breaking off at random points.

What they have seen, put together over all their connections, must be the log: in order, nothing missing, nothing twice.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from functools import partial
from typing import Any

import httpx
import pytest
import trio
from httpx_sse import connect_sse
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from callboard.tests.flows.edge_kit import Served
from callboard.tests.flows.edge_readers import SeenEvent, event_of

TURNS = 5


class LiveClient:
    """A chat client as somebody might write it: own message ids, a cursor, and both kept over its connections."""

    def __init__(self, url: str, headers: dict[str, str], session: str, seed: int) -> None:
        self.seen: list[SeenEvent] = []
        self.accepted: dict[str, int] = {}
        self.connections = 0
        self._url = url.replace("http://", "ws://") + f"/v1/live?client=test-{seed}"
        self._headers = headers
        self._session = session
        self._rng = random.Random(seed)

    def talk(self) -> None:
        """Say `TURNS` things, each after the answer to the one before."""
        while self._answers() < TURNS:
            self.connections += 1
            with connect(self._url, additional_headers=self._headers, subprotocols=["callboard.v1"]) as websocket:  # type: ignore[list-item]
                assert websocket.subprotocol == "callboard.v1"
                try:
                    self._talk_for(websocket, self._rng.randrange(1, 25))
                except ConnectionClosed:
                    continue
                if self._rng.random() < 0.5:
                    # As a network does it: a reset, without a word of the protocol.
                    websocket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    websocket.socket.close()

    def _talk_for(self, websocket: ClientConnection, frames: int) -> None:
        cursor = self.seen[-1][0] if self.seen else 0
        self._say(websocket, "subscribe", after=cursor)
        asked = False
        for _ in range(frames):
            if self._answers() == TURNS:
                return
            if not asked and f"m-{self._answers()}" not in self.accepted:
                self._say(websocket, "send", content="count 6", message_id=f"m-{self._answers()}")
                asked = True
            frame = json.loads(websocket.recv(timeout=20))
            match frame["type"]:
                case "event":
                    self.seen.append(event_of(frame))
                    asked = asked and frame["kind"] != "turn.completed"
                case "accepted":
                    known = self.accepted.setdefault(frame["message_id"], frame["seq"])
                    assert known == frame["seq"]
                case other:
                    assert other == "subscribed"
                    assert frame["newest"] >= cursor

    def _answers(self) -> int:
        return sum(kind == "turn.completed" for _, kind, _ in self.seen)

    def _say(self, websocket: ClientConnection, type: str, **fields: Any) -> None:
        websocket.send(json.dumps({"type": type, "session": self._session, **fields}))


def read_stream(url: str, headers: dict[str, str], rng: random.Random, until: int, seen: list[SeenEvent]) -> int:
    """Follow an event stream until `until` answers are seen, breaking off at random; returns the number of connections."""
    connections = 0
    with httpx.Client(headers=headers, timeout=20.0) as client:
        while sum(kind == "turn.completed" for _, kind, _ in seen) < until:
            connections += 1
            last = {"Last-Event-ID": str(seen[-1][0])} if seen else {}
            left = rng.randrange(1, 15)
            with connect_sse(client, "GET", url, headers=last) as source:
                for event in source.iter_sse():
                    assert event.event != "message", "an event that nobody sent"
                    seen.append((int(event.id), event.event, event.json()))
                    left -= 1
                    if left == 0 or sum(kind == "turn.completed" for _, kind, _ in seen) == until:
                        break
    return connections


@pytest.mark.spec("EVT-2", "EVT-3", "EVT-5")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_websockets_and_httpx_sse_hold_a_conversation(served: Served, seed: int) -> None:
    session = await served.open("counter")
    talker = LiveClient(served.url, served.headers, session, seed)
    streamed: list[SeenEvent] = []
    connections = 0

    async def follow() -> None:
        nonlocal connections
        url = f"{served.url}/v1/sessions/{session}/events"
        read = partial(read_stream, url, served.headers, random.Random(seed), TURNS, streamed)
        connections = await trio.to_thread.run_sync(read)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.to_thread.run_sync(talker.talk)
    log = await served.log(session)
    assert talker.seen == log
    assert streamed == log
    assert min(talker.connections, connections) >= 4
    posts = [data["message_id"] for _, kind, data in log if kind == "message.created"]
    assert posts == [f"m-{number}" for number in range(TURNS)]
    turns = [data["message_id"] for _, kind, data in log if kind == "turn.completed"]
    assert turns == posts


@pytest.mark.spec("EVT-3")
@pytest.mark.parametrize(
    ("agent", "content"), [("counter", "count 40"), ("desk", "echo a\u2028b\x85c\x0bd\r\n\re\n\nf")]
)
async def test_httpx_sse_reads_a_turn_to_its_end(served: Served, agent: str, content: str) -> None:
    session = await served.open(agent)
    message = await served.post(session, content)
    turn = message["message_id"].replace("msg_", "turn_")
    url = f"{served.url}/v1/turns/{turn}/events"

    def read() -> list[SeenEvent]:
        with httpx.Client(headers=served.headers, timeout=20.0) as client, connect_sse(client, "GET", url) as source:
            return [(int(event.id), event.event, event.json()) for event in source.iter_sse()]

    seen = await trio.to_thread.run_sync(read)
    assert seen == [event for event in await served.log(session) if event[2].get("turn_id") == turn]
    assert seen[-1][1] == "turn.completed"
    answer = await served.client.get(url, headers={"Last-Event-ID": str(seen[-1][0])})
    assert answer.status_code == 204
