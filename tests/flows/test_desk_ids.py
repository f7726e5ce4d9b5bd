"""Ids that no row can have: every call of the desk answers them as it answers any other that is unknown."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

from callboard import NotFound
from callboard.actors.desk import Desk
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import InvalidField, UnknownTarget
from callboard.tests.flows.turn_kit import Board

SCOPE, ANN = Scope(), Sender("ann", "member", "Ann")
Call = Callable[[Desk, str], Awaitable[Any]]


async def followed(desk: Desk, name: str) -> None:
    async with desk.follow(SCOPE, name) as feed:
        await anext(feed)


async def turn_followed(desk: Desk, name: str) -> None:
    async with desk.follow_turn(SCOPE, name) as (feed, _):
        await anext(feed)


# What each call raises for a name that nothing has.
UNKNOWN: dict[str, tuple[Call, type[NotFound]]] = {
    "find": (lambda desk, name: desk.find(SCOPE, name), UnknownTarget),
    "send": (lambda desk, name: desk.send(SCOPE, name, "hello", ANN), UnknownTarget),
    "receipt": (lambda desk, name: desk.receipt(SCOPE, name), NotFound),
    "transcript": (lambda desk, name: desk.transcript(SCOPE, name), UnknownTarget),
    "stop": (lambda desk, name: desk.stop(SCOPE, name), UnknownTarget),
    "rename": (lambda desk, name: desk.rename(SCOPE, name, "Title"), UnknownTarget),
    "navigate": (lambda desk, name: desk.navigate(SCOPE, "member:ann", "tab", name), UnknownTarget),
    "delete": (lambda desk, name: desk.delete(SCOPE, name, ANN), UnknownTarget),
    "requeue": (lambda desk, name: desk.requeue(SCOPE, name), NotFound),
    "cancel": (lambda desk, name: desk.cancel(SCOPE, name), NotFound),
    "answer": (lambda desk, name: desk.answer(SCOPE, name, approve=True, by="ann"), NotFound),
    "follow": (followed, UnknownTarget),
    "follow_turn": (turn_followed, NotFound),
    "wait": (lambda desk, name: desk.wait(SCOPE, name), NotFound),
}
# What is given a text that is to be written down.
WRITTEN: dict[str, tuple[Call, str]] = {
    "the path of open": (lambda desk, text: desk.open(SCOPE, "agent", path=f"/{text}"), "path"),
    "the title of open": (lambda desk, text: desk.open(SCOPE, "agent", title=text), "title"),
    "the id of open": (lambda desk, text: desk.open(SCOPE, "agent", id=text), "id"),
    "the path of find": (lambda desk, text: desk.find(SCOPE, f"/{text}"), "path"),
    "the content of send": (lambda desk, text: desk.send(SCOPE, "ses_1", text, ANN), "content"),
    "the message id of send": (lambda desk, text: desk.send(SCOPE, "ses_1", "x", ANN, message_id=text), "message_id"),
    "the title of rename": (lambda desk, text: desk.rename(SCOPE, "ses_1", text), "title"),
    "the path of rename": (lambda desk, text: desk.rename(SCOPE, "ses_1", path=f"/{text}"), "path"),
    "the key of stop": (lambda desk, text: desk.stop(SCOPE, "ses_1", key=text), "key"),
    "the id of requeue": (lambda desk, text: desk.requeue(SCOPE, "msg_1", new_id=text), "id"),
}
BAD = ["\ud800", "ses_\udfff", "a\ud800b", "\0", "msg_\0", "\ud83d" * 600]


def test_the_tables_have_every_call_that_takes_an_id() -> None:
    own = {name for name, call in vars(Desk).items() if inspect.isfunction(call) and not name.startswith("_")}
    written = {name.rpartition(" ")[2] for name in WRITTEN}
    assert own == {*UNKNOWN, *written, "check_agent", "prune", "root", "steered_round"}


@pytest.mark.parametrize("name", UNKNOWN)
async def test_an_id_that_no_row_can_have_is_unknown(board: Board, autojump_clock: MockClock, name: str) -> None:
    call, error = UNKNOWN[name]
    await board.open()
    for unknown in ["", "ses_nowhere", *BAD]:
        with pytest.raises(error) as caught:
            await call(board.runtime.desk, unknown)
        assert caught.value.path
        assert str(caught.value).isprintable()
    assert board.restarts()["store"] == 0


@pytest.mark.spec("INB-5")
@pytest.mark.parametrize("name", WRITTEN)
async def test_a_text_that_no_row_can_hold_is_refused_by_its_field(
    board: Board, autojump_clock: MockClock, name: str
) -> None:
    call, path = WRITTEN[name]
    await board.open()
    for text in BAD:
        with pytest.raises(InvalidField) as caught:
            await call(board.runtime.desk, text)
        assert caught.value.path == path
        assert str(caught.value).isprintable()
    assert len(await board.runtime.list_sessions()) == 1


async def test_the_programs_own_calls_answer_the_same(board: Board, autojump_clock: MockClock) -> None:
    runtime = board.runtime
    calls: list[Callable[[str], Awaitable[Any]]] = [runtime.receipt, runtime.wait, runtime.read, runtime.stop]
    for call in calls:
        for unknown in BAD:
            with pytest.raises(NotFound):
                await call(unknown)
