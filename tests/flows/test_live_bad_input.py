"""Wrong frames over the websocket: each is answered with an error frame of its own code; only what breaks the protocol ends it."""

from __future__ import annotations

import json
import logging

import pytest
import trio

from callboard.tests.flows.edge_kit import Served
from callboard.tests.flows.raw_client import BINARY, CLOSE, TEXT, client_frame, handshake

# name: (frame, code, session, message_id)
WRONG: dict[str, tuple[str, str, str | None, str | None]] = {
    "no JSON": ("hello", "bad_json", None, None),
    "empty": ("", "bad_json", None, None),
    "a list": ("[]", "bad_json", None, None),
    "a name twice": ('{"type": "stop", "type": "stop", "session": "s"}', "bad_json", None, None),
    "NaN": ('{"type": "subscribe", "session": "s", "after": NaN}', "bad_json", None, None),
    "deep nesting": ('{"type":' + "[" * 50_000 + "]" * 50_000 + "}", "bad_json", None, None),
    "no type": ('{"session": "s"}', "unknown_type", "s", None),
    "an unknown type": ('{"type": "shout", "session": "s"}', "unknown_type", "s", None),
    "a type in capitals": ('{"type": "Subscribe", "session": "s"}', "unknown_type", "s", None),
    "a type that is a number": ('{"type": 1}', "unknown_type", None, None),
    "a type that is a list": ('{"type": ["stop"]}', "unknown_type", None, None),
    "a frame of the server": ('{"type": "event", "session": "s"}', "unknown_type", "s", None),
    "no session": ('{"type": "subscribe"}', "invalid_field", None, None),
    "a session that is a number": ('{"type": "subscribe", "session": 1}', "invalid_field", None, None),
    "a session that is null": ('{"type": "stop", "session": null}', "invalid_field", None, None),
    "an unknown session": ('{"type": "subscribe", "session": "ses_no"}', "unknown_target", "ses_no", None),
    "a path": ('{"type": "subscribe", "session": "/"}', "unknown_target", "/", None),
    "an unknown field": ('{"type": "stop", "session": "s", "now": true}', "invalid_field", "s", None),
    "a sender": ('{"type": "send", "session": "s", "content": "x", "sender": "boss"}', "invalid_field", "s", None),
    "a cursor that is text": ('{"type": "subscribe", "session": "s", "after": "0"}', "invalid_field", "s", None),
    "a cursor that is a fraction": ('{"type": "subscribe", "session": "s", "after": 1.0}', "invalid_field", "s", None),
    "a cursor that is true": ('{"type": "subscribe", "session": "s", "after": true}', "invalid_field", "s", None),
    "a cursor that is null": ('{"type": "subscribe", "session": "s", "after": null}', "invalid_field", "s", None),
    "a cursor below 0": ('{"type": "subscribe", "session": "s", "after": -1}', "invalid_field", "s", None),
    "a cursor of 64 bits": (
        '{"type": "subscribe", "session": "s", "after": 9223372036854775808}',
        "invalid_field",
        "s",
        None,
    ),
    "a cursor of 5,000 digits": (
        '{"type": "subscribe", "session": "s", "after": ' + "9" * 5000 + "}",
        "bad_json",
        None,
        None,
    ),
    "a cursor of 1e999": ('{"type": "subscribe", "session": "s", "after": 1e999}', "invalid_field", "s", None),
    "no content": ('{"type": "send", "session": "s", "message_id": "m"}', "invalid_field", "s", "m"),
    "empty content": ('{"type": "send", "session": "s", "content": "", "message_id": "m"}', "invalid_field", "s", "m"),
    "content with NUL": ('{"type": "send", "session": "s", "content": "a\\u0000"}', "invalid_field", "s", None),
    "half a pair": ('{"type": "send", "session": "s", "content": "\\ud800"}', "invalid_field", "s", None),
    "a session of half a pair": ('{"type": "stop", "session": "\\ud800"}', "invalid_field", None, None),
    "content too long": (
        '{"type": "send", "session": "s", "content": "' + "x" * 20_001 + '"}',
        "invalid_field",
        "s",
        None,
    ),
    "a bad message id": (
        '{"type": "send", "session": "s", "content": "x", "message_id": "a b"}',
        "invalid_field",
        "s",
        "a b",
    ),
    "a message id too long": (
        '{"type": "send", "session": "s", "content": "x", "message_id": "' + "m" * 129 + '"}',
        "invalid_field",
        "s",
        None,
    ),
    "a post to nobody": (
        '{"type": "send", "session": "ses_no", "content": "x", "message_id": "m"}',
        "unknown_target",
        "ses_no",
        "m",
    ),
    "a stop of nobody": ('{"type": "stop", "session": "ses_no"}', "unknown_target", "ses_no", None),
}


@pytest.mark.spec("EVT-5")
async def test_a_wrong_frame_is_answered_and_the_connection_stays(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: dict[str, object] = {}
    with caplog.at_level(logging.WARNING):
        async with served.live() as live:
            for name, (text, code, session, message_id) in WRONG.items():
                await live.websocket.send_message(text)
                frame = await live.frame()
                found = frame["type"], frame["code"], frame.get("session"), frame.get("message_id")
                extra = set(frame) - {"type", "code", "message", "session", "message_id"}
                if found != ("error", code, session, message_id) or extra or not 0 < len(frame["message"]) <= 500:
                    wrong[name] = frame
            await live.websocket.send_message(b"\x00\x01")
            assert (await live.frame())["code"] == "binary_frame"
            session = await served.open("patient")
            assert (await live.ask("send", session=session, content="still here"))["type"] == "accepted"
    assert not wrong
    assert not caplog.records


@pytest.mark.spec("EVT-5")
async def test_a_frame_over_a_megabyte_is_1009(served: Served) -> None:
    session = await served.open("patient")
    async with served.live() as live:
        text = json.dumps({"type": "send", "session": session, "content": "x"})
        await live.websocket.send_message(text + " " * (1024 * 1024 - len(text)))
        assert (await live.frame())["type"] == "accepted"
        with trio.move_on_after(5):
            await live.websocket.send_message(text + " " * (1024 * 1024 - len(text) + 1))
        assert (await live.closing())[0] == 1009
    assert (await served.client.get("/healthz")).status_code == 200


async def test_text_that_is_not_utf8_is_1007(served: Served) -> None:
    async with await served.raw() as client:
        head = handshake("/v1/live", f"Authorization: Bearer {served.token}\r\n".encode())
        await client.send(head.replace(b"Host: test", b"Host: localhost"))
        assert (await client.answer()).status == 101
        await client.send(client_frame(BINARY, b"\xff"))
        opcode, payload = await client.frame()
        assert (opcode, json.loads(payload)["code"]) == (TEXT, "binary_frame")
        await client.send(client_frame(TEXT, b"\xff"))
        opcode, payload = await client.frame()
        assert (opcode, payload[:2]) == (CLOSE, (1007).to_bytes(2, "big"))
