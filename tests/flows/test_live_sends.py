"""Sends that follow each other over one websocket: they share commits, and nothing of their order is lost."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.actors.edges.live import ALONE_BYTES
from callboard.actors.edges.sends import Sends
from callboard.actors.ports import Tuning
from callboard.storage.ops import Enqueue
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.raw_client import TEXT, Client, client_frame, handshake
from callboard.tests.flows.turn_kit import Gate


@asynccontextmanager
async def raw_live(served: Served) -> AsyncIterator[tuple[Client, str]]:
    """A websocket that says and hears what the test does, and the name of its child in the tree."""
    before = {child.name for child in served.front.connections.snapshot().children}
    async with await served.raw() as client:
        head = handshake("/v1/live", f"Authorization: Bearer {served.token}\r\n".encode())
        await client.send(head.replace(b"Host: test", b"Host: localhost"))
        assert (await client.answer()).status == 101
        (name,) = {child.name for child in served.front.connections.snapshot().children} - before
        yield client, name


def text(frame: Any) -> bytes:
    return client_frame(TEXT, frame if isinstance(frame, bytes) else json.dumps(frame).encode())


async def frames(client: Client, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        opcode, payload = await client.frame()
        if opcode == TEXT:
            found.append(json.loads(payload))
    return found


def gated(served: Served) -> Gate:
    commit = served.runtime.store._commit
    gate = commit._driver = Gate(commit._driver)
    return gate


async def contents(served: Served, session: str) -> list[str]:
    found: list[str] = []
    while page := await served.runtime.read(session, after=len(found)):
        found += [entry.content for entry in page]
    return found


@pytest.mark.spec("INB-1", "EVT-5")
async def test_many_sends_share_commits_and_keep_their_order(served: Served) -> None:
    sessions = [await served.open("patient") for _ in range(3)]
    rng = random.Random(11)
    sent = [(rng.choice(sessions), f"message {number}") for number in range(600)]
    batches = served.runtime.store.statistics()["batches"]
    async with raw_live(served) as (client, _), trio.open_nursery() as nursery:
        burst = b"".join(
            text({"type": "send", "session": session, "content": content, "message_id": f"m-{number}"})
            for number, (session, content) in enumerate(sent)
        )
        nursery.start_soon(client.send, burst)
        answers = await frames(client, len(sent))
    assert served.runtime.store.statistics()["batches"] - batches < len(sent) / 3
    assert [(frame["type"], frame["message_id"]) for frame in answers] == [
        ("accepted", f"m-{number}") for number in range(len(sent))
    ]
    for session in sessions:
        own = [content for where, content in sent if where == session]
        assert await contents(served, session) == own
        assert [frame["seq"] for frame in answers if frame["session"] == session] == list(range(1, len(own) + 1))


@pytest.mark.spec("RT-14", "EVT-5")
async def test_refusals_in_between_are_answered_in_their_place(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, tuning=Tuning(mailbox_depth=60)) as served:
        session, small = await served.open("patient"), await served.open("patient")
        rng = random.Random(5)
        said: list[bytes] = []
        expected: list[tuple[str, str | None]] = []
        fits: list[str] = []

        def say(frame: Any, kind: str, name: str | None = None) -> None:
            said.append(text(frame))
            expected.append((kind, name))

        say({"type": "send", "session": small, "content": "known", "message_id": "known"}, "accepted", "known")
        for number in range(400):
            name = f"m-{number}"
            send = {"type": "send", "session": session, "content": f"message {number}", "message_id": name}
            match rng.randrange(12):
                case 0:
                    say({**send, "session": "ses_nowhere"}, "unknown_target", name)
                case 1:
                    say({**send, "content": ""}, "invalid_field", name)
                case 2:
                    say({**send, "content": "x" * 20_001}, "invalid_field", name)
                case 3:
                    say({**send, "content": "x" * ALONE_BYTES}, "invalid_field", name)
                case 4:
                    say({**send, "session": small, "message_id": "known"}, "message_conflict", "known")
                case 5:
                    say(b'{"type": "send",', "bad_json")
                case 6:
                    say({**send, "colour": "red"}, "invalid_field", name)
                case 7:
                    say({"type": "shout"}, "unknown_type")
                case 8:
                    say({"type": "unsubscribe", "session": session}, "not_subscribed")
                case _ if len(fits) < 60:
                    fits.append(f"message {number}")
                    say(send, "accepted", name)
                case _:
                    say(send, "mailbox_full", name)
        async with raw_live(served) as (client, _), trio.open_nursery() as nursery:
            nursery.start_soon(client.send, b"".join(said))
            answers = await frames(client, len(said))
        got = [(frame.get("code", frame["type"]), frame.get("message_id")) for frame in answers]
        assert got == expected
        assert {"mailbox_full", "accepted", "bad_json", "message_conflict"} <= {kind for kind, _ in got}
        assert await contents(served, session) == fits


async def test_what_comes_behind_sends_is_carried_out_behind_them(served: Served) -> None:
    session = await served.open("patient")
    gate = gated(served)
    gate.close(Enqueue)
    async with raw_live(served) as (client, _):
        sends = [{"type": "send", "session": session, "content": f"{number}"} for number in range(20)]
        await client.send(b"".join(map(text, [*sends, {"type": "subscribe", "session": session}])))
        await gate.waiting.wait()
        gate.open()
        answers = await frames(client, 21)
    assert [frame["type"] for frame in answers] == ["accepted"] * 20 + ["subscribed"]
    assert answers[-1]["newest"] >= 20


@pytest.mark.parametrize("way", ["cut", "closed", "stopped"])
async def test_an_ending_connection_waits_for_what_it_has_begun(
    served: Served, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    session = await served.open("patient")
    gate = gated(served)
    commit: Any = served.runtime.store._commit
    put, queued, handed = commit._put, [], trio.Event()
    end, ending = Sends.end, trio.Event()

    def counted(slot: Any) -> None:
        put(slot)
        queued.append(slot)
        if len(queued) == 10:
            handed.set()

    def told(sends: Sends, seconds: float) -> None:
        end(sends, seconds)
        ending.set()

    gate.close(Enqueue)
    monkeypatch.setattr(commit, "_put", counted)
    monkeypatch.setattr(Sends, "end", told)
    async with raw_live(served) as (client, name):
        for number in range(10):
            await client.send(text({"type": "send", "session": session, "content": f"{number}"}))
        await handed.wait()
        # The first is in a batch that hangs; the others only queue, and would go with whoever waits for them.
        await gate.waiting.wait()
        if way == "cut":
            await trio.aclose_forcefully(client.stream)
        elif way == "closed":
            await client.send(client_frame(8, (1000).to_bytes(2, "big")))
        else:
            served.front.connections.stop(name)
        await ending.wait()
        gate.open()
        await served.front.connections.wait_ended(name)
    assert await contents(served, session) == [f"{number}" for number in range(10)]
