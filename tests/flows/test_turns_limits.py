"""Bounds: live turns, hops of a chain, messages a minute of a pair. What is refused is stored where people can see it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from callboard import Tuning, Turn
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import LimitReached, MailboxFull
from callboard.storage.model.messages import Kind
from callboard.storage.model.states import Outcome, Status
from callboard.tests.flows.turn_kit import Board, running


@pytest.mark.spec("RT-14")
@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_turns_run_at_once_than_may(autojump_clock: MockClock, limit: int) -> None:
    at_once = most = 0

    async def slow(turn: Turn) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(1)
        at_once -= 1
        return "done"

    async with running({"slow": slow}, tuning=Tuning(live_turns=limit)) as board:
        sessions = [await board.open("slow") for _ in range(10)]
        start = trio.current_time()
        receipts = [await board.post(session) for session in sessions]
        views = [await board.final(receipt) for receipt in receipts]
        assert [view.outcome for view in views] == [Outcome.ANSWERED] * 10
        assert [view.attempt for view in views] == [1] * 10
        assert most == limit
        assert trio.current_time() - start == pytest.approx(-(-10 // limit), abs=0.2), (
            "a place is filled as soon as it is free"
        )
        assert set(board.restarts().values()) == {0}


async def ping(turn: Turn) -> None:
    """Answers every message with another one."""
    other = "/b" if turn.session.path == "/a" else "/a"
    await turn.tools.agent_send(other, f"{turn.message.hops + 1}")


@pytest.mark.spec("RT-15")
async def test_two_agents_that_never_stop_answering_end_at_the_hop_limit(autojump_clock: MockClock) -> None:
    async with running({"ping": ping}) as board:
        first, second = await board.open("ping", "/a"), await board.open("ping", "/b")
        receipt = await board.post(first, "0")
        await board.until(first, "turn.failed")
        sent = [*await board.texts(first, "user"), *await board.texts(second, "user")]
        assert sorted(map(int, sent)) == list(range(33))
        messages = (await board.runtime.store.reads.inbox(board.scope, limit=200)).items
        assert {view.chain for view in messages if view.kind != "notice"} == {receipt.id}
        assert sorted(view.hops for view in messages if view.kind != "notice") == list(range(33))
        # The refusal is on record: as the call's result, as the message's last error, and as a notice to whoever sent it.
        results = await board.events(first, "tool.result")
        assert results[-1].data["result"] == {
            "refused": {
                "code": "limit_reached",
                "message": "this chain of messages has made 32 hops, as many as it may",
                "path": "hops",
            }
        }
        last = next(view for view in messages if view.hops == 32)
        assert last.status is Status.FAILED
        assert (last.last_error or "").startswith("LimitReached: ")
        (notice,) = await board.texts(second, "notice")
        assert notice.startswith(f"Your message {last.id} was not delivered")
        await trio.sleep(600)
        assert len(await board.events(second, "turn.started")) == 16


@pytest.mark.spec("RT-15")
async def test_the_hop_limit_is_stored_with_the_messages_so_a_restart_refills_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    tuning = Tuning(max_hops=6)

    async def slow_ping(turn: Turn) -> None:
        await trio.sleep(1)
        await ping(turn)

    async with running({"ping": slow_ping}, url=url, tuning=tuning) as board:
        first, second = await board.open("ping", "/a"), await board.open("ping", "/b")
        await board.post(first, "0")
        await trio.sleep(3.5)
    async with running({"ping": slow_ping}, url=url, tuning=tuning) as board:
        await board.until(first, "turn.failed")
        sent = [*await board.texts(first, "user"), *await board.texts(second, "user")]
        assert sorted(map(int, sent)) == list(range(7))


@pytest.mark.spec("RT-15")
async def test_members_start_at_no_hops_and_children_and_mail_count_one_more(
    board: Board, autojump_clock: MockClock
) -> None:
    session, other = await board.open(), await board.open(path="/other")

    async def both(turn: Turn) -> tuple[int, str, str]:
        sent = await turn.tools.agent_send("/other", "mail")
        child = await turn.tools.agent("task")
        return turn.message.hops, sent["message_id"], child["agent_id"]

    hops, mail, child = await board.inside(session, both)
    (task,) = (await board.runtime.store.reads.inbox(board.scope, target=child)).items
    assert (hops, (await board.runtime.desk.receipt(board.scope, mail)).hops, task.hops) == (0, 1, 1)
    receipt = await board.runtime.send(other.id, "a post")
    assert (await board.runtime.receipt(receipt.message_id)).hops == 0


@pytest.mark.spec("RT-15")
async def test_sixty_messages_a_minute_from_one_session_to_another(board: Board, autojump_clock: MockClock) -> None:
    session = await board.open(path="/sender")
    other, third = await board.open(path="/other"), await board.open(path="/third")

    async def send(turn: Turn, to: str, count: int) -> int:
        for number in range(count):
            try:
                await turn.tools.agent_send(to, f"{turn.attempt}-{number}")
            except LimitReached:
                return number
        return count

    async def rush(turn: Turn) -> list[int]:
        first = await send(turn, "/other", 70)
        elsewhere = await send(turn, "/third", 5)
        await trio.sleep(30)
        again = await send(turn, "/other", 1)
        await trio.sleep(31)
        return [first, elsewhere, again, await send(turn, "/other", 70)]

    assert await board.inside(session, rush) == [60, 5, 0, 60]
    assert len(await board.texts(other, "user")) == 120
    # The other direction of the pair, and everybody else, is counted apart.
    assert await board.inside(other, lambda turn: send(turn, "/sender", 3)) == 3
    assert await board.inside(third, lambda turn: send(turn, "/other", 3)) == 3
    refusals = [e.data["result"] for e in await board.events(session, "tool.result") if "refused" in e.data["result"]]
    assert {(refusal["refused"]["code"], refusal["refused"]["message"]) for refusal in refusals} == {
        ("limit_reached", "60 messages in a minute to one session are allowed")
    }


@pytest.mark.spec("RT-15")
async def test_the_pair_limit_can_be_set_and_switched_off(autojump_clock: MockClock) -> None:
    for limit, passing in ((2, 2), (0, 90)):
        async with running(tuning=Tuning(pair_per_minute=limit)) as board:
            session, other = await board.open(), await board.open(path="/other")

            async def send(turn: Turn) -> int:
                for number in range(90):
                    try:
                        await turn.tools.agent_send("/other", f"m{number}")
                    except LimitReached:
                        return number
                return 90

            assert await board.inside(session, send) == passing
            # Posts of members, results and notices are exempt.
            for number in range(4):
                await board.post(other, f"post {number}")
                await board.post(other, f"notice {number}", kind=Kind.NOTICE)


@pytest.mark.spec("RT-15")
async def test_the_pair_limit_outlives_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    url, tuning = f"sqlite:///{tmp_path}/store.db", Tuning(pair_per_minute=5)

    async def send(turn: Turn) -> int:
        for number in range(9):
            try:
                await turn.tools.agent_send("/other", f"m{number}")
            except LimitReached:
                return number
        return 9

    async with running(url=url, tuning=tuning) as board:
        session = await board.open(path="/sender")
        await board.open(path="/other")
        assert await board.inside(session, send) == 5
    async with running(url=url, tuning=tuning) as board:
        assert await board.inside(session, send) == 0


@pytest.mark.spec("RT-14")
async def test_a_notice_never_causes_a_notice(board: Board, autojump_clock: MockClock) -> None:
    session, other = await board.open(), await board.open()
    begun = trio.Event()

    async def hold(turn: Turn) -> None:
        begun.set()
        await turn.sleep(60)

    board.plan(session, hold)
    await board.post(session)
    await begun.wait()
    mail = Sender(other.id, "session", "other")
    waiting = [
        await board.post(session, f"{kind}", sender=mail, kind=kind) for kind in (Kind.NOTICE, Kind.AGENT_MESSAGE)
    ]
    await board.runtime.desk.delete(board.scope, session.id, board.ann)
    for receipt in waiting:
        assert (await board.runtime.desk.receipt(Scope(), receipt.id)).status is Status.FAILED
    (notice,) = await board.texts(other, "notice")
    assert waiting[1].id in notice


@pytest.mark.spec("RT-14")
async def test_a_requeue_goes_by_the_depth_that_this_runtime_allows(autojump_clock: MockClock) -> None:
    async with running(tuning=Tuning(mailbox_depth=2)) as board:
        session = await board.open()
        old = await board.ask(session)
        go_on = await board.keep_busy(session)
        desk = board.runtime.desk
        await desk.requeue(board.scope, old.id)
        with pytest.raises(MailboxFull):
            await desk.requeue(board.scope, old.id)
        go_on.set()
