"""What must not bring a runtime down, and what does: damaged rows, unknown agents, a root that gives up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import RuntimeFailed, Turn
from callboard.storage.model.addresses import SYSTEM, Scope, Sender
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.store import open_store
from callboard.supervisors.tree import ChildSpec, IntensityExceeded
from callboard.tests.flows.turn_kit import running

SCOPE = Scope()
ANN = Sender("ann", "member", "Ann")
DAMAGE = [
    ("UPDATE message SET kind = 'telepathy' WHERE message_id = ?", "the kind 'telepathy' is unknown"),
    ("UPDATE message SET payload = '{' WHERE message_id = ?", "its payload is not JSON"),
    ("UPDATE message SET payload = '[1]' WHERE message_id = ?", "its payload is not an object"),
    (
        "UPDATE entry SET content = x'80ff' WHERE message = (SELECT id FROM message WHERE message_id = ?)",
        "it has no text",
    ),
    ("UPDATE entry SET content = '' WHERE message = (SELECT id FROM message WHERE message_id = ?)", "it has no text"),
    ("DELETE FROM entry WHERE message = (SELECT id FROM message WHERE message_id = ?)", "it has no text"),
]


def damage(file: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement, values in statements:
            assert connection.execute(statement, values).rowcount == 1


async def fill(file: Path, *posts: tuple[str, Kind], sessions: int = 1, agent: str = "agent") -> list[str]:
    """Accept `posts` (message id, kind) into each of `sessions` new sessions, with no runtime around; the sessions' ids."""
    ids: list[str] = []
    async with open_store(f"sqlite:///{file}", executor="inline") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(sessions):
            session = (await store.apply(open_session(SCOPE, agent))).session
            ids.append(session.id)
            for name, kind in posts:
                name = name if sessions == 1 else f"{name}-{number}"
                sender = SYSTEM if kind is Kind.NOTICE else ANN
                await store.apply(enqueue(SCOPE, f"session:{session.id}", sender, name, kind=kind, message_id=name))
        nursery.cancel_scope.cancel()
    return ids


@pytest.mark.spec("RT-12")
@pytest.mark.parametrize(("statement", "told"), DAMAGE, ids=[told for _, told in DAMAGE])
async def test_a_row_that_cannot_be_decoded_is_a_failed_message(
    tmp_path: Path, autojump_clock: MockClock, statement: str, told: str
) -> None:
    file = tmp_path / "store.db"
    (session,) = await fill(file, ("bad", Kind.MEMBER_MESSAGE), ("good", Kind.MEMBER_MESSAGE))
    damage(file, (statement, ("bad",)))
    async with running(url=f"sqlite:///{file}") as board:
        bad = await board.runtime.desk.wait(SCOPE, "bad")
        good = await board.runtime.desk.wait(SCOPE, "good")
        assert (bad.status, bad.reason, bad.attempts) == (Status.FAILED, Reason.UNDECODABLE, 0)
        assert (bad.last_error or "").startswith(told)
        assert good.outcome is Outcome.ANSWERED
        assert board.puppet.runs == {session: 1}
        (failed,) = [
            e for e in (await board.runtime.store.reads.events(SCOPE, session)).events if e.kind == "turn.failed"
        ]
        assert failed.data["reason"] == "undecodable"


@pytest.mark.spec("RT-3")
@pytest.mark.spec("RT-12")
async def test_a_hundred_of_them_in_a_moment_escalate_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "store.db"
    sessions = await fill(file, ("bad", Kind.MEMBER_MESSAGE), ("good", Kind.MEMBER_MESSAGE), sessions=100)
    damage(file, *((DAMAGE[number % len(DAMAGE)][0], (f"bad-{number}",)) for number in range(100)))
    start = trio.current_time()
    async with running(url=f"sqlite:///{file}") as board:
        wait = board.runtime.desk.wait
        assert [(await wait(SCOPE, f"bad-{n}")).reason for n in range(100)] == [Reason.UNDECODABLE] * 100
        assert [(await wait(SCOPE, f"good-{n}")).outcome for n in range(100)] == [Outcome.ANSWERED] * 100
        assert trio.current_time() - start < 1
        assert set(board.restarts().values()) == {0}
        assert board.puppet.runs == dict.fromkeys(sessions, 1)


@pytest.mark.spec("RT-12")
async def test_a_damaged_notice_does_not_fail_the_message_that_would_carry_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = tmp_path / "store.db"
    await fill(file, ("notice", Kind.NOTICE), ("sound", Kind.NOTICE), ("head", Kind.MEMBER_MESSAGE))
    damage(file, ("UPDATE message SET payload = '{' WHERE message_id = ?", ("notice",)))
    async with running(url=f"sqlite:///{file}") as board:
        head = await board.runtime.desk.wait(SCOPE, "head")
        assert (head.status, head.outcome) == (Status.DELIVERED, Outcome.ANSWERED)
        assert (await board.runtime.desk.receipt(SCOPE, "sound")).status is Status.DELIVERED
        notice = await board.runtime.desk.receipt(SCOPE, "notice")
        assert (notice.status, notice.reason) == (Status.FAILED, Reason.UNDECODABLE)


@pytest.mark.spec("RT-12")
async def test_an_agent_that_this_process_does_not_know_is_waited_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = tmp_path / "store.db"
    (session,) = await fill(file, ("early", Kind.MEMBER_MESSAGE), agent="late")
    async with running(url=f"sqlite:///{file}") as board:
        assert (await board.ask(await board.open())).outcome is Outcome.ANSWERED
        await trio.sleep(12)
        view = await board.runtime.desk.receipt(SCOPE, "early")
        assert (view.status, view.attempts, view.attempt, view.takeovers) == (Status.PENDING, 0, 0, 0)
        assert view.available_at is not None
        assert 0 < view.available_at - board.runtime.store.now() <= 5
        assert await board.runtime.store.reads.attempts(SCOPE, view.id) == []
    times: list[float] = []

    async def late(turn: Turn) -> str:
        times.append(trio.current_time())
        return "here I am"

    start = trio.current_time()
    async with running({"late": late}, url=f"sqlite:///{file}") as board:
        view = await board.runtime.desk.wait(SCOPE, "early")
        assert (view.outcome, view.attempt) == (Outcome.ANSWERED, 1)
        assert times[0] - start <= 5
        assert [e.content for e in await board.runtime.read(session)] == ["early", "here I am"]


@pytest.mark.spec("RT-3")
async def test_a_root_that_gives_up_hands_its_turns_back_and_open_runtime_raises(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    crash, begun = trio.Event(), trio.Event()

    async def crasher() -> None:
        await crash.wait()
        raise OSError("broken for good")

    async def busy(turn: Turn) -> None:
        begun.set()
        await trio.sleep_forever()

    async def doomed() -> None:
        async with running({"busy": busy}, url=url, extra=lambda _: [ChildSpec("crasher", crasher)]) as board:
            await board.post(await board.open("busy", "/busy"), message_id="m-1")
            await begun.wait()
            crash.set()
            await trio.sleep_forever()

    with pytest.raises(RuntimeFailed, match="crasher") as caught:
        await doomed()
    assert isinstance(caught.value.__cause__, IntensityExceeded)
    async with open_store(url, executor="inline") as store:
        view = await store.reads.message(SCOPE, "m-1")
        assert (view.status, view.attempts, view.takeovers, view.attempt) == (Status.PENDING, 0, 0, 1)
        assert await store.reads.counts(store.now()) == (1, 0)

    async def well(turn: Turn) -> str:
        return f"attempt {turn.attempt}"

    async with running({"busy": well}, url=url) as board:
        view = await board.runtime.desk.wait(SCOPE, "m-1")
        assert (view.outcome, view.attempts, view.takeovers) == (Outcome.ANSWERED, 0, 0)
        assert [entry.content for entry in await board.runtime.read("/busy")] == ["hello", "attempt 2"]


@pytest.mark.spec("RT-3")
async def test_a_store_that_keeps_failing_ends_the_runtime_and_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    begun = trio.Event()

    async def busy(turn: Turn) -> None:
        begun.set()
        await trio.sleep_forever()

    async def broken(ops: object) -> Any:
        raise RuntimeError("the database has gone mad")

    async def doomed() -> None:
        async with running({"busy": busy}, url=url) as board:
            await board.post(await board.open("busy", "/busy"), message_id="m-1")
            await begun.wait()
            board.gate.apply = broken  # type: ignore[method-assign]
            await trio.sleep_forever()

    with pytest.raises(RuntimeFailed, match="store"):
        await doomed()

    async def well(turn: Turn) -> str:
        return "recovered"

    async with running({"busy": well}, url=url) as board:
        start = trio.current_time()
        view = await board.runtime.desk.wait(SCOPE, "m-1")
        assert (view.outcome, view.attempts, view.takeovers) == (Outcome.ANSWERED, 0, 1)
        assert trio.current_time() - start < 1
        assert [entry.content for entry in await board.runtime.read("/busy")] == ["hello", "recovered"]


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("child", ["keeper", "dispatcher", "janitor", "pulse", "sessions", "tails", "store"])
async def test_the_tree_starts_any_one_of_its_children_again_and_work_goes_on(
    autojump_clock: MockClock, child: str
) -> None:
    async with running() as board:
        session = await board.open()
        assert (await board.ask(session)).outcome is Outcome.ANSWERED
        (life,) = [life for life in board.runtime._root._roster.lives if life.spec.name == child]
        life.scope.cancel()
        await life.gone.wait()
        await trio.sleep(5)
        assert board.restarts()[child] == 1
        assert (await board.ask(session)).outcome is Outcome.ANSWERED
