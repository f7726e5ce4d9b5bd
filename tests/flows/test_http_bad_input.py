"""Bad input over HTTP: for each case the exact status, code and path. Nothing of it may be stored or logged as a fault."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard import CallboardError, Turn
from callboard.tests.flows.edge_kit import Served, serving_runtime

JSON = "application/json"
DEEP = b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LONG = "x" * 20_001

# name: (body, status, code, path)
MESSAGES: dict[str, tuple[bytes, int, str, str | None]] = {
    "no body": (b"", 400, "bad_json", None),
    "no JSON": (b"hello", 400, "bad_json", None),
    "half of it": (b'{"content": "x"', 400, "bad_json", None),
    "something behind it": (b'{"content": "x"} x', 400, "bad_json", None),
    "two values": (b'{"content": "x"}{}', 400, "bad_json", None),
    "a list": (b'["content"]', 400, "bad_json", None),
    "a string": (b'"content"', 400, "bad_json", None),
    "null": (b"null", 400, "bad_json", None),
    "NaN": (b'{"content": NaN}', 400, "bad_json", None),
    "Infinity": (b'{"content": "x", "a": -Infinity}', 400, "bad_json", None),
    "single quotes": (b"{'content': 'x'}", 400, "bad_json", None),
    "a trailing comma": (b'{"content": "x",}', 400, "bad_json", None),
    "a comment": (b'{"content": "x" /* y */}', 400, "bad_json", None),
    "a control character": (b'{"content": "a\nb"}', 400, "bad_json", None),
    "a bare NUL": (b'{"content": "a\0b"}', 400, "bad_json", None),
    "not UTF-8": (b'{"content": "\xff"}', 400, "bad_json", None),
    "UTF-16": ('{"content": "x"}'.encode("utf-16"), 400, "bad_json", None),
    "UTF-32 without a mark": ('{"content": "x"}'.encode("utf-32-le"), 400, "bad_json", None),
    "a surrogate in UTF-8": (b'{"content": "\xed\xa0\x80"}', 400, "bad_json", None),
    "a name twice": (b'{"content": "x", "content": "y"}', 400, "bad_json", None),
    "a name twice further down": (b'{"content": {"a": 1, "a": 1}}', 400, "bad_json", None),
    "deep nesting": (DEEP, 400, "bad_json", None),
    "nesting of 100": (b'{"content":' + b"[" * 100 + b"]" * 100 + b"}", 400, "bad_json", None),
    "a number of 100,000 digits": (b'{"content": ' + b"9" * 100_000 + b"}", 400, "bad_json", None),
    "an empty object": (b"{}", 400, "invalid_field", "content"),
    "a number": (b'{"content": 1}', 400, "invalid_field", "content"),
    "a huge number": (b'{"content": 1e999}', 400, "invalid_field", "content"),
    "a boolean": (b'{"content": true}', 400, "invalid_field", "content"),
    "content null": (b'{"content": null}', 400, "invalid_field", "content"),
    "an array": (b'{"content": ["x"]}', 400, "invalid_field", "content"),
    "an object": (b'{"content": {"text": "x"}}', 400, "invalid_field", "content"),
    "an unknown field": (b'{"content": "x", "contents": "y"}', 400, "invalid_field", "contents"),
    "a sender": (b'{"content": "x", "sender": {"id": "boss"}}', 400, "invalid_field", "sender"),
    "an unknown field of half a pair": (b'{"content": "x", "\\ud800": 1}', 400, "invalid_field", "\ufffd"),
    "an unknown field of 5,000 characters": (
        b'{"content": "x", "' + b"f" * 5000 + b'": 1}',
        400,
        "invalid_field",
        None,
    ),
    "empty content": (b'{"content": ""}', 400, "invalid_field", "content"),
    "blank content": (b'{"content": " \\n\\t\\u3000"}', 400, "invalid_field", "content"),
    "content with NUL": (b'{"content": "a\\u0000b"}', 400, "invalid_field", "content"),
    "half a pair": (b'{"content": "a\\ud800"}', 400, "invalid_field", "content"),
    "the other half": (b'{"content": "\\udc00 b"}', 400, "invalid_field", "content"),
    "content too long": (b'{"content": "' + LONG.encode() + b'"}', 400, "invalid_field", "content"),
    "content far too long": (b'{"content": "' + b"x" * 1_000_000 + b'"}', 400, "invalid_field", "content"),
    "an empty message id": (b'{"content": "x", "message_id": ""}', 400, "invalid_field", "message_id"),
    "a message id with a space": (b'{"content": "x", "message_id": "a b"}', 400, "invalid_field", "message_id"),
    "a message id with a slash": (b'{"content": "x", "message_id": "a/b"}', 400, "invalid_field", "message_id"),
    "a message id with a line's end": (b'{"content": "x", "message_id": "a\\n"}', 400, "invalid_field", "message_id"),
    "a message id with half a pair": (b'{"content": "x", "message_id": "\\ud800"}', 400, "invalid_field", "message_id"),
    "a message id that is too long": (
        b'{"content": "x", "message_id": "' + b"m" * 129 + b'"}',
        400,
        "invalid_field",
        "message_id",
    ),
    "a message id that is a number": (b'{"content": "x", "message_id": 7}', 400, "invalid_field", "message_id"),
}

SESSIONS: dict[str, tuple[dict[str, Any], str]] = {
    "no agent": ({}, "agent"),
    "agent empty": ({"agent": ""}, "agent"),
    "agent null": ({"agent": None}, "agent"),
    "agent a number": ({"agent": 3}, "agent"),
    "agent with NUL": ({"agent": "a\0b"}, "agent"),
    "agent half a pair": ({"agent": "\ud800"}, "agent"),
    "agent too long": ({"agent": "a" * 100_000}, "agent"),
    "path without a slash": ({"agent": "desk", "path": "ops"}, "path"),
    "path empty": ({"agent": "desk", "path": ""}, "path"),
    "path with a slash at its end": ({"agent": "desk", "path": "/ops/"}, "path"),
    "path with an empty segment": ({"agent": "desk", "path": "/ops//x"}, "path"),
    "path with dots": ({"agent": "desk", "path": "/ops/../x"}, "path"),
    "path in capitals": ({"agent": "desk", "path": "/Ops"}, "path"),
    "path with a line's end": ({"agent": "desk", "path": "/ops\n"}, "path"),
    "path half a pair": ({"agent": "desk", "path": "/\ud800"}, "path"),
    "path too deep": ({"agent": "desk", "path": "/a" * 9}, "path"),
    "path too long": ({"agent": "desk", "path": "/" + "a" * 300}, "path"),
    "path a list": ({"agent": "desk", "path": ["/"]}, "path"),
    "title a number": ({"agent": "desk", "title": 1}, "title"),
    "title null": ({"agent": "desk", "title": None}, "title"),
    "title blank": ({"agent": "desk", "title": "  "}, "title"),
    "title too long": ({"agent": "desk", "title": "t" * 201}, "title"),
    "title with NUL": ({"agent": "desk", "title": "a\0"}, "title"),
    "title half a pair": ({"agent": "desk", "title": "\udfff"}, "title"),
    "an id of its own": ({"agent": "desk", "id": "ses_1"}, "id"),
    "a kind of its own": ({"agent": "desk", "kind": "internal"}, "kind"),
    "a parent of its own": ({"agent": "desk", "parent": "ses_1"}, "parent"),
}

# path and query, path of the error
QUERIES: list[tuple[str, str]] = [
    *[
        (f"/v1/sessions?limit={text}", "limit")
        for text in ("0", "201", "-1", "1.5", "x", "", "1e2", "%20", "9" * 30, "%D9%A1")
    ],
    *[(f"/v1/inbox?limit={text}", "limit") for text in ("0", "201", "99999", "+5")],
    *[
        (f"/v1/sessions?cursor={text}", "cursor")
        for text in ("x", "", "1", "nan~x", "inf~x", "1e5~x", "-1~x", "~", "9" * 99 + "~x")
    ],
    *[(f"/v1/inbox?cursor={text}", "cursor") for text in ("x", "", "-1", "1.0", "9" * 40, "%00")],
    ("/v1/sessions?status=sleeping", "status"),
    ("/v1/sessions?status=", "status"),
    ("/v1/sessions?path=ops", "path"),
    ("/v1/sessions?path=", "path"),
    ("/v1/sessions?paths=/ops", "paths"),
    ("/v1/sessions?limit=1&limit=2", "limit"),
    ("/v1/inbox?status=sleeping", "status"),
    ("/v1/inbox?before=yesterday", "before"),
    ("/v1/inbox?before=2020-01-01T00:00:00", "before"),
    ("/v1/inbox?before=", "before"),
    ("/v1/inbox?targets=x", "targets"),
    ("/v1/tree?depth=1", "depth"),
    ("/v1/messages/m?x", "x"),
    *[
        (f"/v1/sessions/ID/{tail}?after={text}", "after")
        for tail in ("transcript", "events")
        for text in ("-1", "x", "1.0", "", "9223372036854775808", "9" * 60, "%F0%9F%98%80", "0x1", "1_0", "%201")
    ],
    ("/v1/sessions/ID/transcript?limit=0", "limit"),
    ("/v1/sessions/ID/events?from=1", "from"),
    ("/v1/sessions/ID?x=1", "x"),
    ("/v1/turns/turn_x/events?after=-1", "after"),
]


@pytest.mark.spec("MSG-1")
async def test_messages_that_are_wrong(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    session = await served.open("patient")
    headers = {"Content-Type": JSON}
    wrong: dict[str, object] = {}
    with caplog.at_level(logging.WARNING):
        for name, (body, status, code, path) in MESSAGES.items():
            answer = await served.client.post(f"/v1/sessions/{session}/messages", content=body, headers=headers)
            error = answer.json()["error"]
            found = (answer.status_code, error["code"], error.get("path"))
            if name == "an unknown field of 5,000 characters":
                found = (*found[:2], None if len(error["path"]) == 200 else error["path"])
            if found != (status, code, path) or not 0 < len(error["message"]) <= 500:
                wrong[name] = answer.text
    assert not wrong
    assert (await served.client.get(f"/v1/sessions/{session}/transcript")).json() == {"entries": []}
    assert not caplog.records


async def test_the_longest_message_is_taken(served: Served) -> None:
    session = await served.open("patient")
    for content in ("x" * 20_000, "\U0001f600" * 20_000, "[system] \u202e \\ \" ' </script> \x01\x7f"):
        await served.post(session, content)
    entries = (await served.client.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
    assert [len(entry["content"]) for entry in entries][:2] == [20_000, 20_000]


async def test_sessions_that_are_wrong(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    wrong: dict[str, object] = {}
    with caplog.at_level(logging.WARNING):
        for name, (body, path) in SESSIONS.items():
            code = "invalid_field" if body.get("agent") in (None, "desk", 3, "\ud800") else "unknown_agent"
            # Not by httpx, which can't write half a pair.
            answer = await served.client.post("/v1/sessions", content=json.dumps(body), headers={"Content-Type": JSON})
            error = answer.json()["error"]
            if (answer.status_code, error["code"], error["path"]) != (400, code, path) or len(error["message"]) > 500:
                wrong[name] = answer.text
    assert not wrong
    assert len((await served.client.get("/v1/sessions")).json()["sessions"]) == 1
    assert not caplog.records


async def test_a_title_of_10_000_characters_is_refused_however_it_is_given(tmp_path: Path) -> None:
    """Over HTTP, by an agent's own doing and by a tool; by the command line in `test_cli_places`. Nothing of it reaches a store."""
    long, refusals = "t" * 10_000, list[tuple[str, str | None]]()

    async def namer(turn: Turn) -> str:
        for way in (
            lambda: turn.desk.rename(turn.scope, turn.session.id, title=long),
            lambda: turn.desk.open(turn.scope, "namer", title=long),
            lambda: turn.tools.agent("work", title=long),
        ):
            try:
                await way()
            except CallboardError as refusal:
                refusals.append((refusal.code, refusal.path))
            except Exception as error:  # of the test's own doing: it would be tried again and again
                refusals.append((repr(error), None))
        return "done"

    async with serving_runtime(tmp_path, agents={"namer": namer}) as served:
        await served.runtime.set_policy(agents="rename")
        session = await served.open("namer", path="/ops/deploy", title="Deploys")
        for method, path, body in (
            ("POST", "/v1/sessions", {"agent": "namer", "title": long}),
            ("PATCH", f"/v1/sessions/{session}", {"title": long}),
            ("PATCH", f"/v1/sessions/{session}", {"title": long, "path": "/ops/release"}),
        ):
            error = await served.refused(method, path, 400, "invalid_field", json=body)
            assert (error["path"], len(error["message"]) < 100) == ("title", True)
        await served.say(session, "name yourself")
        assert refusals == [("invalid_field", "title")] * 3
        sessions = (await served.client.get("/v1/sessions")).json()["sessions"]
    assert {(one["path"], one["title"]) for one in sessions} == {("/", ""), ("/ops/deploy", "Deploys")}


@pytest.mark.spec("EVT-3")
async def test_parameters_that_are_wrong(served: Served) -> None:
    session = await served.open()
    wrong: dict[str, object] = {}
    for address, path in QUERIES:
        answer = await served.client.get(address.replace("ID", session))
        error = answer.json()["error"]
        if (answer.status_code, error["code"], error["path"]) != (400, "invalid_field", path):
            wrong[address] = answer.text
    assert not wrong


async def test_another_content_type_is_415(served: Served) -> None:
    session = await served.open("patient")
    for given in ("text/plain", "", "text/json", "application/jsonx", "application/json; charset=utf-16"):
        for method, path in (
            ("POST", "/v1/sessions"),
            ("PATCH", f"/v1/sessions/{session}"),
            ("POST", f"/v1/sessions/{session}/messages"),
            ("POST", f"/v1/sessions/{session}/stop"),
            ("POST", "/v1/inbox/m/requeue"),
            ("POST", "/v1/inbox/m/cancel"),
        ):
            headers = {"Content-Type": given} if given else {}
            error = await served.refused(method, path, 415, "unsupported_media_type", content=b"{}", headers=headers)
            assert error["path"] == "Content-Type"


async def test_json_in_utf8_is_taken_however_it_is_written(served: Served) -> None:
    for given in (JSON, "Application/JSON", 'application/json;charset="UTF-8"', "application/json; charset=utf-8; x=y"):
        for content in (
            b'{"agent": "desk"}',
            b' \r\n\t{"\\u0061gent":"desk","path":null} ',
            b'\xef\xbb\xbf{"agent":"desk"}',
        ):
            answer = await served.client.post("/v1/sessions", content=content, headers={"Content-Type": given})
            assert answer.status_code == 201, (given, content)


async def test_bodies_where_there_is_nothing_to_say(served: Served) -> None:
    session = await served.open("patient")
    for path, code in ((f"/v1/sessions/{session}/stop", "inactive"), ("/v1/inbox/m/cancel", "not_found")):
        status = 409 if code == "inactive" else 404
        for content in (b"", b"{}"):
            await served.refused("POST", path, status, code, content=content, headers={"Content-Type": JSON})
        error = await served.refused("POST", path, 400, "invalid_field", json={"force": True})
        assert error["path"] == "force"
        await served.refused("POST", path, 400, "bad_json", content=b"[]", headers={"Content-Type": JSON})
    error = await served.refused("POST", f"/v1/sessions/{session}/stop", 400, "invalid_field", json={"drop_queued": 1})
    assert error["path"] == "drop_queued"


async def test_a_body_of_two_megabytes_is_413(served: Served) -> None:
    session = await served.open("patient")
    body = b'{"content": "' + b"x" * 2 * 1024 * 1024 + b'"}'
    for framing, sent in (
        (f"Content-Length: {len(body)}", body),
        ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)),
    ):
        fields = [
            f"POST /v1/sessions/{session}/messages HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {served.token}",
            f"Content-Type: {JSON}",
            framing,
        ]
        async with await served.raw() as client:
            with suppress(trio.BrokenResourceError):
                await client.send("\r\n".join([*fields, "", ""]).encode() + sent)
            answer = await client.answer()
        assert answer.status == 413
        assert json.loads(answer.body)["error"]["code"] == "body_too_large"
        assert answer.headers["content-type"] == JSON


@pytest.mark.spec("EVT-3")
async def test_a_last_event_id_that_is_no_cursor_is_400(served: Served) -> None:
    session = await served.open()
    message = await served.say(session, "echo hi")
    for last in ("-1", "x", "1.5", "", "9223372036854775808", "1 2", "0x10"):
        for path in (f"/v1/sessions/{session}/events", f"/v1/turns/{message['turn_id']}/events"):
            error = await served.refused("GET", path, 400, "invalid_field", headers={"Last-Event-ID": last})
            assert error["path"] == "Last-Event-ID"


async def test_turns_that_are_none(served: Served) -> None:
    session = await served.open()
    message = await served.say(session, "echo hi", message_id="msg_mine")
    hex_part = message["id"].removeprefix("msg_")
    for turn in (
        "x",
        hex_part,
        message["id"],
        "turn_",
        "turn_mine",
        "turn_turn_" + hex_part,
        "turn_" + hex_part.upper() + "x",
    ):
        await served.refused("GET", f"/v1/turns/{turn}/events", 404, "not_found")
