"""Following a session: after any cursor exactly the events above it, from rows and then live, for any number of followers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Event, InvalidField, Turn, UnknownTarget
from callboard.actors.tail import PORTION, WINDOW, Feed, Resync
from callboard.storage.model.addresses import Scope
from callboard.storage.model.sessions import Session
from callboard.storage.ops import PruneEvents
from callboard.tests.flows.turn_kit import Board, running


async def take(feed: Feed, count: int) -> list[Event | Resync]:
    return [await anext(feed) for _ in range(count)]


async def nothing_more(feed: Feed) -> bool:
    with trio.move_on_after(5):
        await anext(feed)
        return False
    return True


async def talk(board: Board, session: Session, turns: int = 3) -> list[Event]:
    """Some turns with streamed text; all events of the session."""

    async def stream(turn: Turn) -> None:
        for word in turn.text.split():
            await turn.emit(word + " ")
            await trio.sleep(0.1)

    for number in range(turns):
        board.plan(session, stream)
        await board.ask(session, f"turn {number}")
    return await board.events(session)


@pytest.mark.spec("EVT-2")
@pytest.mark.spec("EVT-3")
async def test_after_any_cursor_come_exactly_the_missed_events(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    log = await talk(board, session)
    assert [event.id for event in log] == list(range(1, len(log) + 1))
    for cursor in range(len(log) + 1):
        async with board.runtime.follow(session.id, after=cursor) as feed:
            assert await take(feed, len(log) - cursor) == log[cursor:]
            assert await nothing_more(feed)


@pytest.mark.spec("EVT-3")
async def test_what_comes_while_a_follower_catches_up_is_neither_missed_nor_repeated(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    rng = random.Random(7)
    seen: dict[int, list[Event]] = {number: [] for number in range(8)}

    async def follower(number: int) -> None:
        """Leaves and comes back with its cursor, again and again."""
        mine = seen[number]
        while (
            not mine or mine[-1].kind != "turn.completed" or len([e for e in mine if e.kind == "turn.completed"]) < 12
        ):
            async with board.runtime.follow(session.id, after=mine[-1].id if mine else 0) as feed:
                for _ in range(rng.randint(1, 7)):
                    event = await anext(feed)
                    assert isinstance(event, Event)
                    mine.append(event)
                    await trio.sleep(rng.choice([0, 0, 0.03]))
                    if sum(e.kind == "turn.completed" for e in mine) == 12:
                        return

    async with trio.open_nursery() as nursery:
        for number in seen:
            nursery.start_soon(follower, number)
        await talk(board, session, turns=12)
    log = await board.events(session)
    assert all(mine == log for mine in seen.values())


@pytest.mark.spec("EVT-2")
async def test_one_log_tail_reads_once_for_many_followers(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    await talk(board, session, turns=1)
    start = len(await board.events(session))
    counted = 0
    driver: Any = board.runtime.store._driver
    read = driver.read

    async def counting(*queries: tuple[str, Any]) -> Any:
        nonlocal counted
        counted += sum(name == "events_after" for name, _ in queries)
        return await read(*queries)

    async def follower(got: list[int]) -> None:
        async with board.runtime.follow(session.id, after=start) as feed:
            while len(got) < 40:
                got.append((await anext(feed)).id)

    followers: list[list[int]] = [[] for _ in range(50)]
    async with trio.open_nursery() as nursery:
        for got in followers:
            nursery.start_soon(follower, got)
        await wait_all_tasks_blocked()
        assert sum(node.name.startswith("tail:") for node in board.children("tails")) == 1
        driver.read = board.runtime.store.reads._driver.read = counting
        for _ in range(10):
            await board.ask(session)
    assert all(got == list(range(start + 1, start + 41)) for got in followers)
    # At most one for each commit that touched the session, and one for each wait for an answer.
    assert counted <= 10 * 4 + 10 * 3
    await trio.sleep(2)
    assert board.children("tails") == ()


class _Crowd:
    """Sinks of one tail: what each was pushed, and the loop's pass in which each push came."""

    def __init__(self, board: Board, session: Session, size: int, cursor: int) -> None:
        self.tails, self.session = board.runtime.desk.tails, session
        self.passes = 0
        self.pushed: list[tuple[_Member, int]] = []
        self.on_push: Callable[[_Member], None] = lambda member: None
        self.members = [_Member(self) for _ in range(size)]
        for member in self.members:
            assert self.tails.join(Scope(), session.id, member, cursor)

    async def count(self) -> None:
        """Another task of the same loop."""
        while True:
            await trio.lowlevel.checkpoint()
            self.passes += 1


class _Member:
    def __init__(self, crowd: _Crowd) -> None:
        self.crowd = crowd
        self.got: list[int] = []

    def push(self, events: tuple[Event, ...]) -> bool:
        self.got.extend(event.id for event in events)
        self.crowd.pushed.append((self, self.crowd.passes))
        self.crowd.on_push(self)
        return True


@pytest.mark.spec("EVT-2")
async def test_a_crowd_of_followers_keeps_no_other_task_waiting(board: Board) -> None:
    session = await board.open()
    await talk(board, session, turns=1)
    start = len(await board.events(session))
    crowd = _Crowd(board, session, 10 * PORTION, start)
    left: list[_Member] = []

    def leave(_: _Member) -> None:
        """Half-way through the crowd somebody leaves whose turn has not come."""
        if len(crowd.pushed) == 5 * PORTION:
            left.append(next(member for member in crowd.members if not member.got))
            crowd.tails.leave(Scope(), session.id, left[0])

    crowd.on_push = leave
    async with trio.open_nursery() as nursery:
        await wait_all_tasks_blocked()
        nursery.start_soon(crowd.count)
        await board.ask(session)
        log = [event.id for event in await board.events(session)][start:]
        while any(member.got != log for member in crowd.members if member not in left):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    by_pass = Counter(number for _, number in crowd.pushed)
    # In one pass of the loop the counter may come after one portion and before the next.
    assert max(by_pass.values()) <= 2 * PORTION
    assert len(left) == 1
    assert left[0].got == []


@pytest.mark.spec("EVT-3")
async def test_a_follower_whose_page_is_old_when_it_comes_does_not_join_a_tail_that_is_past_it(
    board: Board, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await board.open()
    await board.ask(session)
    reads = board.runtime.store.reads
    read, late = reads.events, trio.Event()

    async def slow(*args: Any, **kwargs: Any) -> Any:
        page = await read(*args, **kwargs)
        monkeypatch.setattr(reads, "events", read)
        await late.wait()
        return page

    async with board.runtime.follow(session.id) as early, board.runtime.follow(session.id) as behind:
        await take(early, 4)
        monkeypatch.setattr(reads, "events", slow)
        got: list[Event | Resync] = []

        async def follower() -> None:
            got.extend(await take(behind, 12))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower)
            await wait_all_tasks_blocked()
            await board.ask(session)
            await take(early, 4)  # the tail is past what the other one has read
            late.set()
            await wait_all_tasks_blocked()
            await board.ask(session)
        assert got == await board.events(session)


@pytest.mark.spec("EVT-2")
async def test_leaving_stops_no_turn(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()

    async def slow(turn: Turn) -> str:
        await trio.sleep(10)
        return "done all the same"

    board.plan(session, slow)
    async with board.runtime.follow(session.id) as feed:
        receipt = await board.post(session)
        assert [event.kind for event in await take(feed, 3)] == ["message.created", "turn.started", "attempt.claimed"]
    await board.final(receipt)
    assert await board.texts(session) == ["done all the same"]


@pytest.mark.spec("EVT-2")
async def test_two_followers_see_the_same_ids_and_data(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    async with board.runtime.follow(session.id) as early:
        first = await take(early, 0)
        log = await talk(board, session, turns=2)
        async with board.runtime.follow(session.id) as late:
            assert first + await take(early, len(log)) == await take(late, len(log)) == log


@pytest.mark.spec("EVT-3")
async def test_a_follower_that_falls_far_behind_reads_rows_again_and_holds_nobody_up(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    blocks = WINDOW + 300

    async def flood(turn: Turn) -> None:
        for number in range(blocks):
            await turn.emit(f"{number:>200}")

    board.plan(session, flood)
    async with board.runtime.follow(session.id) as slow, board.runtime.follow(session.id) as fast:
        receipt = await board.post(session)
        head = await take(slow, 1)
        taken = 0
        while taken < blocks + 4:
            await anext(fast)
            taken += 1
        assert (await board.final(receipt)).outcome == "answered"
        assert len(slow._queue) <= WINDOW
        log = await board.events(session)
        assert len(log) == blocks + 4
        assert head + await take(slow, len(log) - 1) == log
        await board.ask(session)
        assert [event.id for event in await take(slow, 4)] == list(range(len(log) + 1, len(log) + 5))


@pytest.mark.spec("EVT-3")
async def test_a_cursor_below_what_was_pruned_gets_one_resync_and_the_rows_above(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    old = await talk(board, session)
    await trio.sleep(60)
    while await board.runtime.store.apply(PruneEvents(30.0)):
        pass
    floor = max(event.id for event in old if event.kind not in {"message.created", "turn.completed"})
    kept = [event.kind for event in await board.events(session)]
    assert set(kept) == {"message.created", "turn.completed"}
    await board.ask(session)
    newest = (await board.events(session))[-1].id
    for cursor in (0, 1, floor - 1):
        async with board.runtime.follow(session.id, after=cursor) as feed:
            first, *rest = await take(feed, 1 + newest - floor)
            assert isinstance(first, Resync)
            assert (first.kind, first.id, first.data) == ("resync", floor, {"after": floor, "oldest": floor + 1})
            assert [event.id for event in rest] == list(range(floor + 1, newest + 1))
            assert await nothing_more(feed)
    async with board.runtime.follow(session.id, after=floor) as feed:
        assert [event.id for event in await take(feed, newest - floor)] == list(range(floor + 1, newest + 1))


@pytest.mark.spec("EVT-3")
async def test_what_is_pruned_under_a_follower_is_told_to_it(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    log = await talk(board, session)
    async with board.runtime.follow(session.id) as feed:
        assert await take(feed, 2) == log[:2]
        feed._queue.clear()
        feed._live = False
        await trio.sleep(60)
        while await board.runtime.store.apply(PruneEvents(30.0)):
            pass
        (resync,) = await take(feed, 1)
        assert isinstance(resync, Resync)
        assert resync.after == log[-2].id


@pytest.mark.spec("EVT-3")
@pytest.mark.parametrize("ahead", [1, 1_000_000])
async def test_a_cursor_beyond_the_newest_gets_one_resync_and_then_what_is_live(
    board: Board, autojump_clock: MockClock, ahead: int
) -> None:
    session = await board.open()
    newest = (await talk(board, session, turns=1))[-1].id
    async with board.runtime.follow(session.id, after=newest + ahead) as feed:
        (resync,) = await take(feed, 1)
        assert isinstance(resync, Resync)
        assert (resync.after, resync.oldest) == (newest, 1)
        assert await nothing_more(feed)
        await board.ask(session)
        assert [event.id for event in await take(feed, 4)] == list(range(newest + 1, newest + 5))


@pytest.mark.spec("EVT-3")
async def test_the_cursor_holds_over_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with running(url=url) as board:
        session = await board.open()
        log = await talk(board, session)
    async with running(url=url) as board:
        assert await board.events(session) == log
        async with board.runtime.follow(session.id, after=5) as feed:
            assert await take(feed, len(log) - 5) == log[5:]
            await board.ask(session)
            assert [event.id for event in await take(feed, 4)] == list(range(len(log) + 1, len(log) + 5))


@pytest.mark.spec("EVT-3")
async def test_another_sessions_cursor_shows_nothing_of_that_session(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open()
    log = await talk(board, session)
    await board.ask(other)
    async with board.runtime.follow(other.id, after=log[-1].id) as feed:
        (resync,) = await take(feed, 1)
        assert isinstance(resync, Resync)
        assert await nothing_more(feed)
    async with board.runtime.follow(other.id, after=2) as feed:
        assert {event.session for event in await take(feed, 2) if isinstance(event, Event)} == {other.id}


async def test_what_may_not_be_seen_cannot_be_followed(board: Board, autojump_clock: MockClock) -> None:
    elsewhere = Scope("default", "other")
    hidden = (await board.runtime.desk.open(elsewhere, "agent")).session
    for name in (hidden.id, "ses_" + "0" * 32, "/nowhere", ""):
        async with board.runtime.follow(name) as feed:
            with pytest.raises(UnknownTarget):
                await anext(feed)
    session = await board.open()
    with pytest.raises(InvalidField, match="after: must not be negative"):
        board.runtime.follow(session.id, after=-1)


async def test_the_feed_of_a_turn_is_that_of_its_session(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    view = await board.ask(session)
    async with board.runtime.desk.follow_turn(board.scope, view.turn_id) as (feed, found):
        assert found == session.id
        assert [event.kind for event in await take(feed, 4)] == await board.kinds(session)


@pytest.mark.spec("RT-1")
async def test_a_hint_that_is_lost_delays_an_event_by_a_second_at_most(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    async with board.runtime.follow(session.id) as feed:
        board.runtime.store.changes.publish = lambda touched: None  # type: ignore[method-assign]
        await wait_all_tasks_blocked()
        start = trio.current_time()
        await board.post(session)
        assert (await take(feed, 1))[0].kind == "message.created"
        assert trio.current_time() - start <= 1.01
        kinds = [event.kind for event in await take(feed, 3)]
        assert kinds == ["turn.started", "attempt.claimed", "turn.completed"]
        assert trio.current_time() - start <= 3.01
