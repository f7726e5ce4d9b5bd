"""One stuck agent among a thousand sessions delays none of the others (RT-11); its figure is a row of tests/bench."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

import callboard
from callboard.storage.model.states import Status

SESSIONS = 1_000


@pytest.mark.spec("RT-11")
async def test_a_thousand_sessions_are_answered_while_one_hangs_and_one_blocks_its_thread(tmp_path: Path) -> None:
    hanging, blocked, release = trio.Event(), threading.Event(), threading.Event()

    async def hang(turn: callboard.Turn) -> None:
        hanging.set()
        await trio.sleep_forever()

    def block(turn: object) -> str:
        blocked.set()
        release.wait()
        return "released"

    async def echo(turn: callboard.Turn) -> str:
        return turn.text

    ended = 0
    url = f"sqlite:///{tmp_path}/isolation.db"
    agents = {"hang": hang, "block": block, "echo": echo}
    tuning = callboard.Tuning(stop_grace_seconds=0.0)
    with trio.fail_after(120):
        async with callboard.open_runtime(url, agents=agents, tuning=tuning) as runtime:
            stuck = [await runtime.open_session(agent=name) for name in ("hang", "block")]
            for session in stuck:
                await runtime.send(session.id, "for ever")
            await hanging.wait()
            await trio.to_thread.run_sync(blocked.wait)

            async def one(number: int) -> None:
                nonlocal ended
                session = await runtime.open_session(agent="echo")
                receipt = await runtime.send(session.id, str(number))
                view = await runtime.wait(receipt.id)
                assert view.status is Status.DELIVERED
                ended += 1

            async with trio.open_nursery() as crowd:
                for number in range(SESSIONS):
                    crowd.start_soon(one, number)
            assert ended == SESSIONS
            for session in stuck:
                (waiting,) = (await runtime.store.reads.inbox(runtime.scope, target=session.id)).items
                assert waiting.status is Status.PROCESSING
            release.set()
