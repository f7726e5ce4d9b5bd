"""After any number of broken, slow and mutated connections over HTTP, event streams and websockets nothing of them is left.

Tasks, children of the tree, file descriptors and followed sessions are counted before and after. Each connection is made from a seed, so a
run can be repeated. `FUZZ_CONNECTIONS=15000 pytest -s tests/flows/test_front_leaks.py` makes more of them, and prints what it saw.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.edges.edge import Pace
from callboard.actors.edges.limits import Limits
from callboard.actors.ports import Tuning
from callboard.supervisors.tree import DynamicSupervisor
from callboard.tests.flows import edge_kit
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.front_kit import descriptors
from callboard.tests.flows.raw_client import Client, client_frame, handshake
from callboard.tests.flows.test_front_hostile import HOSTILE, mutate

CONNECTIONS = int(os.environ.get("FUZZ_CONNECTIONS", "1000"))
AT_ONCE = 64
WAVES = 4
SEED = 20260131
LIMITS = Limits(
    head_seconds=0.3,
    body_seconds=0.3,
    idle_seconds=0.5,
    send_seconds=1.0,
    linger_seconds=0.1,
    close_seconds=0.3,
    grace_seconds=0.5,
    handshake_seconds=2.0,
)
PACE = Pace(beat=0.2, ping=0.5, slow=0.5, close=0.2, recheck=0.5)
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
ALLOWED = {501, 503, 505}
"""The statuses from 500 up that a client can bring about by itself: what is not implemented, too many connections, another version."""
GROWTH = 24 * 1024 * 1024
"""Bytes that the process may grow by from the half of the connections to their end: caches and the heap's own gaps, not one per connection."""


@attrs.define
class Seen:
    """What came back."""

    statuses: Counter[int] = attrs.field(factory=Counter[int])
    broken: int = 0

    def take(self, data: bytes) -> None:
        self.statuses.update(int(status) for status in STATUS.findall(data))


@attrs.frozen
class Standing:
    """What a process has at one time."""

    tasks: Counter[str]
    connections: int
    websockets: int
    followed: int
    descriptors: int


def standing(served: Served) -> Standing:
    counts = served.front.counts
    assert counts is not None
    followed = served.runtime.desk.tails.followed
    return Standing(tasks(), served.front.connections.count, counts.websockets, followed, descriptors())


def tasks() -> Counter[str]:
    """All tasks of this run by name, without the numbers that tell children of one kind apart."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found: Counter[str] = Counter()
    waiting = [root]
    while waiting:
        task = waiting.pop()
        found[re.sub(r"[-#:].*", "", task.name)] += 1
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)
    return found


def resident() -> int:
    """Bytes of memory that the process holds; 0 where the system does not say."""
    gc.collect()
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


async def quiet(served: Served) -> None:
    """Wait until every connection, every tail and every turn has ended by itself."""
    tails, turns = served.runtime.desk.tails._spawn, served.runtime.dispatcher._sessions
    assert isinstance(tails, DynamicSupervisor)
    assert isinstance(turns, DynamicSupervisor)
    for supervisor in (served.front.connections, tails, turns):
        while children := supervisor.snapshot().children:
            await supervisor.wait_ended(children[0].name)


# -- what is thrown at it ------------------------------------------------------------------------------------------------


def request(method: str, path: str, token: str, body: bytes | None = None, *fields: str) -> bytes:
    given = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *fields]
    if body is not None:
        given += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*given, "", ""]).encode() + (body or b"")


BROKEN = [data.replace(b"Host: test", b"Host: localhost") for data, _ in HOSTILE.values() if len(data) < 2_000]


def requests(token: str, sessions: list[str]) -> list[bytes]:
    """What an honest client may ask."""
    session = sessions[0]
    message = json.dumps({"content": "echo hello", "message_id": "m-1"}).encode()
    return [
        *(
            request("GET", path, token)
            for path in ("/v1/sessions", "/healthz", "/metrics", "/v1/inbox", "/v1/tree", "/")
        ),
        request("GET", f"/v1/sessions/{session}/transcript?after=0", token),
        request("GET", "/v1/sessions?status=idle&limit=3&cursor=1.5~7", token),
        request("POST", "/v1/sessions", token, json.dumps({"agent": "desk", "path": "/a/b"}).encode()),
        request("POST", f"/v1/sessions/{session}/messages", token, message),
        request("POST", f"/v1/sessions/{session}/messages", token, message, "Idempotency-Key: k"),
        request("POST", f"/v1/sessions/{session}/stop", token, b"{}"),
        request("POST", "/v1/tickets", token, b"{}"),
        request("PATCH", f"/v1/sessions/{session}", token, b'{"title": "t"}'),
        request("DELETE", "/v1/sessions/ses_nowhere", token),
    ]


def live_frames(rng: random.Random, sessions: list[str]) -> bytes:
    """Some frames of a client: what is right, what is refused, and what breaks the protocol."""
    made: list[bytes] = []
    for number in range(rng.randrange(1, 12)):
        session = rng.choice([*sessions, "ses_nowhere"])
        frame: Any = {
            0: {"type": "subscribe", "session": session, "after": rng.choice([0, 0, 1, 10**9, -1])},
            1: {"type": "send", "session": session, "content": f"echo {number}"},
            2: {"type": "stop", "session": session},
            3: {"type": "unsubscribe", "session": session},
            4: {"type": rng.choice(["", "shout", None]), "session": [session]},
        }.get(rng.randrange(7))
        payload = json.dumps(frame).encode() if frame else rng.randbytes(rng.randrange(200))
        opcode = rng.choice([1, 1, 1, 1, 1, 1, 0, 2, 8, 9, 10, 11]) if rng.random() < 0.3 else 1
        made.append(client_frame(opcode, payload, fin=rng.random() < 0.95))
    return b"".join(made)


def attack(rng: random.Random, token: str, sessions: list[str], honest: list[bytes]) -> bytes:
    """All bytes of one connection. What is mutated may be the whole, or only what stands behind a head that is right."""
    head = b""
    match rng.randrange(5):
        case 0:
            data = rng.choice(BROKEN)
        case 1 | 2:
            head = b"".join(rng.choices(honest, k=rng.randrange(3)))
            data = rng.choice(honest)
        case 3:
            session = rng.choice([*sessions, *sessions, "ses_nowhere"])
            last = f"Last-Event-ID: {rng.choice(['0', '1', '999999', 'x', '-1'])}"
            data = request("GET", f"/v1/sessions/{session}/events", token, None, last)
        case _:
            bearer = f"Authorization: Bearer {token}\r\n".encode() if rng.random() < 0.9 else b""
            head = handshake("/v1/live", bearer).replace(b"Host: test", b"Host: localhost")
            data = live_frames(rng, sessions)
    if rng.random() < 0.1:
        head, data = b"", head + data
    return head + (mutate(rng, data, BROKEN) if rng.random() < 0.5 else data)


def pieces(rng: random.Random, data: bytes) -> Iterator[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(5)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        yield data[start:end]


async def assail(served: Served, seed: int, honest: list[bytes], sessions: list[str], seen: Seen) -> None:
    """One connection from its seed: what it sends, how fast, what it reads, and the way it ends."""
    rng = random.Random(seed)
    client = await served.raw(receive_buffer=rng.choice([None, None, 4096]))
    try:
        for piece in pieces(rng, attack(rng, served.token, sessions, honest)):
            await client.send(piece)
            await trio.sleep(rng.choice([0, 0, 0, 0.01, 0.05]))
        match rng.randrange(6):
            case 0:  # goes at once
                pass
            case 1:  # resets, with data unread
                client.stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
            case 2:  # has no more to say, and reads
                await client.send_eof()
                await read(client, 1.0)
            case 3:  # stays, mute and deaf
                await trio.sleep(rng.random() * 0.6)
            case _:  # reads a while
                await read(client, rng.random() * 0.7)
    except (trio.BrokenResourceError, AssertionError):
        seen.broken += 1
    finally:
        seen.take(client.buffer)
        await trio.aclose_forcefully(client.stream)


async def read(client: Client, seconds: float) -> None:
    with trio.move_on_after(seconds):
        while await client.more():
            pass


async def wave(served: Served, numbers: range, sessions: list[str], seen: Seen) -> None:
    room, honest = trio.Semaphore(AT_ONCE), requests(served.token, sessions)

    async def one(number: int) -> None:
        try:
            await assail(served, SEED + number, honest, sessions, seen)
        finally:
            room.release()

    async with trio.open_nursery() as nursery:
        for number in numbers:
            await room.acquire()
            nursery.start_soon(one, number)


@pytest.mark.spec("RT-3", "RT-14")
async def test_nothing_is_left_of_any_number_of_bad_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(edge_kit, "DEADLINE", 60.0 + CONNECTIONS / 20)
    caplog.set_level(logging.WARNING)
    async with serving_runtime(tmp_path, limits=LIMITS, pace=PACE, tuning=Tuning(mailbox_depth=50)) as served:
        sessions = [(await served.runtime.open_session(agent="desk", path=f"/s{number}")).id for number in range(6)]
        seen = Seen()
        await wave(served, range(-AT_ONCE, 0), sessions, Seen())  # whatever is made once is made
        await quiet(served)
        before, memory, began = standing(served), [resident()], time.monotonic()
        for number in range(WAVES):
            share = range(CONNECTIONS * number // WAVES, CONNECTIONS * (number + 1) // WAVES)
            await wave(served, share, sessions, seen)
            await quiet(served)
            memory.append(resident())
        after = standing(served)
        counts = served.front.counts
        assert counts is not None
        print(
            f"\n{CONNECTIONS} connections in {time.monotonic() - began:.0f} s; accepted {counts.accepted}, refused {counts.refused}, "
            f"requests {counts.requests}, faults {counts.failures}; statuses {dict(sorted(seen.statuses.items()))}; "
            f"cut while sending {seen.broken}; tasks {before.tasks.total()} before, {after.tasks.total()} after; "
            f"descriptors {before.descriptors} before, {after.descriptors} after; "
            f"MiB resident {[round(size / 2**20, 1) for size in memory]}"
        )
        assert after == before
        assert counts.failures == 0, caplog.text
        assert not {status for status in seen.statuses if status >= 500} - ALLOWED
        assert {101, 200, 202, 400, 401, 404, 408} <= set(seen.statuses), "the attack does not reach what it should"
        assert next(served.runtime.desk.tails._numbers) > CONNECTIONS / 100, "hardly a session was followed"
        assert memory[-1] - memory[WAVES // 2] < GROWTH
        receipt = await served.runtime.send(sessions[0], "echo still here")
        assert (await served.runtime.wait(receipt.message_id)).outcome == "answered"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
