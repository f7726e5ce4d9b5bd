"""The websocket: handshake, the commands, and their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from callboard.actors.edges.live import SUBSCRIPTIONS_MOST
from callboard.actors.ports import Tuning
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.edge_readers import SeenEvent, event_of
from callboard.tests.flows.raw_client import Answer, handshake


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
    for query, path in (("x=1", "x"), ("client=", "client"), ("client=a%20b", "client")):
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
        assert (refused["type"], refused["code"], refused["session"]) == (
            "error",
            "too_many_subscriptions",
            sessions[-1],
        )
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
