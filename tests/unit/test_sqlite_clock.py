"""Store time on SQLite: it never goes back, follows no step of the wall clock, and what is due comes due by it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from callboard.storage.clock import StoreClock
from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.errors import LimitReached
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Status
from callboard.storage.ops import Claim, HandBack, PruneEvents, Renew, Retry
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.sqlite import driver as driver_module
from callboard.storage.store import Store, open_store

HOUR = 3_600.0
ANN = Sender("ann", "member", "Ann")
SCOPE = Scope()


class Wall:
    """A wall clock that follows the monotonic one until somebody steps it."""

    def __init__(self) -> None:
        self.offset = 1_700_000_000.0

    def __call__(self) -> float:
        return self.offset + trio.current_time()


Opening = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    clock = Wall()
    monkeypatch.setattr(driver_module, "StoreClock", partial(StoreClock, wall=clock))
    return clock


@pytest.fixture
def opening(tmp_path: Path, wall: Wall) -> Opening:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        url = f"sqlite:///{tmp_path}/store.db"
        async with open_store(url, executor="inline") as store, trio.open_nursery() as nursery:
            await nursery.start(store.run)
            yield store
            nursery.cancel_scope.cancel()

    return opened


async def post(store: Store, content: str = "hello") -> str:
    session = (await store.apply(open_session(SCOPE, "echo"))).session
    return (await store.apply(enqueue(SCOPE, session_address(session.id), ANN, content))).id


def files_of(folder: Path) -> Path:
    """A copy of the database as it is now, which is what a killed process would have left."""
    image = folder / "image"
    image.mkdir()
    for part in folder.glob("store.db*"):
        if not part.name.endswith((".lock", "-shm")):
            shutil.copy(part, image / part.name)
    return image


def claim(holder: str = "worker", nonce: str = "n", **fields: object) -> Claim:
    return Claim(holder, nonce, 10, 30, frozenset({"echo"}), **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.spec("RT-18")
async def test_a_clock_starts_at_the_later_of_wall_and_floor_and_goes_on_by_itself(
    mock_clock: trio.testing.MockClock,
) -> None:
    now = 1_000.0
    ahead, behind = StoreClock(400.0, lambda: now), StoreClock(5_000.0, lambda: now)
    assert (ahead.now(), behind.now()) == (1_000.0, 5_000.0)
    now = -1e9
    mock_clock.jump(2.5)
    assert (ahead.now(), behind.now()) == (1_002.5, 5_002.5)


@pytest.mark.spec("RT-18")
@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_a_step_of_the_wall_clock_moves_nothing_while_the_store_is_open(
    opening: Opening, wall: Wall, autojump_clock: trio.testing.MockClock, step: float
) -> None:
    async with opening() as store:
        held = await post(store, "held")
        (claimed,) = (await store.apply(claim())).claimed
        waiting = await post(store, "waiting")
        (other,) = (await store.apply(claim(nonce="n-2"))).claimed
        ended = await store.apply(Retry(other.lease, "boom", 5))
        before = store.now()
        wall.offset += step
        assert store.now() == before
        assert (await store.apply(claim("thief"))).claimed == ()
        assert ended.due is not None
        await trio.sleep(ended.due - store.now())
        (due,) = (await store.apply(claim("thief", "n-2"))).claimed
        assert due.head.id == waiting
        assert (await store.reads.message(SCOPE, held)).takeovers == 0
        assert (await store.apply(Renew((claimed.lease,), 30))).lost == frozenset()


@pytest.mark.spec("RT-18")
async def test_a_wall_clock_an_hour_back_at_the_next_start_delays_nothing_and_frees_no_lease(
    opening: Opening, wall: Wall, autojump_clock: trio.testing.MockClock
) -> None:
    async with opening() as store:
        held = await post(store, "held by a mail reader")
        (claimed,) = (await store.apply(claim("reader", holder_kind="reader"))).claimed
        retried = await post(store, "retried")
        (other,) = (await store.apply(claim())).claimed
        due = (await store.apply(Retry(other.lease, "boom", 10))).due
        assert due is not None
        await trio.sleep(3)
        closed = store.now()
    wall.offset -= HOUR
    async with opening() as store:
        assert closed <= store.now() <= closed + 1
        assert (await store.apply(claim("thief"))).claimed == ()
        assert (await store.apply(Renew((claimed.lease,), 30))).lost == frozenset()
        await trio.sleep(due - closed)
        (again,) = (await store.apply(claim("thief", "n-2"))).claimed
        assert again.head.id == retried
        assert (await store.reads.message(SCOPE, held)).takeovers == 0
        newer = await post(store, "newer")
        assert (await store.reads.message(SCOPE, newer)).created_at >= closed


@pytest.mark.spec("RT-18")
async def test_a_killed_store_falls_behind_by_less_than_a_second(
    opening: Opening, wall: Wall, autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    """Nothing is written at a kill, so the floor must have been written with what was committed before."""
    async with opening() as store:
        for _ in range(20):
            await trio.sleep(0.3)
            await post(store)
        killed_at = store.now()
        image = files_of(tmp_path)
    wall.offset -= HOUR
    async with open_store(f"sqlite:///{image}/store.db", executor="inline") as store:
        assert killed_at - 1 <= store.now()


@pytest.mark.spec("RT-9")
async def test_a_new_owner_voids_the_leases_of_processes_and_of_nobody_else(
    opening: Opening, autojump_clock: trio.testing.MockClock
) -> None:
    async with opening() as store:
        of_process = await post(store)
        await store.apply(claim("worker"))
        of_reader = await post(store)
        (held,) = (await store.apply(claim("reader", holder_kind="reader"))).claimed
    async with opening() as store:
        (again,) = (await store.apply(claim("another"))).claimed
        assert (again.head.id, again.takeovers) == (of_process, 1)
        view = await store.reads.message(SCOPE, of_reader)
        assert (view.status, view.lease_holder, view.lease_epoch) == (Status.PROCESSING, "reader", held.lease.epoch)


@pytest.mark.spec("INB-6")
async def test_what_is_put_off_comes_due_at_its_time(opening: Opening, autojump_clock: trio.testing.MockClock) -> None:
    async with opening() as store:
        message = await post(store)
        for n, (end, seconds) in enumerate((("retry", 4.0), ("hand back", 2.0), ("lease", 30.0), ("unknown", 5.0))):
            if end == "unknown":
                claims = await store.apply(Claim("worker", f"n-{n}", 10, 30, frozenset({"another"})))
                assert claims.claimed == ()
            else:
                (claimed,) = (await store.apply(claim(nonce=f"n-{n}"))).claimed
                assert claimed.head.id == message
                if end == "retry":
                    await store.apply(Retry(claimed.lease, "boom", seconds))
                elif end == "hand back":
                    await store.apply(HandBack(claimed.lease, "busy", seconds))
            began = store.now()
            early = await store.apply(claim(nonce=f"early-{n}"))
            assert early.claimed == ()
            assert early.next_due == pytest.approx(began + seconds, abs=0.001)
            await trio.sleep(seconds - 0.01)
            assert (await store.apply(claim(nonce=f"still early-{n}"))).claimed == ()
            await trio.sleep(0.02)
        (claimed,) = (await store.apply(claim(nonce="last"))).claimed
        assert (claimed.head.id, claimed.attempts, claimed.takeovers) == (message, 1, 1)


@pytest.mark.spec("EVT-4")
async def test_events_of_turns_are_kept_a_day(opening: Opening, autojump_clock: trio.testing.MockClock) -> None:
    async with opening() as store:
        await post(store)
        (claimed,) = (await store.apply(claim())).claimed
        await trio.sleep(24 * HOUR - 1)
        assert await store.apply(PruneEvents(24 * HOUR)) == 0
        await trio.sleep(2)
        assert await store.apply(PruneEvents(24 * HOUR)) == 2
        events = (await store.reads.events(SCOPE, claimed.session)).events
        assert [event.kind for event in events] == ["message.created"]


@pytest.mark.spec("RT-15")
async def test_a_pair_may_go_on_after_a_minute(opening: Opening, autojump_clock: trio.testing.MockClock) -> None:
    async with opening() as store:
        session = (await store.apply(open_session(SCOPE, "echo"))).session
        sender = Sender("ses_other", "session")

        async def send() -> bool:
            op = enqueue(SCOPE, session_address(session.id), sender, "hi", kind=Kind.AGENT_MESSAGE, pair_limit=2)
            try:
                return (await store.apply(op)).created
            except LimitReached:
                return False

        assert await send()
        await trio.sleep(30)
        assert await send()
        assert not await send()
        await trio.sleep(31)
        assert await send()
        assert not await send()
