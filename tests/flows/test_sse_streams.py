"""Event streams of a session: the rows and nothing but the rows, from any cursor, over breaks, restarts and slow readers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
import trio.testing

from callboard.actors.edges.edge import Pace
from callboard.actors.edges.limits import Limits
from callboard.storage.ops import PruneEvents
from callboard.tests.flows.edge_kit import TERMINAL, Served, serving_runtime
from callboard.tests.flows.edge_readers import SeenEvent


def events_of(session: str) -> str:
    return f"/v1/sessions/{session}/events"


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_every_cursor_gives_exactly_what_is_above_it(served: Served) -> None:
    session = await served.open("counter")
    await served.say(session, "count 5")
    await served.say(session, "count 3")
    log = await served.log(session)
    assert [number for number, _, _ in log] == list(range(1, len(log) + 1))
    for cursor in range(len(log)):
        async with served.stream(events_of(session), last=cursor) as stream:
            assert await stream.events(len(log) - cursor) == log[cursor:]
        async with served.stream(f"{events_of(session)}?after={cursor}") as stream:
            assert await stream.events(len(log) - cursor) == log[cursor:]
    async with served.stream(events_of(session)) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store"
        assert await stream.events(len(log)) == log
        assert stream.retry == 1000


@pytest.mark.spec("EVT-3")
async def test_the_field_counts_before_the_parameter(served: Served) -> None:
    session = await served.open()
    await served.say(session, "echo hi")
    log = await served.log(session)
    async with served.stream(f"{events_of(session)}?after=0", last=3) as stream:
        assert await stream.events(len(log) - 3) == log[3:]


@pytest.mark.spec("EVT-2", "EVT-3")
async def test_a_stream_goes_on_live_and_a_break_at_any_event_loses_nothing(served: Served) -> None:
    session = await served.open("counter")
    seen: list[SeenEvent] = []
    rng = random.Random(7)
    async with trio.open_nursery() as nursery:

        async def talk() -> None:
            for _ in range(6):
                await served.say(session, "count 20")

        nursery.start_soon(talk)
        breaks = 0
        while sum(kind == "turn.completed" for _, kind, _ in seen) < 6:
            async with served.stream(events_of(session), last=seen[-1][0] if seen else None) as stream:
                for _ in range(rng.randrange(1, 12)):
                    seen += await stream.events(1)
                    if seen[-1][1] == "turn.completed":
                        break
            breaks += 1
    assert breaks > 15
    assert seen == await served.log(session)


@pytest.mark.spec("EVT-4")
async def test_what_a_stream_shows_is_committed(served: Served) -> None:
    session = await served.open("counter")
    async with served.stream(events_of(session)) as stream:
        await served.post(session, "count 30")
        while True:
            (event,) = await stream.events(1)
            page = await served.runtime.store.reads.events(served.runtime.scope, session, after=event[0] - 1, limit=1)
            assert [(row.id, row.kind, row.data) for row in page.events] == [event]
            if event[1] in TERMINAL:
                break


@pytest.mark.spec("EVT-3")
async def test_a_cursor_over_a_restart(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path) as served:
        session = await served.open("counter", path="/c")
        await served.say(session, "count 4")
        log = await served.log(session)
        async with served.stream(events_of(session)) as stream:
            before = await stream.events(5)
    async with serving_runtime(tmp_path) as served, served.stream(events_of(session), last=before[-1][0]) as stream:
        after = await stream.events(len(log) - 5)
        assert before + after == log
        await served.say(session, "count 1")
        assert (await stream.events(1))[0][0] == len(log) + 1


@pytest.mark.spec("EVT-3")
async def test_a_cursor_below_what_was_pruned_gets_one_resync(served: Served) -> None:
    session = await served.open("counter")
    for _ in range(2):
        await served.say(session, "count 3")
    first = await served.log(session)
    await served.runtime.store.apply(PruneEvents(keep_seconds=0.0))
    await served.say(session, "count 1")
    log = await served.log(session)
    floor = max(number for number, kind, _ in first if kind not in ("message.created", "turn.completed"))
    kept = [event for event in log if event[0] > floor]
    assert [number for number, _, _ in kept] == list(range(floor + 1, len(first) + len(kept)))
    for cursor in (None, 0, 1, floor - 1):
        async with served.stream(events_of(session), last=cursor) as stream:
            assert await stream.events(1) == [(floor, "resync", {"after": floor, "oldest": floor + 1})]
            assert await stream.events(len(kept)) == kept
    async with served.stream(events_of(session), last=floor) as stream:
        assert await stream.events(len(kept)) == kept


@pytest.mark.spec("EVT-3")
async def test_a_cursor_beyond_the_newest_gets_one_resync_then_live_events(served: Served) -> None:
    session, other = await served.open("counter"), await served.open("counter")
    await served.say(other, "count 9")
    await served.say(session, "count 1")
    newest = len(await served.log(session))
    for cursor in (newest + 1, len(await served.log(other)), 2**63 - 1):
        async with served.stream(events_of(session), last=cursor) as stream:
            assert await stream.events(1) == [(newest, "resync", {"after": newest, "oldest": 1})]
            await served.say(session, "count 1")
            seen = await stream.until("turn.completed")
        log = await served.log(session)
        assert seen == log[newest:]
        newest = len(log)


@pytest.mark.spec("EVT-2")
async def test_a_stream_of_nothing_waits_for_the_first_event(served: Served) -> None:
    session = await served.open()
    async with served.stream(events_of(session)) as stream:
        await served.say(session, "echo hi")
        assert await stream.until("turn.completed") == await served.log(session)


@pytest.mark.spec("EVT-4")
async def test_a_quiet_stream_beats_without_an_empty_line(tmp_path: Path) -> None:
    assert Pace().beat == 15.0
    async with serving_runtime(tmp_path, pace=Pace(beat=0.02)) as served:
        session = await served.open()
        await served.say(session, "echo hi")
        async with served.stream(events_of(session)) as stream:
            await stream.until("turn.completed")
            assert [await stream.line() for _ in range(3)] == [": beat"] * 3
            await served.say(session, "echo more")
            seen = await stream.until("turn.completed")
        assert seen == (await served.log(session))[-len(seen) :]


@pytest.mark.spec("EVT-3")
async def test_heartbeats_between_events_lose_none(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, pace=Pace(beat=0.0005)) as served:
        session = await served.open("counter")
        async with served.stream(events_of(session)) as stream:
            await served.post(session, "count 300")
            seen = await stream.until("turn.completed")
        assert stream.beats > 0
        assert seen == await served.log(session)


async def test_whatever_is_said_stays_on_one_line(served: Served) -> None:
    session = await served.open()
    text = 'a\r\nb\nc\rd\u2028e\u2029f\x85g\x0b\x0c\x1ch "quoted" \\ ü \U0001f600\n\ndata: x\n\nid: 9'
    await served.say(session, f"echo {text}")
    async with served.stream(events_of(session)) as stream:
        seen = await stream.until("turn.completed")
    assert seen == await served.log(session)
    assert seen[-1][2]["content"] == text


@pytest.mark.spec("EVT-2")
async def test_closing_every_client_stops_no_turn(served: Served) -> None:
    session = await served.open("counter")
    async with served.stream(events_of(session)) as stream, served.live() as live:
        await live.ask("subscribe", session=session)
        receipt = await served.post(session, "count 200")
        await stream.until("turn.token")
    view = await served.runtime.wait(receipt["message_id"])
    assert view.outcome == "answered"
    log = await served.log(session)
    assert sum(kind == "turn.token" for _, kind, _ in log) == 200


@pytest.mark.spec("EVT-2")
async def test_followers_in_one_process_read_rows_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await served.open("counter")
    reads = served.runtime.store.reads
    calls = 0
    real = reads.events

    async def counted(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return await real(*args, **options)  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        ready = [trio.Event() for _ in range(12)]
        seen: list[list[SeenEvent]] = []

        async def follow(event: trio.Event) -> None:
            async with served.stream(events_of(session)) as stream:
                await stream.until("turn.completed")
                event.set()
                seen.append(await stream.until("turn.completed"))

        await served.say(session, "count 1")
        for event in ready:
            nursery.start_soon(follow, event)
        for event in ready:
            await event.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        monkeypatch.setattr(reads, "events", counted)
        await served.say(session, "count 40")
    assert len(seen) == 12
    assert all(one == seen[0] for one in seen)
    # One tail, and whoever waits in `say`; a page may hold less than everything that is committed by then.
    assert calls < 2 * len(seen[0]) + 24


async def test_a_stream_ends_when_its_session_is_deleted(served: Served) -> None:
    session = await served.open("patient")
    await served.post(session, "work")
    await served.post(session, "wait")
    async with served.stream(events_of(session)) as stream:
        await stream.until("turn.token")
        assert (await served.client.delete(f"/v1/sessions/{session}")).status_code == 204
        reasons = [(kind, data["reason"]) for _, kind, data in await stream.rest()]
    assert reasons == [("turn.failed", "target_deleted")] * 2
    quiet = await served.open()
    async with served.stream(events_of(quiet)) as stream:
        assert (await served.client.delete(f"/v1/sessions/{quiet}")).status_code == 204
        assert await stream.rest() == []
    await served.refused("GET", events_of(session), 404, "unknown_target", headers={"Last-Event-ID": "3"})


@pytest.mark.spec("RT-14")
async def test_a_reader_that_does_not_read_is_cut_and_delays_nobody(tmp_path: Path) -> None:
    limits = Limits(send_seconds=0.2, grace_seconds=1.0, linger_seconds=0.1)
    async with serving_runtime(tmp_path, limits=limits) as served:
        session = await served.open("loud")
        await served.say(session, "shout 300")
        before = {child.name for child in served.front.connections.snapshot().children}
        async with await served.raw(receive_buffer=65536) as slow:
            head = (
                f"GET {events_of(session)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n"
            )
            await slow.send(head.encode())
            await slow.line()
            (name,) = {child.name for child in served.front.connections.snapshot().children} - before
            newest = len(await served.log(session))
            async with served.stream(events_of(session), last=newest) as stream:
                await served.say(session, "shout 1")
                await stream.until("turn.completed")
            await served.front.connections.wait_ended(name)
            assert b"\r\n0\r\n\r\n" not in await slow.rest()


async def test_a_client_that_leaves_is_noticed_at_once(served: Served) -> None:
    session = await served.open()
    before = {child.name for child in served.front.connections.snapshot().children}
    async with served.stream(events_of(session)) as stream:
        assert stream.status == 200
        (name,) = {child.name for child in served.front.connections.snapshot().children} - before
    await served.front.connections.wait_ended(name)
    tail = served.runtime.desk.tails._tails.get((served.runtime.scope, session))
    assert tail is None or not tail.sinks
