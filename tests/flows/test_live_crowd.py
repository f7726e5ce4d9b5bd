"""What keeps a crowd cheap: what was committed together is encoded once and is one write for each subscriber, on a descriptor that is ours."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

from callboard.actors.edges.frames import FrameStream
from callboard.actors.edges.transport import Transport
from callboard.actors.tail import Sink, Tails
from callboard.storage.model.addresses import Scope
from callboard.tests.flows.edge_kit import Served


@pytest.mark.spec("EVT-2")
async def test_events_of_one_commit_are_one_write_and_the_same_bytes_for_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[FrameStream, list[bytes]] = {}
    joined = trio.Semaphore(0)
    send, join = FrameStream.try_send, Tails.join

    def noted(stream: FrameStream, frame: bytes) -> bool:
        sent = send(stream, frame)
        if sent and b'"type":"event"' in frame:
            written.setdefault(stream, []).append(frame)
        return sent

    def counted(tails: Tails, scope: Scope, session: str, sink: Sink, cursor: int) -> bool:
        taken = join(tails, scope, session, sink, cursor)
        if taken:
            joined.release()
        return taken

    monkeypatch.setattr(FrameStream, "try_send", noted)
    monkeypatch.setattr(Tails, "join", counted)
    session = await served.open()
    async with AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(served.live()) for _ in range(3)]
        for live in crowd:
            await live.ask("subscribe", session=session)
            await joined.acquire()
        await served.post(session, "count 1")
        log = [await live.until("turn.completed") for live in crowd]
    assert log[0] == log[1] == log[2]
    # One claim writes both.
    for writes in written.values():
        (start,) = [frame for frame in writes if b'"turn.started"' in frame]
        assert b'"attempt.claimed"' in start
    first, second, third = written.values()
    assert all(one is two is three for one, two, three in zip(first, second, third, strict=True))


async def test_a_closed_connection_writes_nothing_to_whoever_has_its_descriptor_now() -> None:
    ours, other = trio.socket.socketpair()
    transport = Transport(trio.SocketStream(ours), send_seconds=1.0)
    number = ours.fileno()
    assert transport.send_now(b"first") == 5
    transport.close()
    heir, end = trio.socket.socketpair()
    assert number in (heir.fileno(), end.fileno())
    assert transport.send_now(b"late") == 0
    with other, heir, end:
        heir.shutdown(trio.socket.SHUT_WR)
        end.shutdown(trio.socket.SHUT_WR)
        assert (await heir.recv(10), await end.recv(10)) == (b"", b"")
