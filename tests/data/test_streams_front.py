"""The front against the table of websocket handshakes and frames that the project keeps outside the repository.

Skipped without `CALLBOARD_TEST_DATA`, the folder that has `streams/`. Two handshake cases are about who may connect; the front leaves that
to its application, so they are not judged here, and a case that is unknown here fails.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket
from trio_websocket import WebSocketRequest

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.limits import Limits
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import BINARY, KEY, PING, PONG, TEXT, client_frame, get, handshake

LIMITS = Limits(linger_seconds=0.5, close_seconds=0.5, grace_seconds=0.5)
OF_THE_APPLICATION = {"origin-foreign", "ticket-expired"}
HANDSHAKES = {
    "no-upgrade": handshake().replace(b"Upgrade: websocket\r\n", b""),
    "connection-list": handshake().replace(b"Connection: Upgrade", b"Connection: keep-alive, Upgrade"),
    "version-8": handshake().replace(b"Version: 13", b"Version: 8"),
    "key-missing": handshake().replace(b"Sec-WebSocket-Key: " + KEY + b"\r\n", b""),
    "key-not-base64": handshake().replace(KEY, b"!!!!"),
    "post": handshake().replace(b"GET", b"POST"),
    "origin-missing": handshake(headers=b"Authorization: Bearer x\r\n"),
    "subprotocol-unknown": handshake(headers=b"Sec-WebSocket-Protocol: nope\r\n"),
    "key-rfc": handshake(),
}


def cases(name: str) -> list[Any]:
    """The cases of one file as test parameters; a single skipped one without the data."""
    folder = os.environ.get("CALLBOARD_TEST_DATA")
    path = Path(folder or "", "streams", name)
    if folder is None or not path.is_file():
        return [
            pytest.param({}, id="no-data", marks=pytest.mark.skip(reason="CALLBOARD_TEST_DATA has no streams folder"))
        ]
    return [pytest.param(case, id=case["id"]) for case in json.loads(path.read_text(encoding="utf-8"))["cases"]]


@pytest.mark.spec("EVT-5")
@pytest.mark.parametrize(
    "case", [case for case in cases("websocket-handshake.json") if case.id not in OF_THE_APPLICATION]
)
async def test_handshake(case: dict[str, Any]) -> None:
    async with serving(limits=LIMITS) as front, await front.connect() as client:
        await client.send(HANDSHAKES[case["id"]])
        answer = await client.answer()
        assert answer.status in case["expect"]
        if answer.status == 101:
            assert answer.headers["sec-websocket-accept"] == case.get("accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            assert "sec-websocket-protocol" not in answer.headers
        elif answer.status == 426:
            assert answer.headers["upgrade"] == "websocket"


class Echo:
    """Echoes messages, or only counts to `enough`, and notes how the websocket ended for the handler."""

    def __init__(self, enough: int | None) -> None:
        self.enough = enough
        self.counted = trio.Event()
        self.ended = trio.Event()
        self.code: int | None = None

    async def __call__(self, request: WebSocketRequest, stream: FrameStream) -> None:
        websocket = await request.accept()
        try:
            for _ in range(self.enough or 0):
                assert await websocket.get_message() == "a"
            self.counted.set()
            while True:
                await websocket.send_message(await websocket.get_message())
        except trio_websocket.ConnectionClosed as closed:
            self.code = closed.reason.code if closed.reason is not None else None
            raise
        finally:
            self.ended.set()


@pytest.mark.spec("EVT-5")
@pytest.mark.parametrize("case", cases("websocket-frames.json"))
async def test_frames(case: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    expect = case["expect"]
    handler = Echo(expect.get("messages"))
    async with (
        serving(on_websocket=handler, limits=LIMITS) as front,
        await front.connect() as client,
        trio.open_nursery() as nursery,
    ):
        assert (await client.upgrade()).status == 101

        async def send() -> None:
            for part in wire(case):
                await client.send(part)
            if case["id"] == "half-frame-then-eof":
                await client.send_eof()

        nursery.start_soon(send)
        if "messages" in expect:
            await handler.counted.wait()
        elif "message" in expect:
            kind, text = expect["message"]
            assert await client.frame() == (TEXT if kind == "text" else BINARY, expected_text(text))
        elif "pong" in expect:
            assert await client.frame() == (PONG, bytes.fromhex(expect["pong"]))
        elif expect["closed_with"] == 1006:
            assert await client.rest() == b""
            await handler.ended.wait()
            assert handler.code == 1006
        else:
            assert await client.closing_code() == expect["closed_with"]
            assert await client.rest() == b""
        if "closed_with" not in expect:
            await client.send(client_frame(PING, b"open"))
            assert await client.frame() == (PONG, b"open")
        nursery.cancel_scope.cancel()
    async with serving(limits=LIMITS) as front:
        assert (await front.ask(get())).status == 200
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def wire(case: dict[str, Any]) -> list[bytes]:
    """The bytes of a case, one item for each write; some are described, not given."""
    if "bytes_hex" in case:
        return [bytes.fromhex(part) for part in case["bytes_hex"]]
    match case["id"].split("-"):
        case ["size", size]:
            return [client_frame(TEXT, b"a" * int(size))]
        case ["half", *_]:
            return [client_frame(TEXT, b"hello")[:6]]
        case [count, "tiny", "frames"]:
            return [client_frame(TEXT, b"a") * int(count)]
        case _:
            pytest.fail(f"unknown case {case['id']}")


def expected_text(text: str) -> bytes:
    count, times, rest = text.partition(" x ")
    return (rest * int(count) if times else text).encode()
