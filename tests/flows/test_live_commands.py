"""The websocket: handshake, the commands and their answers, and every way to say one wrongly."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import trio

from callboard.actors.edges.live import SUBSCRIPTIONS_MOST
from callboard.actors.ports import Tuning
from callboard.tests.flows.edge_kit import SeenEvent, Served, event_of, serving_runtime
from callboard.tests.flows.raw_client import BINARY, CLOSE, TEXT, Answer, client_frame, handshake


async def upgrade(served: Served, *fields: str, path: str = "/v1/live", token: str | None = None) -> Answer:
    """A handshake with raw fields; the token is the right one unless given ("" for none)."""
    bearer = served.token if token is None else token
    given = [f"Authorization: Bearer {bearer}"] if bearer else []
    async with await served.raw() as client:
        head = handshake(path, "".join(f"{field}\r\n" for field in [*given, *fields]).encode())
        await client.send(head.replace(b"Host: test", b"Host: localhost:%d" % served.port))
        return await client.answer()


def error_of(answer: Answer) -> tuple[int, str, str | None]:
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    return answer.status, error["code"], error.get("path")


@pytest.mark.spec("EVT-5")
async def test_the_handshake_needs_the_token(served: Served) -> None:
    for token in ("", "a" * 43, served.token + "x"):
        answer = await upgrade(served, token=token)
        assert error_of(answer) == (401, "unauthorized", None)
        assert answer.headers["www-authenticate"] == 'Bearer realm="callboard"'
    answer = await upgrade(served, path=f"/v1/live?token={served.token}", token="")
    assert answer.status == 401
    assert (await upgrade(served)).status == 101


@pytest.mark.spec("EVT-5")
async def test_the_subprotocol_is_negotiated(served: Served) -> None:
    for offered in ("callboard.v1", "other, callboard.v1", "callboard.v1, callboard.v2"):
        answer = await upgrade(served, f"Sec-WebSocket-Protocol: {offered}")
        assert (answer.status, answer.headers["sec-websocket-protocol"]) == (101, "callboard.v1")
    answer = await upgrade(served)
    assert (answer.status, answer.headers.get("sec-websocket-protocol")) == (101, None)
    answer = await upgrade(served, "Sec-WebSocket-Protocol: callboard.v2, CALLBOARD.V1")
    assert error_of(answer) == (400, "invalid_field", "Sec-WebSocket-Protocol")


async def test_what_else_a_handshake_is_refused_for(served: Served) -> None:
    assert error_of(await upgrade(served, "Origin: http://evil.example")) == (403, "forbidden", "Origin")
    assert (await upgrade(served, f"Origin: http://localhost:{served.port}")).status == 101
    for path in ("/", "/v1/live/", "/v1/lives", "//v1/live"):
        assert error_of(await upgrade(served, path=path))[:2] == (404, "not_found")
    for query, path in (("x=1", "x"), ("ticket=abc", "ticket"), ("client=", "client"), ("client=a%20b", "client")):
        assert error_of(await upgrade(served, path=f"/v1/live?{query}")) == (400, "invalid_field", path)
    for query in ("client=a&client=a", "client=" + "c" * 65, "client=%ff", "client=a/b"):
        assert error_of(await upgrade(served, path=f"/v1/live?{query}")) == (400, "invalid_field", "client")
    assert (await upgrade(served, path="/v1/live?client=" + "c" * 64)).status == 101
    answer = await served.client.get("/v1/live")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.spec("EVT-5")
async def test_a_whole_conversation(served: Served) -> None:
    session = await served.open("counter")
    async with served.live("?client=tab-1") as live:
        assert live.websocket.subprotocol == "callboard.v1"
        assert await live.ask("subscribe", session=session, after=0) == {
            "type": "subscribed",
            "session": session,
            "newest": 0,
        }
        await live.say("send", session=session, content="count 3", message_id="m-1")
        frames = [await live.frame() for _ in range(8)]
        (accepted,) = [frame for frame in frames if frame["type"] != "event"]
        assert accepted == {
            "type": "accepted",
            "session": session,
            "message_id": "m-1",
            "created": True,
            "status": "pending",
            "seq": 1,
        }
        assert {frame["session"] for frame in frames} == {session}
        seen = [event_of(frame) for frame in frames if frame["type"] == "event"]
        assert seen == await served.log(session)
        assert seen[-1][1] == "turn.completed"
        again = await live.ask("send", session=session, content="count 3", message_id="m-1")
        assert again == {**accepted, "created": False, "status": "delivered"}
        conflict = await live.ask("send", session=session, content="count 4", message_id="m-1")
        assert {**conflict, "message": None} == {
            "type": "error",
            "code": "message_conflict",
            "message": None,
            "session": session,
            "message_id": "m-1",
        }


@pytest.mark.spec("INB-1")
async def test_accepted_comes_after_the_commit(served: Served) -> None:
    session = await served.open("patient")
    async with served.live() as live:
        for number in range(20):
            accepted = await live.ask("send", session=session, content=f"message {number}")
            view = await served.runtime.receipt(accepted["message_id"])
            assert (view.session, view.seq, view.content) == (session, accepted["seq"], f"message {number}")


@pytest.mark.spec("EVT-5")
async def test_a_stop_over_the_websocket(served: Served) -> None:
    session = await served.open("patient")
    async with served.live() as live:
        inactive = await live.ask("stop", session=session)
        assert (inactive["type"], inactive["code"], inactive["session"]) == ("error", "inactive", session)
        await served.post(session, "work")
        await served.until(session, "turn.token")
        assert await live.ask("stop", session=session) == {"type": "stopping", "session": session}
        await served.until(session, "turn.stopped")


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_every_cursor_gives_exactly_what_is_above_it(served: Served) -> None:
    session = await served.open("counter")
    await served.say(session, "count 5")
    log = await served.log(session)
    async with served.live() as live:
        for cursor in range(len(log)):
            answer = await live.ask("subscribe", session=session, after=cursor)
            assert (answer["type"], answer["newest"]) == ("subscribed", len(log))
            assert await live.events(len(log) - cursor) == log[cursor:]
            await live.say("unsubscribe", session=session)
        for cursor in (len(log) + 1, 2**63 - 1):
            assert (await live.ask("subscribe", session=session, after=cursor))["newest"] == len(log)
            assert await live.frame() == {"type": "resync", "session": session, "after": len(log), "oldest": 1}
            await live.say("unsubscribe", session=session)


@pytest.mark.spec("EVT-2")
async def test_two_websockets_and_a_stream_show_the_same(served: Served) -> None:
    session = await served.open("counter")
    seen: dict[str, list[SeenEvent]] = {}
    async with trio.open_nursery() as nursery:
        ready = trio.Event()

        async def follow_live(name: str) -> None:
            async with served.live() as live:
                await live.ask("subscribe", session=session)
                ready.set()
                seen[name] = await live.until("turn.completed")

        async def follow_stream() -> None:
            async with served.stream(f"/v1/sessions/{session}/events") as stream:
                seen["stream"] = await stream.until("turn.completed")

        for name in ("one", "two"):
            nursery.start_soon(follow_live, name)
        nursery.start_soon(follow_stream)
        await ready.wait()
        await served.say(session, "count 60")
    log = await served.log(session)
    assert seen == {"one": log, "two": log, "stream": log}


async def test_many_sessions_over_one_connection(served: Served) -> None:
    sessions = [await served.open("counter") for _ in range(SUBSCRIPTIONS_MOST + 1)]
    async with served.live() as live:
        for session in sessions[:-1]:
            assert (await live.ask("subscribe", session=session))["type"] == "subscribed"
        refused = await live.ask("subscribe", session=sessions[-1])
        assert (refused["type"], refused["code"], refused["session"]) == ("error", "too_many_subscriptions", sessions[-1])
        again = await live.ask("subscribe", session=sessions[0])
        assert (again["type"], again["code"]) == ("error", "already_subscribed")
        for session in sessions[:8]:
            await served.runtime.send(session, "count 5")
        seen: dict[str, list[SeenEvent]] = {session: [] for session in sessions[:8]}
        while any(not log or log[-1][1] != "turn.completed" for log in seen.values()):
            frame = await live.frame()
            seen[frame["session"]].append(event_of(frame))
        for session, log in seen.items():
            assert log == await served.log(session)
        await live.say("unsubscribe", session=sessions[0])
        assert (await live.ask("subscribe", session=sessions[-1]))["type"] == "subscribed"
        assert (await live.ask("unsubscribe", session=sessions[0]))["code"] == "not_subscribed"


async def test_after_unsubscribing_nothing_comes(served: Served) -> None:
    session, other = await served.open("counter"), await served.open("counter")
    async with served.live() as live:
        await live.ask("subscribe", session=session)
        await live.say("unsubscribe", session=session)
        await live.ask("subscribe", session=other)
        await served.say(session, "count 5")
        await served.say(other, "count 1")
        assert await live.until("turn.completed") == await served.log(other)


async def test_a_deleted_session_ends_its_subscription(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "work")
    await served.until(session, "turn.token")
    async with served.live() as live:
        await live.ask("subscribe", session=session)
        await live.until("turn.token")
        await served.client.delete(f"/v1/sessions/{session}")
        ((_, kind, data),) = await live.events(1)
        assert (kind, data["reason"]) == ("turn.failed", "target_deleted")
        gone = await live.frame()
        assert (gone["type"], gone["code"], gone["session"]) == ("error", "unknown_target", session)
        for command in ("subscribe", "unsubscribe", "stop"):
            code = (await live.ask(command, session=session))["code"]
            assert code == ("not_subscribed" if command == "unsubscribe" else "unknown_target")


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
    "a cursor of 64 bits": ('{"type": "subscribe", "session": "s", "after": 9223372036854775808}', "invalid_field", "s", None),
    "a cursor of 5,000 digits": ('{"type": "subscribe", "session": "s", "after": ' + "9" * 5000 + "}", "bad_json", None, None),
    "a cursor of 1e999": ('{"type": "subscribe", "session": "s", "after": 1e999}', "invalid_field", "s", None),
    "no content": ('{"type": "send", "session": "s", "message_id": "m"}', "invalid_field", "s", "m"),
    "empty content": ('{"type": "send", "session": "s", "content": "", "message_id": "m"}', "invalid_field", "s", "m"),
    "content with NUL": ('{"type": "send", "session": "s", "content": "a\\u0000"}', "invalid_field", "s", None),
    "half a pair": ('{"type": "send", "session": "s", "content": "\\ud800"}', "invalid_field", "s", None),
    "a session of half a pair": ('{"type": "stop", "session": "\\ud800"}', "invalid_field", None, None),
    "content too long": ('{"type": "send", "session": "s", "content": "' + "x" * 20_001 + '"}', "invalid_field", "s", None),
    "a bad message id": ('{"type": "send", "session": "s", "content": "x", "message_id": "a b"}', "invalid_field", "s", "a b"),
    "a message id too long": (
        '{"type": "send", "session": "s", "content": "x", "message_id": "' + "m" * 129 + '"}',
        "invalid_field",
        "s",
        None,
    ),
    "a post to nobody": ('{"type": "send", "session": "ses_no", "content": "x", "message_id": "m"}', "unknown_target", "ses_no", "m"),
    "a stop of nobody": ('{"type": "stop", "session": "ses_no"}', "unknown_target", "ses_no", None),
}


@pytest.mark.spec("EVT-5")
async def test_a_wrong_frame_is_answered_and_the_connection_stays(served: Served, caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.spec("RT-14")
async def test_limits_answer_with_their_code(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, tuning=Tuning(mailbox_depth=2)) as served:
        session = await served.open("patient")
        async with served.live() as live:
            for _ in range(2):
                assert (await live.ask("send", session=session, content="x"))["type"] == "accepted"
            refused = await live.ask("send", session=session, content="x", message_id="m")
            assert (refused["type"], refused["code"]) == ("error", "mailbox_full")
            assert (refused["session"], refused["message_id"]) == (session, "m")


async def test_commands_are_carried_out_in_order(served: Served) -> None:
    session = await served.open("patient")
    async with served.live() as live:
        for number in range(100):
            await live.say("send", session=session, content=f"message {number}", message_id=f"m-{number}")
        frames = [await live.frame() for _ in range(100)]
    assert [(frame["message_id"], frame["seq"]) for frame in frames] == [(f"m-{n}", n + 1) for n in range(100)]
