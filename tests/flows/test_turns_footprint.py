"""What a turn holds while its agent waits: the mechanism behind the bytes that the benchmark `resident` measures (RT-11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from callboard import Turn
from callboard.tests.flows.turn_kit import running


def coroutines(task: trio.lowlevel.Task) -> Iterator[str]:
    """The names of the coroutines of `task`, each waiting for the next one."""
    coroutine: Any = task.coro
    while hasattr(coroutine, "cr_code"):
        yield coroutine.cr_code.co_name
        coroutine = coroutine.cr_await


def scopes(task: trio.lowlevel.Task) -> int:
    """How many cancel scopes `task` is in, those of the nursery around it not counted."""
    inner: Any = task
    status, outside = inner._cancel_status, inner.parent_nursery._cancel_status
    number = 0
    while status is not outside:
        status, number = status.parent, number + 1
    return number


async def test_an_actor_that_waits_is_one_task_with_one_scope_and_no_coroutine_around_its_agent(
    autojump_clock: MockClock,
) -> None:
    tasks: list[trio.lowlevel.Task] = []
    turns: list[Turn] = []
    release = trio.Event()

    async def agent(turn: Turn) -> None:
        tasks.append(trio.lowlevel.current_task())
        turns.append(turn)
        await release.wait()

    async with running({"waits": agent}) as board:
        before = trio.lowlevel.current_statistics().tasks_living
        session = await board.open("waits")
        receipt = await board.post(session)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before + 1
        (task,), (turn,) = tasks, turns
        assert list(coroutines(task))[:2] == ["agent", "wait"]
        assert scopes(task) == 1
        (delivery,) = board.runtime.dispatcher.live.values()
        assert delivery.scope.deadline == delivery.trusted_until
        made = {name for name in Turn.__slots__ if getattr(turn, name)}
        assert made == {"desk", "_claimed", "_pulse"}, "what the agent has not used is not made"
        release.set()
        assert (await board.final(receipt)).status == "delivered"


async def test_what_many_live_turns_say_alike_is_kept_once(autojump_clock: MockClock) -> None:
    turns: list[Turn] = []
    release = trio.Event()

    async def agent(turn: Turn) -> None:
        turns.append(turn)
        await release.wait()

    async with running({"waits": agent}) as board:
        for _ in range(2):
            await board.post(await board.open("waits"))
        await trio.testing.wait_all_tasks_blocked()
        one, two = turns
        assert one.message.sender is two.message.sender
        assert one.message.kind is two.message.kind
        assert one.scope is two.scope
        assert one.session.agent is two.session.agent
        assert one.message.chain is one.message.message_id is one.message.id
        release.set()
