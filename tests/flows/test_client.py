"""The client library against a real server: nothing is lost or doubled over lost connections and restarts of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from callboard import client
from callboard.actors.client import live
from callboard.actors.client import subscription as window
from callboard.actors.ports import Tuning
from callboard.storage.model.errors import (
    Conflict,
    Inactive,
    InvalidField,
    MailboxFull,
    MessageConflict,
    Rejected,
    Unauthorized,
    Unavailable,
    UnknownTarget,
)
from callboard.tests.flows.cli_kit import Serving
from callboard.tests.flows.edge_kit import TERMINAL, SeenEvent, Served, serving_runtime


async def until(events: client.Subscription, *kinds: str) -> list[SeenEvent]:
    """Events up to the first of one of `kinds`."""
    found: list[SeenEvent] = []
    async for event in events:
        found.append((event.id, event.kind, event.data))
        if event.kind in kinds:
            return found
    raise AssertionError("a subscription never ends by itself")


@asynccontextmanager
async def relay(target: Served | Serving) -> AsyncIterator[Relay]:
    """A TCP relay to the server, whose connections a test can cut."""
    async with trio.open_nursery() as nursery:
        relayed = Relay(target.port)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, relayed.serve, listeners))
        relayed.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield relayed
        nursery.cancel_scope.cancel()


class Relay:
    def __init__(self, port: int) -> None:
        self.url = ""
        self.connections = 0
        self.cut_after: int | None = None
        """Cut each connection once the server has sent this many bytes."""
        self.deaf = False
        """Drop what the server sends."""
        self._port = port
        self._scopes: list[trio.CancelScope] = []

    def cut(self) -> None:
        """Cut every connection that there is."""
        for scope in self._scopes:
            scope.cancel()

    def lead_to(self, target: Served | Serving) -> None:
        """Connect to another server from now on, and cut what there is."""
        self._port = target.port
        self.cut()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        # A server that is gone refuses whoever comes.
        with trio.CancelScope() as scope, suppress(OSError):
            self._scopes.append(scope)
            async with await trio.open_tcp_stream("127.0.0.1", self._port) as server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, stream, server, nursery.cancel_scope, None)
                nursery.start_soon(self._copy, server, stream, nursery.cancel_scope, self.cut_after)
        await trio.aclose_forcefully(stream)

    def _from_server(self, stream: trio.SocketStream) -> bool:
        return stream.socket.getpeername()[1] == self._port

    async def _copy(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, most: int | None
    ) -> None:
        try:
            async for data in source:
                part = bytes(data) if most is None else bytes(data)[:most]
                if self.deaf and self._from_server(source):
                    continue
                await sink.send_all(part)
                if most is not None:
                    most -= len(part)
                    if most <= 0:
                        break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


async def test_a_conversation(served: Served) -> None:
    session = await served.open()
    async with client.connect(served.url, served.token, client="tester") as board:
        assert board.connected
        events = board.subscribe(session)
        accepted = await board.send(session, "echo hello", message_id="m-1")
        assert accepted == client.Accepted(session, "m-1", True, "pending", 1)
        seen = await until(events, *TERMINAL)
        assert seen == await served.log(session)
        assert seen[-1][2]["content"] == "hello"
        assert events.cursor == seen[-1][0]
        again = await board.send(session, "echo hello", message_id="m-1")
        assert (again.created, again.status, again.seq) == (False, "delivered", 1)
    with pytest.raises(Unavailable):
        await board.send(session, "echo too late")
    with pytest.raises(Unavailable):
        await anext(events)


async def test_a_send_without_an_id_gets_one(served: Served) -> None:
    session = await served.open()
    async with client.connect(served.url, served.token) as board:
        first, second = await board.send(session, "echo a"), await board.send(session, "echo a")
    assert first.message_id != second.message_id
    assert second.created


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8420", "http://", "http://h:port", "http://h:99999"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidField) as caught:
        async with client.connect(url, "token"):
            pass
    assert caught.value.path == "url"


async def test_without_a_server_it_says_so(served: Served) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(Unavailable, match="can't be reached"):
        async with client.connect(f"http://127.0.0.1:{port}", served.token):
            pass


async def test_a_wrong_token_is_refused_and_never_shown(served: Served) -> None:
    with pytest.raises(Unauthorized) as caught:
        async with client.connect(served.url, "not-the-token") as board:
            raise AssertionError(board)
    assert "not-the-token" not in str(caught.value)


async def test_the_token_is_not_in_any_repr(served: Served) -> None:
    async with client.connect(served.url, served.token) as board:
        assert served.token not in repr(vars(board))


async def test_another_kind_of_server_is_refused_by_name(nursery: trio.Nursery) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n")

    listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
    with pytest.raises(Rejected, match="404"):
        async with client.connect(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", "token"):
            pass


async def test_refusals_reach_who_asked(served: Served) -> None:
    session = await served.open()
    async with client.connect(served.url, served.token) as board:
        with pytest.raises(UnknownTarget):
            await board.send("ses_nowhere", "echo x")
        with pytest.raises(InvalidField):
            await board.send(session, "x" * 20_001)
        with pytest.raises(InvalidField):
            await board.send(session, "echo x", message_id="no spaces")
        with pytest.raises(Inactive):
            await board.stop(session)
        with pytest.raises(UnknownTarget):
            await anext(board.subscribe("ses_nowhere"))
        await board.send(session, "echo x", message_id="m-1")
        with pytest.raises(MessageConflict):
            await board.send(session, "echo y", message_id="m-1")
        events = board.subscribe(session)
        with pytest.raises(Conflict):
            board.subscribe(session)
        await until(events, *TERMINAL)


async def test_a_full_mailbox_is_an_answer_and_not_tried_again(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, tuning=Tuning(mailbox_depth=1)) as served:
        session = await served.open("patient")
        async with client.connect(served.url, served.token) as board:
            events = board.subscribe(session)
            await board.send(session, "work")
            await until(events, "turn.token")
            with pytest.raises(MailboxFull):
                await board.send(session, "more work")


async def test_a_stop_is_confirmed(served: Served) -> None:
    session = await served.open("patient")
    async with client.connect(served.url, served.token) as board:
        events = board.subscribe(session)
        await board.send(session, "work")
        await until(events, "turn.token")
        await board.stop(session)
        assert (await until(events, *TERMINAL))[-1][1] == "turn.stopped"


async def test_leaving_and_following_again_goes_on_at_the_cursor(served: Served) -> None:
    session = await served.open()
    async with client.connect(served.url, served.token) as board:
        events = board.subscribe(session)
        await board.send(session, "echo one")
        seen = await until(events, *TERMINAL)
        events.leave()
        await board.send(session, "echo two")
        seen += await until(board.subscribe(session, after=events.cursor), *TERMINAL)
        assert seen == await served.log(session)


async def test_started_tells_the_newest_event(served: Served) -> None:
    session = await served.open()
    await served.say(session, "echo one")
    newest = (await served.log(session))[-1][0]
    async with client.connect(served.url, served.token) as board:
        events = board.subscribe(session, after=10_000)
        assert await events.started() == newest
        first = await anext(events)
        assert (first.kind, first.id, first.data) == ("resync", newest, {"after": newest, "oldest": 1})
        assert events.cursor == newest


@pytest.mark.spec("EVT-3")
async def test_connections_that_are_cut_again_and_again_lose_and_double_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST_PAUSE", 0.02)
    session = await served.open("counter")
    changes: list[bool] = []
    async with relay(served) as line, client.connect(line.url, served.token, on_change=changes.append) as board:
        # Enough for the handshake and a few events: every connection ends in the middle of something.
        line.cut_after = 3_000
        line.cut()
        events = board.subscribe(session)
        await board.send(session, "count 60", message_id="m-1")
        seen = await until(events, *TERMINAL)
        assert seen == await served.log(session)
        assert line.connections > 4
        assert changes[:3] == [True, False, True]
        accepted = [event for event in seen if event[1] == "message.created"]
        assert [event[2]["message_id"] for event in accepted] == ["m-1"]


@pytest.mark.spec("INB-4")
async def test_a_send_whose_answer_is_lost_is_one_message(served: Served) -> None:
    session = await served.open()
    async with relay(served) as line, client.connect(line.url, served.token) as board:
        async with trio.open_nursery() as nursery:
            line.deaf = True
            outcomes: list[client.Accepted] = []

            async def send() -> None:
                outcomes.append(await board.send(session, "echo once", message_id="m-1"))

            nursery.start_soon(send)
            await served.until(session, *TERMINAL)
            assert not outcomes
            line.deaf = False
            line.cut()
        assert [outcome.created for outcome in outcomes] == [False]
    assert [event[1] for event in await served.log(session)].count("message.created") == 1


async def test_a_stop_whose_answer_is_lost_is_not_repeated(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "work")
    await served.until(session, "turn.token")
    async with relay(served) as line, client.connect(line.url, served.token) as board:
        line.deaf = True
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                with pytest.raises(Unavailable):
                    await board.stop(session)

            nursery.start_soon(stop)
            await served.until(session, *TERMINAL)
            await served.post(session, "more work")
            line.deaf = False
            line.cut()
        # The next turn of the session runs on: a stop that was asked again would have hit it.
        await board.send(session, "queued")
        assert [event[1] for event in await served.log(session)].count("turn.stopped") == 1


async def test_a_server_that_restarts_is_found_again(tmp_path: Path) -> None:
    with trio.fail_after(30):
        await _restart_under_a_client(tmp_path)


async def _restart_under_a_client(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        first_over, second_up = trio.Event(), trio.Event()

        async def restart(task_status: trio.TaskStatus[Served]) -> None:
            async with serving_runtime(tmp_path) as served:
                port = served.port
                task_status.started(served)
                await first_over.wait()
            async with serving_runtime(tmp_path, port=port):
                second_up.set()
                await trio.sleep_forever()

        served = await nursery.start(restart)
        session = await served.open()
        lost = trio.Event()

        def change(connected: bool) -> None:
            if not connected:
                lost.set()

        async with client.connect(served.url, served.token, on_change=change) as board:
            events = board.subscribe(session)
            await board.send(session, "echo before")
            await until(events, *TERMINAL)
            first_over.set()
            await lost.wait()
            # Sent into the void: it waits for the next server.
            assert (await board.send(session, "echo after")).seq == 3
            seen = await until(events, *TERMINAL)
            assert seen[-1][2]["content"] == "after"
            assert second_up.is_set()
        nursery.cancel_scope.cancel()


async def test_a_slow_reader_costs_a_window_and_misses_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "WINDOW", 8)
    session = await served.open("counter")
    async with client.connect(served.url, served.token) as board:
        events = board.subscribe(session)
        await events.started()
        await board.send(session, "count 100")
        await served.until(session, *TERMINAL)
        # By now everything was pushed, far more than the window holds.
        await board.send(session, "count 1")
        assert len(vars(events)["_queue"]) <= 8
        seen = await until(events, *TERMINAL) + await until(events, *TERMINAL)
        assert seen == (await served.log(session))[: len(seen)]
        assert seen[-1][1] == "turn.completed"


async def test_an_event_that_comes_twice_is_given_out_once() -> None:
    events = client.Subscription("ses", 4, lambda _, __: None)
    events.take(client.LiveEvent("ses", 5, "turn.token", {"text": "before it was confirmed"}))
    events.confirmed(newest=6)
    for number in (4, 5, 5, 6):
        events.take(client.LiveEvent("ses", number, "turn.token", {}))
    assert [(await anext(events)).id for _ in range(2)] == [5, 6]
    assert events.cursor == 6
    with trio.move_on_after(0) as scope:
        await anext(events)
    assert scope.cancelled_caught


async def test_a_session_that_is_deleted_ends_its_subscription(served: Served) -> None:
    session = await served.open()
    other = await served.open()
    async with client.connect(served.url, served.token) as board:
        events, others = board.subscribe(session), board.subscribe(other)
        await events.started()
        await served.client.delete(f"/v1/sessions/{session}")
        with pytest.raises(UnknownTarget):
            await anext(events)
        await board.send(other, "echo still here")
        assert (await until(others, *TERMINAL))[-1][2]["content"] == "still here"


async def test_cancelling_a_block_around_a_client_ends_it(served: Served) -> None:
    session = await served.open()
    with trio.move_on_after(0.2) as scope:
        async with client.connect(served.url, served.token) as board:
            await anext(board.subscribe(session))
    assert scope.cancelled_caught


async def test_an_error_in_the_block_comes_out_as_it_is(served: Served) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.connect(served.url, served.token):
            raise ZeroDivisionError
