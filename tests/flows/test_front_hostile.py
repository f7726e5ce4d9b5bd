"""Inputs that no honest client sends. After each of them the front serves the next request as if nothing had been."""

from __future__ import annotations

import logging
import random

import pytest
import trio

from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import descriptors, serving
from callboard.tests.flows.raw_client import KEY, client_frame, get, handshake, post

LIMITS = Limits(
    head_seconds=0.3, body_seconds=0.3, idle_seconds=0.5, linger_seconds=0.1, close_seconds=0.2, grace_seconds=0.3
)
HOST = b"Host: test\r\n"

# name: (bytes, the statuses that may answer, () if the server may close without a word)
HOSTILE: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "nothing": (b"", ()),
    "a NUL": (b"\0", (400,)),
    "garbage": (bytes(range(256)) * 4, (400,)),
    "a TLS hello on a plain port": (bytes.fromhex("16030100c8010000c40303") + bytes(200), (400,)),
    "the HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (505,)),
    "HTTP/0.9": (b"GET /\r\n\r\n", (400,)),
    "HTTP/3.7": (b"GET / HTTP/3.7\r\n" + HOST + b"\r\n", (505,)),
    "a version that is none": (b"GET / HTTP/one\r\n" + HOST + b"\r\n", (400,)),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", (400,)),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400,)),
    "a host with a path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", (400,)),
    "a host that is not ASCII": (b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", (400,)),
    "a space before the colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", (400,)),
    "a field without a name": (b"GET / HTTP/1.1\r\n" + HOST + b": x\r\n\r\n", (400,)),
    "a NUL in a field": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", (400,)),
    "a continuation line first": (b"GET / HTTP/1.1\r\n X: a\r\n\r\n", (400,)),
    "a bare CR": (b"GET / HTTP/1.1\r" + HOST + b"X: a\r\r\n\r\n", (400, 408)),
    "a negative length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", (400,)),
    "a length with a plus": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\na", (400,)),
    "a hexadecimal length": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x10\r\n\r\n", (400,)),
    "two lengths": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", (400,)),
    "a length of a thousand digits": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 1000 + b"\r\n\r\n",
        (400,),
    ),
    "a length of petabytes": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 9999999999999999\r\n\r\n", (413,)),
    "length and coding": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400,),
    ),
    "an unknown coding": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", (501,)),
    "two codings": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        (501,),
    ),
    "a coding in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    "a chunk size that is none": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", (400,)),
    "a chunk of exabytes": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        (408,),
    ),
    "a chunk size of a hundred digits": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 100 + b"\r\n",
        (400,),
    ),
    "a chunk that is longer than it says": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        (400,),
    ),
    "a trailer without an end": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: a\r\n" * 5000,
        (400,),
    ),
    "a head without an end": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 5000, (431,)),
    "a request line without an end": (b"GET /" + b"a" * 50_000, (414,)),
    "half a head": (b"GET / HTTP/1.1\r\nHo", (408,)),
    "half a body": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nhalf", (408,)),
    "a method that is none": (b"G<T / HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a proxy's method": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", (501,)),
    "a foreign scheme": (b"GET ftp://test/ HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a target with a user": (b"GET http://user@test/ HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a target without a slash": (b"GET index HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a target with a fragment": (b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a target with a space": (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a target that is not ASCII": (b"GET /\xc3\xbc HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a path that is not UTF-8": (b"GET /%ff%fe HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a surrogate in the path": (b"GET /%ed%a0%80 HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "a NUL in the path": (b"GET /%00 HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "an asterisk for GET": (b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
    "an unknown expectation": (b"GET / HTTP/1.1\r\n" + HOST + b"Expect: miracles\r\n\r\n", (417,)),
    "empty lines": (b"\r\n" * 10_000, ()),
    "a good request and garbage behind it": (get() + b"\x00\x01\x02", (200,)),
    "an upgrade to h2c": (
        get("/", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAAA"),
        (200,),
    ),
    "websocket by POST": (handshake().replace(b"GET", b"POST"), (405,)),
    "websocket without a key": (handshake().replace(b"Sec-WebSocket-Key: " + KEY + b"\r\n", b""), (400,)),
    "websocket with two keys": (handshake(headers=b"Sec-WebSocket-Key: " + KEY + b"\r\n"), (400,)),
    "websocket of version 8": (handshake().replace(b"Version: 13", b"Version: 8"), (426,)),
    "websocket without a version": (handshake().replace(b"Sec-WebSocket-Version: 13\r\n", b""), (400,)),
    "websocket without connection": (handshake().replace(b"Connection: Upgrade\r\n", b""), (400,)),
    "websocket without upgrade": (handshake().replace(b"Upgrade: websocket\r\n", b""), (426,)),
    "websocket with a body": (handshake(headers=b"Content-Length: 1\r\n") + b"a", (400,)),
    "websocket with a protocol that is not ASCII": (handshake(headers=b"Sec-WebSocket-Protocol: \xff\r\n"), (400,)),
    "websocket with a host that is no IDNA": (handshake().replace(b"Host: test", b"Host: xn--\xc3\xbc"), (400,)),
    "websocket with a bad punycode host": (
        handshake().replace(b"Host: test", b"Host: xn--a-0000000000000"),
        (101, 400),
    ),
    "websocket with a label that is too long": (handshake().replace(b"Host: test", b"Host: " + b"a" * 200), (101, 400)),
    "websocket with extensions that are not ASCII": (
        handshake(headers=b"Sec-WebSocket-Extensions: \xff;\x80\r\n"),
        (101,),
    ),
    "websocket and garbage behind it": (handshake() + bytes(range(200)), (101,)),
    "websocket and HTTP behind it": (handshake() + get(), (101,)),
    "websocket and an unmasked frame": (handshake() + b"\x81\x02hi", (101,)),
    "websocket and a frame of 4 EiB": (handshake() + bytes.fromhex("82ff4000000000000000") + bytes(4), (101,)),
    "websocket and half a frame": (handshake() + client_frame(1, b"hello")[:4], (101,)),
}


def test_the_list_is_long() -> None:
    assert len(HOSTILE) >= 25


@pytest.mark.parametrize("half_close", [False, True], ids=["open", "half-closed"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.spec("RT-3")
async def test_hostile_input(name: str, half_close: bool, caplog: pytest.LogCaptureFixture) -> None:
    data, statuses = HOSTILE[name]
    async with serving(limits=LIMITS) as front:
        async with await front.connect() as client:
            try:
                await client.send(data)
                if half_close:
                    await client.send_eof()
            except trio.BrokenResourceError:
                pass  # the server may have closed already
            if 101 in statuses and not half_close:
                answer = await client.answer()
                assert answer.status in statuses
            else:
                received = await client.rest()
                assert received.startswith(b"HTTP/1.1 ") or not received
                if not half_close:
                    assert (int(received[9:12]) in statuses) if statuses else not received
        assert (await front.ask(post(b"still here"))).status == 200
        assert front.server.statistics().failures == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.spec("RT-3")
async def test_hundreds_of_mutated_connections(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(20250501)
    seeds = [data for data, _ in HOSTILE.values() if len(data) < 2000]
    seeds += [
        get(),
        post(b"hello"),
        get() + post(b"x"),
        handshake(),
        handshake() + client_frame(1, b"text") + client_frame(8, b"\x03\xe8"),
    ]
    before = descriptors()
    async with serving(limits=LIMITS) as front:
        with_bytes = trio.CapacityLimiter(40)

        async def attack(data: bytes, cuts: list[int], leave: bool) -> None:
            async with with_bytes:
                try:
                    async with await front.connect() as client:
                        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                            await client.send(data[start:end])
                            await trio.lowlevel.checkpoint()
                        if not leave:
                            await client.send_eof()
                            await client.rest()
                except trio.BrokenResourceError:
                    pass

        async with trio.open_nursery() as nursery:
            for _ in range(600):
                data = mutate(rng, rng.choice(seeds), seeds)
                cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
                nursery.start_soon(attack, data, cuts, rng.random() < 0.5)
        assert (await front.ask(post(b"still here"))).status == 200
        assert front.server.statistics().accepted == 601
        assert front.server.statistics().failures == 0, caplog.text
    assert descriptors() == before


def mutate(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    """`data` with a few bytes changed, removed, doubled, or crossed with another seed."""
    result = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(result) + 1)
        match rng.randrange(6):
            case 0:
                result[place : place + 1] = rng.randbytes(1)
            case 1:
                del result[place : place + rng.randrange(20)]
            case 2:
                result[place:place] = rng.randbytes(rng.randrange(1, 30))
            case 3:
                result[place:place] = result[place : place + rng.randrange(60)]
            case 4:
                result[place:] = rng.choice(seeds)[:200]
            case _:
                result[place:place] = rng.choice(
                    [b"\r\n", b"\n", b"\0", b":", b"\xff\xff", b" ", b"\r\n\r\n", b"\x88\x80"]
                )
    return bytes(result)
