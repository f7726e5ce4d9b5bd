"""The line of a websocket's sends: order, window, answers in place, and an end that takes back nothing that has begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.edges.sends import WINDOW, open_sends
from callboard.storage.model.errors import Busy, CallboardError

END = 5.0


class Store:
    """Takes numbers in; each is committed, or refused, once the test says so."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.committed: list[int] = []
        self.refused: set[int] = set()
        self.go: dict[int, trio.Event] = {}

    def work(self, number: int) -> Callable[[], Awaitable[dict[str, Any]]]:
        self.go[number] = trio.Event()

        async def send() -> dict[str, Any]:
            if number in self.refused:
                raise Busy("full")
            self.taken.append(number)
            await self.go[number].wait()
            self.committed.append(number)
            return {"accepted": number}

        return send

    def refusal(self, number: int) -> Callable[[CallboardError], dict[str, Any]]:
        return lambda error: {"refused": number, "code": error.code}


class Client:
    """Hears answers, one at a time."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.listening = False

    async def answer(self, frame: dict[str, Any]) -> None:
        assert not self.listening
        self.listening = True
        await trio.lowlevel.checkpoint()
        self.listening = False
        self.heard.append(frame)


async def test_all_are_handed_over_in_order_at_once_and_answered_in_order() -> None:
    store, client = Store(), Client()
    async with open_sends(client.answer, END) as sends:
        for number in range(WINDOW):
            await sends.add(store.work(number), store.refusal(number))
        await wait_all_tasks_blocked()
        assert store.taken == list(range(WINDOW))
        assert client.heard == []
        for number in reversed(range(1, WINDOW)):
            store.go[number].set()
        await wait_all_tasks_blocked()
        assert client.heard == []
        store.go[0].set()
        await sends.settled()
        assert client.heard == [{"accepted": number} for number in range(WINDOW)]


async def test_a_refusal_is_answered_in_its_place_and_holds_nobody_up() -> None:
    store, client = Store(), Client()
    store.refused = {0, 3, 4, 9}
    async with open_sends(client.answer, END) as sends:
        for number in range(10):
            await sends.add(store.work(number), store.refusal(number))
        await wait_all_tasks_blocked()
        assert store.taken == [1, 2, 5, 6, 7, 8]
        for event in store.go.values():
            event.set()
        await sends.settled()
    assert client.heard == [
        {"refused": number, "code": "busy"} if number in store.refused else {"accepted": number} for number in range(10)
    ]


@pytest.mark.spec("RT-14")
async def test_a_full_window_takes_no_more_until_one_is_answered() -> None:
    store, client = Store(), Client()
    added: list[int] = []
    async with open_sends(client.answer, END) as sends, trio.open_nursery() as nursery:

        async def add() -> None:
            for number in range(2 * WINDOW):
                await sends.add(store.work(number), store.refusal(number))
                added.append(number)

        nursery.start_soon(add)
        await wait_all_tasks_blocked()
        assert len(added) == len(store.taken) == WINDOW
        store.go[1].set()  # not the oldest: it can't be answered yet
        await wait_all_tasks_blocked()
        assert len(added) == WINDOW
        store.go[0].set()
        await wait_all_tasks_blocked()
        assert len(added) == len(store.taken) == WINDOW + 2
        for number in range(2 * WINDOW):
            await wait_all_tasks_blocked()
            store.go[number].set()
    assert store.committed[0:2] == [1, 0]
    assert client.heard == [{"accepted": number} for number in range(2 * WINDOW)]


async def test_what_has_begun_is_committed_though_the_connection_is_cancelled(autojump_clock: MockClock) -> None:
    store, client = Store(), Client()
    with trio.CancelScope() as connection:
        async with trio.open_nursery() as nursery:

            async def converse() -> None:
                async with open_sends(client.answer, END) as sends:
                    for number in range(10):
                        await sends.add(store.work(number), store.refusal(number))
                    await trio.sleep_forever()

            nursery.start_soon(converse)
            await wait_all_tasks_blocked()
            connection.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(END / 2)
                for number in range(9):
                    store.go[number].set()
    assert sorted(store.committed) == list(range(9))  # the last one was waited for until the limit
    assert trio.current_time() >= END
    assert client.heard == []


async def test_the_end_of_the_block_waits_for_the_answers_too(autojump_clock: MockClock) -> None:
    store, client = Store(), Client()

    async def commit() -> None:
        for event in tuple(store.go.values()):
            await trio.sleep(0.1)
            event.set()

    async with trio.open_nursery() as nursery, open_sends(client.answer, END) as sends:
        for number in range(20):
            await sends.add(store.work(number), store.refusal(number))
        nursery.start_soon(commit)
    assert [frame["accepted"] for frame in client.heard] == list(range(20))


async def test_a_store_that_does_not_answer_is_told_as_an_unknown_outcome(autojump_clock: MockClock) -> None:
    store, client = Store(), Client()
    async with open_sends(client.answer, END) as sends:
        for number in range(2):
            await sends.add(store.work(number), store.refusal(number))
        store.go[1].set()
        await sends.settled()
    assert client.heard == [{"refused": 0, "code": "outcome_unknown"}, {"accepted": 1}]
