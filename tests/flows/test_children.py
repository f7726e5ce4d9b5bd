"""Children: made by the tool `agent`, counted in their making, each waking its parent exactly once however it ends (SES-8)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Agent, Turn
from callboard.storage.model.errors import TooManyChildren
from callboard.storage.model.sessions import ChildState, Session, SessionKind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.tests.flows.turn_kit import Board, Body, running

pytestmark = pytest.mark.spec("SES-8")


def starting(task: str = "a task", **arguments: Any) -> Body[str]:
    """A body that starts a child and answers with its id."""

    async def run(turn: Turn) -> str:
        result = await turn.tools.agent(task, **arguments)
        assert result["status"] == "running"
        return result["agent_id"]

    return run


async def session_of(board: Board, id: str) -> Session:
    return await board.runtime.store.reads.session(board.scope, id)


async def start(board: Board, parent: Session, **arguments: Any) -> str:
    return await board.inside(parent, starting(**arguments))


async def results(board: Board, parent: Session) -> list[str]:
    """What its children were reported to have done; the notices that a failed task brings besides (SES-10) are not among it."""
    return [
        entry.content
        for entry in await board.entries(parent)
        if entry.sender.kind == "session" and entry.role == "notice"
    ]


class Worker(Agent):
    """A child that does what its task says."""

    def __init__(self) -> None:
        self.waiting: list[trio.CancelScope] = []
        self.headers: list[str] = []

    def release(self) -> None:
        """Let those go on that were told to wait."""
        for waiting in self.waiting:
            waiting.cancel()

    async def run(self, turn: Turn) -> str | None:
        self.headers += [str(message.header) for message in turn.attributed()]
        match turn.text.split():
            case ["wait"]:
                with trio.CancelScope() as waiting:
                    self.waiting.append(waiting)
                    await turn.sleep(3_600)
                return "waited"
            case ["fail"]:
                raise ValueError("as told")
            case ["silent"]:
                return None
            case ["long"]:
                return "x" * 30_000
            case ["nul"]:
                return "a\0b"
            case ["nest"]:
                return (await turn.tools.agent("deeper", agent="agent"))["agent_id"]
            case _:
                return f"did {turn.text}"


async def test_a_child_names_its_parent_and_its_result_wakes_it_once(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with running({"worker": worker}) as board:
        parent = await board.open(path="/parent", title="Boss")
        seen: list[tuple[str, str, str | None]] = []

        async def told(turn: Turn) -> str:
            (message,) = turn.attributed()
            seen.append((message.header, message.content, turn.message.message_id))
            return "thanks"

        task = "  count to ten and tell me what you found on the way there please "
        board.plan(parent, starting(task, agent="worker"), told)
        await board.ask(parent)
        child = (await board.texts(parent))[0]
        made = await session_of(board, child)
        assert (made.kind, made.parent, made.agent, made.path) == (SessionKind.SUBAGENT, parent.id, "worker", None)
        assert made.title == "count to ten and tell me what you found on the way there ple"
        await board.until(parent, "turn.completed", 2)
        assert worker.headers == [f"[message from the session /parent, {parent.id}]"]
        header, content, message_id = seen[0]
        assert header == f"[system notice: result of the subagent {made.title}, {child}]"
        assert content.startswith("did")
        assert message_id == f"subagent-result-{child}"
        assert (await session_of(board, child)).child_state is ChildState.COMPLETED
        await trio.sleep(60)
        assert board.runs(parent) == 2
        notice = next(entry for entry in await board.entries(parent) if entry.role == "notice")
        assert (notice.sender.id, notice.message_id) == (child, message_id)
        # A later turn of the same child is an ordinary one: its parent was told once.
        await board.post(made, "again")
        await board.until(made, "turn.completed", 2)
        await trio.sleep(60)
        assert board.runs(parent) == 2


@pytest.mark.parametrize(
    ("task", "state", "content"),
    [
        ("work", ChildState.COMPLETED, "did work"),
        ("silent", ChildState.COMPLETED, "The subagent ended without an answer: completed."),
        ("fail", ChildState.FAILED, "The subagent failed: retries_used."),
        ("long", ChildState.COMPLETED, "x" * 19_999 + "…"),
        ("nul", ChildState.COMPLETED, "a\ufffdb"),
    ],
)
async def test_each_end_of_a_child_is_told(
    autojump_clock: MockClock, task: str, state: ChildState, content: str
) -> None:
    async with running({"worker": Worker()}) as board:
        parent = await board.open()
        child = await start(board, parent, task=task, agent="worker", title="kid")
        await board.until(parent, "turn.completed", 2)
        assert await results(board, parent) == [content]
        assert (await session_of(board, child)).child_state is state
        payload = (await board.runtime.desk.receipt(board.scope, f"subagent-result-{child}")).payload
        assert payload == {"child": child, "state": state}


async def test_a_stopped_and_a_deleted_child_are_told_too(autojump_clock: MockClock) -> None:
    async with running({"worker": Worker()}) as board:
        parent = await board.open()
        first = await start(board, parent, task="wait", agent="worker")
        await board.until(await session_of(board, first), "attempt.claimed")

        async def stop(turn: Turn) -> str:
            return (await turn.tools.agent_stop(first))["status"]

        board.plan(parent, stop)
        await board.ask(parent)
        await board.until(parent, "turn.completed", 3)
        second = await start(board, parent, task="wait", agent="worker")
        await board.until(await session_of(board, second), "attempt.claimed")
        await board.runtime.desk.delete(board.scope, second, board.ann)
        await board.until(parent, "turn.completed", 5)
        states = [
            (await board.runtime.desk.receipt(board.scope, f"subagent-result-{child}")).payload
            for child in (first, second)
        ]
        assert [payload["state"] for payload in states if payload] == ["stopped", "deleted"]
        assert await results(board, parent) == ["waited", "The subagent ended without an answer: deleted."]


async def test_a_childs_time_limit_ends_it(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with running({"worker": worker}) as board:
        parent = await board.open()
        begun = trio.current_time()
        child = await start(board, parent, task="wait", agent="worker", timeout_s=7)
        await board.until(parent, "turn.completed", 2)
        assert trio.current_time() - begun == pytest.approx(7, abs=0.5)
        assert await results(board, parent) == ["The subagent failed: expired."]
        (task,) = (await board.runtime.store.reads.inbox(board.scope, target=child)).items
        assert (task.status, task.reason, task.attempts) == (Status.FAILED, Reason.EXPIRED, 0)


@pytest.mark.spec("SES-11")
async def test_a_childs_own_children_report_to_it(autojump_clock: MockClock) -> None:
    async with running({"worker": Worker()}) as board:
        parent = await board.open()
        child = await start(board, parent, task="nest", agent="worker")
        await board.until(parent, "turn.completed", 2)
        (grandchild,) = await board.texts(parent, "notice")
        assert (await session_of(board, grandchild)).parent == child
        await board.until(await session_of(board, child), "turn.completed", 2)
        assert await board.texts(await session_of(board, child), "notice") == ["echo deeper"]
        await trio.sleep(60)
        assert len(await board.texts(parent, "notice")) == 1


async def test_four_may_run_for_a_parent_and_sixteen_in_a_project(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with running({"worker": worker}) as board:
        parents = [await board.open() for _ in range(5)]

        async def as_many_as_possible(turn: Turn) -> str:
            for number in range(6):
                try:
                    await turn.tools.agent("wait", agent="worker")
                except TooManyChildren as full:
                    return f"{number}: {full.message}"
            return "all"

        for parent in parents:
            board.plan(parent, as_many_as_possible)
            await board.ask(parent)
        answers = [(await board.texts(parent))[0] for parent in parents]
        assert answers == [
            *["4: 4 children are running, 4 are allowed"] * 4,
            "0: 16 children run in this project, 16 are allowed",
        ]
        children = [session for session in await board.runtime.list_sessions() if session.parent]
        assert len(children) == 16
        worker.release()
        for parent in parents[:4]:
            await board.until(parent, "turn.completed", 5)
        # Those that have ended count no more.
        assert await board.inside(parents[4], starting(agent="worker"))


async def test_children_asked_for_at_the_same_moment_are_counted_too(autojump_clock: MockClock) -> None:
    async with running({"worker": Worker()}) as board:
        parent = await board.open()
        made: list[str] = []
        refused: list[str] = []

        async def one(turn: Turn) -> None:
            try:
                made.append((await turn.tools.agent("wait", agent="worker"))["agent_id"])
            except TooManyChildren as full:
                refused.append(full.code)

        async def many(turn: Turn) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(9):
                    nursery.start_soon(one, turn)

        await board.inside(parent, many)
        assert (len(set(made)), refused) == (4, ["too_many_children"] * 5)


async def test_a_parent_that_is_gone_is_not_missed(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with running({"worker": worker}) as board:
        parent = await board.open()
        child = await start(board, parent, task="wait", agent="worker")
        await board.runtime.desk.delete(board.scope, parent.id, board.ann)
        worker.release()
        events = await board.until(await session_of(board, child), "turn.completed")
        assert events[-1].data["outcome"] == "answered"
        assert set(board.restarts().values()) == {0}


@pytest.mark.spec("SES-11")
async def test_a_returned_text_is_never_sent_back_to_another_agent(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(path="/asker"), await board.open(path="/other")

    async def ask(turn: Turn) -> str:
        return (await turn.tools.agent_send("/other", "what is it?"))["message_id"]

    board.plan(session, ask)
    await board.ask(session)
    await board.until(other, "turn.completed")
    assert await board.texts(other) == ["echo what is it?"]
    await trio.sleep(60)
    assert await board.texts(session, "user") == ["hello"]
    assert board.runs(session) == 1


@pytest.mark.spec("SES-9")
@pytest.mark.spec("SES-11")
async def test_an_answer_by_agent_send_names_what_it_answers(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(path="/asker"), await board.open(path="/other")
    asked: list[str] = []
    seen: list[tuple[str, str, str | None, str]] = []

    async def ask(turn: Turn) -> None:
        asked.append((await turn.tools.agent_send("/other", "what is it?"))["message_id"])

    async def answer(turn: Turn) -> None:
        await turn.tools.agent_send(turn.message.sender, "it is this")

    async def told(turn: Turn) -> None:
        (message,) = turn.attributed()
        seen.append((message.header, message.content, turn.message.reply_to, turn.message.sender.label))

    board.plan(session, ask, told)
    board.plan(other, answer)
    await board.ask(session)
    await board.until(session, "turn.completed", 2)
    (header, content, reply_to, label) = seen[0]
    assert header == f"[message from the session /other, {other.id}, in reply to {asked[0]}]"
    assert (content, reply_to, label) == ("it is this", asked[0], "/other")


@pytest.mark.spec("RT-15")
async def test_a_childs_result_keeps_chain_and_hop_of_its_start(autojump_clock: MockClock) -> None:
    async with running({"worker": Worker()}) as board:
        parent = await board.open()
        receipt = await board.post(parent, hops=5, chain="chain-1")
        board.plan(parent, starting(agent="worker"))
        await board.final(receipt)
        child = (await board.texts(parent))[0]
        await board.until(parent, "turn.completed", 2)
        (task,) = (await board.runtime.store.reads.inbox(board.scope, target=child)).items
        result = await board.runtime.desk.receipt(board.scope, f"subagent-result-{child}")
        assert [(view.chain, view.hops) for view in (task, result)] == [("chain-1", 6), ("chain-1", 6)]
        assert (await board.message(receipt)).outcome is Outcome.ANSWERED
