"""Two processes at once on one PostgreSQL database: what they do to the same mailboxes never loses a wake, a number or a lease.

Each test stops one process where it holds its locks and has not committed, lets the other one come, and looks at the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import trio

from callboard.storage.model.addresses import session_address
from callboard.storage.model.errors import LeaseLost
from callboard.storage.model.messages import Receipt
from callboard.storage.model.sessions import Session
from callboard.storage.model.states import Status
from callboard.storage.model.turns import Claimed
from callboard.storage.ops import EmitTokens, HandBack, Retry
from callboard.storage.ops.deliveries import End, Ended
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.postgres.bridge import BEGIN, ROLLBACK
from callboard.tests.contract.pg_kit import ANN, LIMIT, SCOPE, Process, commit, post, processes, together

Lend = Callable[[], AbstractContextManager[str]]


@pytest.fixture
async def two(postgres: Lend) -> AsyncIterator[tuple[Process, Process]]:
    with postgres() as url:
        async with processes(url) as (a, b):
            yield a, b


async def claimed_by(process: Process, session: Session, **fields: Any) -> Claimed:
    await process.post(session, "first")
    (claimed,) = await process.claim(**fields)
    return claimed


@pytest.mark.spec("RT-17", "INB-6")
@pytest.mark.parametrize("first", ["enqueue", "acknowledgement"])
async def test_a_message_beside_the_end_of_a_turn_keeps_its_mailbox_due(
    two: tuple[Process, Process], first: str
) -> None:
    a, b = two
    session = await a.open()
    claimed = await claimed_by(a, session)
    ends = partial(a.apply, commit(claimed))
    sends = partial(b.post, session, "second")
    before, after = (sends, ends) if first == "enqueue" else (ends, sends)
    gate = await (b if first == "enqueue" else a).gate()
    counted = [await process.counted() for process in two]

    async def late() -> object:
        await gate.reached.wait()
        return await after()

    async def opening() -> None:
        await a.blocked()
        gate.open()

    one, other, _ = await together(before, late, opening)
    receipt, ended = (one, other) if first == "enqueue" else (other, one)
    assert isinstance(receipt, Receipt)
    assert isinstance(ended, Ended)
    assert await a.rows("SELECT due IS NOT NULL, depth, last_seq FROM mailbox") == [(1, 1, 3)]
    # Neither had to find out by a number that was taken already.
    assert [count.begun for count in counted] == [1, 1]
    (again,) = await b.claim()
    assert (again.head.id, again.head.content) == (receipt.id, "second")


@pytest.mark.spec("RT-17", "MSG-1")
async def test_crossed_batches_never_wait_for_each_other_in_a_circle(two: tuple[Process, Process]) -> None:
    a, b = two
    sessions = [await a.open() for _ in range(6)]

    counted = [await process.counted() for process in two]

    async def flood(process: Process, order: list[Session]) -> None:
        for n in range(30):
            receipts = await process.batch(*(post(session, f"{process.name}{n}") for session in order))
            assert all(isinstance(receipt, Receipt) for receipt in receipts)

    assert await together(partial(flood, a, sessions), partial(flood, b, sessions[::-1])) == [None, None]
    assert [count.begun for count in counted] == [30, 30]
    assert await a.rows("SELECT max(seq), count(DISTINCT seq), count(*) FROM entry GROUP BY mailbox") == [(60,) * 3] * 6


async def test_a_batch_that_does_meet_another_one_is_carried_out_again(two: tuple[Process, Process]) -> None:
    a, _ = two
    sessions = [await a.open(), await a.open()]
    third, counted = await a.third(), await a.counted()
    lock = "SELECT FROM mailbox WHERE recipient = $1 FOR UPDATE"
    await third.script("SET deadlock_timeout = '1h'; BEGIN")
    await third.execute(lock, (session_address(sessions[1].id),))

    async def crossing() -> None:
        await a.blocked()
        await third.execute(lock, (session_address(sessions[0].id),))  # the server ends the circle: it fails the batch
        await third.execute(ROLLBACK)

    receipts, crossed = await together(partial(a.batch, *map(post, sessions)), crossing)
    third.close()
    assert crossed is None
    assert [type(receipt) for receipt in receipts] == [Receipt, Receipt]
    assert await a.rows("SELECT count(*) FROM message") == [(2,)]
    assert counted.begun == 2


async def test_one_recipient_several_times_in_a_batch(two: tuple[Process, Process]) -> None:
    a, b = two
    session = await a.open()
    claimed = await claimed_by(a, session)
    batch = (post(session), EmitTokens(claimed.lease, 1, "t"), post(session), commit(claimed), post(session))
    one, other = await together(partial(a.batch, *batch), partial(b.batch, post(session), post(session)))
    assert [type(answer) for answer in (*one, *other)] == [Receipt, int, Receipt, Ended, Receipt, Receipt, Receipt]
    numbers = [answer.seq for answer in (*one, *other) if not isinstance(answer, int)]
    assert sorted(numbers) == [2, 3, 4, 5, 6, 7]
    assert numbers[:4] == sorted(numbers[:4])
    assert await a.rows("SELECT last_seq, depth, due IS NOT NULL FROM mailbox") == [(7, 5, 1)]
    assert await a.rows("SELECT count(DISTINCT n), max(n) = count(*) FROM event") == [(10, 1)]


@pytest.mark.spec("RT-17", "INB-6")
@pytest.mark.spec("RT-17", "INB-6")
async def test_a_mailbox_that_comes_into_being_behind_a_batch_s_locks_keeps_its_order(
    two: tuple[Process, Process],
) -> None:
    """The batch has taken rows for its messages by then: one of them would stand before what the other process accepts first."""
    a, b = two
    there = await a.open()
    coming = open_session(SCOPE, "echo")
    gate = await a.gate(lambda statements: statements[0][0] != BEGIN)
    receipts: list[Receipt] = []

    async def send() -> None:
        receipts.extend(await a.batch(post(there), enqueue(SCOPE, session_address(coming.id), ANN, "second")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await gate.reached.wait()
        first = await b.post((await b.apply(coming)).session, "first")
        gate.open()
    assert (first.seq, receipts[1].seq) == (1, 2)
    heads = {claimed.session: claimed.head.content for claimed in await b.claim()}
    assert heads == {there.id: "hello", coming.id: "first"}


async def test_two_processes_never_claim_one_mailbox_and_neither_waits(two: tuple[Process, Process]) -> None:
    a, b = two
    sessions = [await a.open() for _ in range(6)]
    for session in sessions:
        await a.post(session)
    gate = await a.gate()
    taken: list[Claimed] = []

    async def beside() -> None:
        await gate.reached.wait()
        claims = await b.apply(b.claim_op())
        taken.extend(claims.claimed)
        # What another process has locked may be free in a moment, and nobody will tell.
        assert claims.next_due is not None
        assert claims.next_due <= b.driver.now() + 0.1
        gate.open()

    mine, _ = await together(partial(a.claim, limit=4), beside)
    assert sorted(claimed.session for claimed in (*mine, *taken)) == sorted(session.id for session in sessions)
    assert (len(mine), len(taken)) == (4, 2)
    assert await a.rows("SELECT DISTINCT epoch FROM mailbox") == [(1,)]


async def test_a_claim_does_not_wait_for_a_batch_that_is_being_written(two: tuple[Process, Process]) -> None:
    a, b = two
    session, free = await a.open(), await a.open()
    await a.batch(post(session), post(free))
    gate = await a.gate()

    async def beside() -> None:
        await gate.reached.wait()
        (claimed,) = await b.claim()
        assert claimed.session == free.id
        gate.open()

    receipt, none = await together(partial(a.post, session, "second"), beside)
    assert none is None
    assert isinstance(receipt, Receipt)
    (claimed,) = await b.claim()
    assert (claimed.session, claimed.head.content) == (session.id, "hello")


@pytest.mark.spec("RT-8", "RT-17")
@pytest.mark.parametrize("op", ["commit", "retry", "hand back", "tokens"])
async def test_what_a_fenced_out_holder_still_sends_changes_nothing(two: tuple[Process, Process], op: str) -> None:
    a, b = two
    session = await a.open()
    stale = await claimed_by(a, session, seconds=-1)
    gate = await b.gate()

    async def late() -> object:
        await gate.reached.wait()
        return await a.apply(
            {
                "commit": commit(stale, "too late"),
                "retry": Retry(stale.lease, "boom", 0),
                "hand back": HandBack(stale.lease, "stopping"),
                "tokens": EmitTokens(stale.lease, 1, "too late"),
            }[op]
        )

    async def opening() -> None:
        await a.blocked()
        gate.open()

    (taken,), refused, _ = await together(b.claim, late, opening)
    assert isinstance(refused, LeaseLost)
    assert (taken.takeovers, taken.lease.epoch) == (1, stale.lease.epoch + 1)
    assert await a.rows("SELECT status, epoch, holder FROM message JOIN mailbox ON mailbox.id = message.mailbox") == [
        ("processing", taken.lease.epoch, "b")
    ]
    ended = await b.apply(commit(taken, "in time"))
    assert ended.end is End.COMMITTED
    assert await a.rows("SELECT content FROM entry ORDER BY seq") == [("first",), ("in time",)]


@pytest.mark.spec("INB-8", "RT-17")
async def test_a_storm_of_processes_runs_each_message_once(postgres: Lend) -> None:
    with postgres() as url:
        async with processes(url, 3) as workers:
            sessions = [await workers[0].open() for _ in range(12)]
            done: list[str] = []

            async def work(worker: Process) -> None:
                for n in range(10):
                    await worker.batch(*(post(session, f"{worker.name}{n}") for session in sessions[n % 3 :: 3]))
                    await round_of(worker)

            async def round_of(worker: Process) -> None:
                claimed = await worker.claim(limit=5)
                if claimed:
                    for ended in await worker.batch(*map(commit, claimed)):
                        assert isinstance(ended, Ended)
                done.extend(one.head.id for one in claimed)

            assert await together(*(partial(work, worker) for worker in workers)) == [None] * 3
            with trio.fail_after(LIMIT):
                while await workers[0].rows("SELECT FROM mailbox WHERE due IS NOT NULL"):
                    await round_of(workers[0])
            assert len(done) == len(set(done)) == 120
            assert await workers[0].rows("SELECT count(*), count(DISTINCT message) FROM marker") == [(120, 120)]
            assert await workers[0].rows("SELECT DISTINCT status FROM message") == [(Status.DELIVERED,)]
