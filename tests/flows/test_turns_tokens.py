"""Streamed text: committed in blocks before anybody sees it, and dropped with its attempt (EVT-4)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Event, Turn
from callboard.storage.model.messages import Kind
from callboard.storage.ops import Claim, EmitTokens, Enqueue, VoidLeases
from callboard.tests.flows.turn_kit import Board, Body

pytestmark = pytest.mark.spec("EVT-4")


def emitting(*steps: str | float, times: list[float] | None = None, answer: str | None = None) -> Body[str | None]:
    """A body that emits texts and sleeps seconds; `times` gets the time of its start."""

    async def run(turn: Turn) -> str | None:
        if times is not None:
            times.append(turn.desk.store.now())
        for step in steps:
            if isinstance(step, str):
                await turn.emit(step)
            else:
                await trio.sleep(step)
        return answer

    return run


def blocks(events: list[Event], start: float) -> list[tuple[str, float]]:
    """Texts of the token events, and when each was committed, in milliseconds after the start."""
    return [(event.data["text"], round((event.at - start) * 1_000)) for event in events if event.kind == "turn.token"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(("a", "b", "c", 1.0), [("abc", 50)], id="fifty milliseconds after its first text"),
        pytest.param(("a", 0.04, "b", 0.02, "c", 1.0), [("ab", 50), ("c", 110)], id="not after its last"),
        pytest.param(
            ("x" * 199, 0.01, "y", 0.01, "z", 1.0), [("x" * 199 + "y", 10), ("z", 70)], id="at two hundred bytes"
        ),
        pytest.param(("é" * 99, 0.01, "é", 1.0), [("é" * 100, 10)], id="bytes, not characters"),
        pytest.param(("x" * 5_000, "y", 1.0), [("x" * 5_000, 0), ("y", 50)], id="a long text is one block"),
        pytest.param(("a", 0.2, "b", 0.2), [("a", 50), ("b", 250)], id="an idle stream costs nothing"),
        pytest.param(("a", "", 1.0, ""), [("a", 50)], id="no text is no block"),
        pytest.param(("", ""), [], id="nothing at all"),
        pytest.param(("a", 0.01), [("a", 10)], id="the end of the turn closes it"),
    ],
)
async def test_when_a_block_closes(
    board: Board, autojump_clock: MockClock, steps: tuple[str | float, ...], expected: list[tuple[str, int]]
) -> None:
    session, times = await board.open(), list[float]()
    board.plan(session, emitting(*steps, times=times))
    await board.ask(session)
    assert blocks(await board.events(session), times[0]) == expected


async def test_a_block_waits_longer_while_the_commit_queue_is_long(board: Board, autojump_clock: MockClock) -> None:
    session, crowd, times = await board.open(), await board.open(), list[float]()
    ready, go_on = trio.Event(), trio.Event()

    async def stream(turn: Turn) -> None:
        ready.set()
        await go_on.wait()
        times.append(turn.desk.store.now())
        await turn.emit("under load")
        await trio.sleep(1)

    board.plan(session, stream)
    receipt = await board.post(session)
    await ready.wait()
    board.gate.close(Enqueue)
    async with trio.open_nursery() as nursery:
        for number in range(900):
            nursery.start_soon(partial(board.post, crowd, f"m{number}", kind=Kind.NOTICE))
        await wait_all_tasks_blocked()
        assert board.runtime.store.statistics()["depth"] > 256
        go_on.set()
        await wait_all_tasks_blocked()
        board.gate.open()
    await board.final(receipt)
    assert blocks(await board.events(session), times[0]) == [("under load", 250)]


async def test_text_is_seen_only_after_its_commit_and_the_writer_is_not_held_up(
    board: Board, autojump_clock: MockClock
) -> None:
    session = await board.open()
    seen: list[str] = []

    async def stream(turn: Turn) -> None:
        board.gate.close(EmitTokens)
        start = trio.current_time()
        await turn.emit("first")
        await trio.sleep(0.2)
        for _ in range(10):
            await turn.emit("z" * 100)
        assert trio.current_time() - start == pytest.approx(0.2), (
            "a block is being committed; the rest waits in the next one"
        )
        seen.extend(await board.kinds(session))
        board.gate.open()
        await trio.sleep(0.2)
        seen.append("the gate is open")
        seen.extend(await board.kinds(session))

    board.plan(session, stream)
    await board.ask(session)
    position = seen.index("the gate is open")
    assert "turn.token" not in seen[:position]
    assert seen[position:].count("turn.token") == 2, (
        "what waited behind the slow commit does not wait for the turn's end"
    )
    texts = [event.data["text"] for event in await board.events(session, "turn.token")]
    assert texts == ["first", "z" * 1_000]


async def test_a_writer_waits_once_too_much_is_uncommitted(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    written: list[int] = []

    async def flood(turn: Turn) -> None:
        await turn.emit("x" * 1_024)
        for _ in range(99):
            await turn.emit("x" * 1_024)
            written.append(1_024)

    async def small_first(turn: Turn) -> None:
        await turn.emit("first")
        await trio.sleep(1)  # its block is being committed, and takes long
        await flood(turn)

    board.plan(session, small_first)
    board.gate.close(EmitTokens)
    receipt = await board.post(session)
    await board.gate.waiting.wait()
    await trio.sleep(5)
    assert 14 * 1_024 <= sum(written) <= 16 * 1_024
    board.gate.open()
    await board.final(receipt)
    assert await board.texts(session) == ["first" + "x" * 1_024 * 100]
    texts = [event.data["text"] for event in await board.events(session, "turn.token")]
    assert "".join(texts) == "first" + "x" * 1_024 * 100


async def test_the_text_of_an_attempt_that_ended_is_dropped_with_it(board: Board, autojump_clock: MockClock) -> None:
    """What a client shows in the end, if it drops an attempt's text at attempt.relinquished, is the answer."""
    session = await board.open()

    async def failing(turn: Turn) -> None:
        await turn.emit("first try " * 30)
        raise ValueError

    async def robbed(turn: Turn) -> None:
        await turn.emit("second try " * 30)
        await board.runtime.store.apply(VoidLeases())
        await board.runtime.store.apply(Claim("thief", "n-1", 1, 20.0, frozenset({"agent"})))
        await trio.sleep_forever()

    board.plan(session, failing, robbed, emitting("third ", 0.1, "try"))
    await board.ask(session)
    shown: dict[int, str] = {}
    dropped: list[int] = []
    for event in await board.events(session):
        if event.kind == "turn.token":
            shown[event.data["attempt"]] = shown.get(event.data["attempt"], "") + event.data["text"]
        if event.kind == "attempt.relinquished":
            dropped.append(event.data["attempt"])
            shown.pop(event.data["attempt"], None)
    assert dropped == [1, 2, 3]
    assert shown == {4: "third try"}
    assert await board.texts(session) == ["third try"]


async def test_a_returned_answer_stands_beside_what_was_streamed(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open()
    board.plan(session, emitting("thinking… ", 0.1, "more…", answer="the answer"))
    await board.ask(session)
    assert await board.texts(session) == ["the answer"]
    texts = [event.data["text"] for event in await board.events(session, "turn.token")]
    assert texts == ["thinking… ", "more…"]


async def test_many_streams_at_once_each_keep_their_order(board: Board, autojump_clock: MockClock) -> None:
    sessions = [await board.open() for _ in range(30)]
    words = [f"w{number} " for number in range(60)]
    for session in sessions:
        steps: list[str | float] = []
        for word in words:
            steps += [word, 0.013]
        board.plan(session, emitting(*steps))
    receipts = [await board.post(session) for session in sessions]
    for session, receipt in zip(sessions, receipts, strict=True):
        await board.final(receipt)
        tokens = await board.events(session, "turn.token")
        assert "".join(event.data["text"] for event in tokens) == "".join(words)
        assert len(tokens) <= 20
        assert await board.texts(session) == ["".join(words)]
