"""A client that takes leave, or is given a session that can't be one: nothing is told that is not so, no connection is lost over it."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from callboard import client
from callboard.actors.edges.server import Server
from callboard.storage.model.errors import InvalidField
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.front_kit import echo_app, echo_websocket


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving_runtime(tmp_path) as opened:
        yield opened


async def test_leaving_is_no_loss_of_the_connection(served: Served) -> None:
    changes: list[bool] = []
    async with client.connect(served.url, served.token, on_change=changes.append):
        pass
    assert changes == [True]
    with pytest.raises(ZeroDivisionError):
        async with client.connect(served.url, served.token, on_change=changes.append):
            raise ZeroDivisionError
    with trio.CancelScope() as scope:
        async with client.connect(served.url, served.token, on_change=changes.append):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert changes == [True, True, True]


async def test_a_name_too_long_for_a_session_is_refused_before_it_is_sent(served: Served) -> None:
    changes: list[bool] = []
    session = await served.open()
    async with client.connect(served.url, served.token, on_change=changes.append) as board:
        with pytest.raises(InvalidField, match="129 characters"):
            board.subscribe("s" * 129)
        with pytest.raises(InvalidField, match="129 characters"):
            await board.stop("s" * 129)
        with pytest.raises(InvalidField, match="129 characters"):
            await board.send("s" * 129, "echo hello")
        assert (await board.send(session, "echo hello")).created
    assert changes == [True]


class Exhausted(trio.abc.Listener[trio.SocketStream]):
    """A listener of a process that has no file descriptor left."""

    def __init__(self) -> None:
        self.tries = 0

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class NoSpawn:
    def start(self, name: str, *_: object) -> None:
        raise AssertionError(name)


async def test_what_can_not_be_accepted_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.ERROR)
    server, listener = Server(echo_app(), echo_websocket, spawn=NoSpawn()), Exhausted()
    with trio.move_on_after(150):
        await server._accept(listener)  # pyright: ignore[reportArgumentType]
    assert listener.tries > 1000
    assert [record.getMessage().count("Too many open files") for record in caplog.records] == [1, 1, 1]
