"""Fixtures of the flow tests. Not here: helpers that a test calls by name (the kits beside this file).

Everything is imported when a fixture is used, so a test that needs none of it runs without it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from callboard.tests.flows.cli_kit import Done, Here, Local
    from callboard.tests.flows.edge_kit import Served
    from callboard.tests.flows.model_kit import ModelServer
    from callboard.tests.flows.turn_kit import Board


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A runtime with its HTTP front on a port of its own, on a store file in `tmp_path`, over real sockets.

    Gives `Served`: `.url` (`http://127.0.0.1:PORT`), `.token` (the operator's), `.runtime` (the `Runtime` behind it), `.client` (an
    `httpx.AsyncClient` with that address and bearer token). The agents are those of `edge_kit.AGENTS`; the session `/` is open. For other
    agents, limits or stores use `edge_kit.serving_runtime(...)`, an async context manager that gives the same.
    """
    from callboard.tests.flows.edge_kit import serving_runtime

    async with serving_runtime(tmp_path) as opened:
        yield opened


@pytest.fixture
async def board() -> AsyncIterator[Board]:
    """A runtime on an in-memory store, all in one thread; its agent `agent` does what the test plans. Gives `turn_kit.Board`.

    A test that takes `autojump_clock` too jumps over every wait. For other agents, limits or stores use `turn_kit.running(...)`.
    """
    from callboard.tests.flows.turn_kit import running

    async with running() as opened:
        yield opened


@pytest.fixture
def monday(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one day for all prompts of this process (`prompt_day`), and the clock goes on behind a test that loaded a team which stops it."""
    from callboard.tests.flows.prompt_day import MONDAY, set_time

    set_time(monkeypatch, MONDAY)


@pytest.fixture
def local(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Local:
    """Runs a command in this process: `local(*arguments, folder=…)` gives `cli_kit.Done`."""
    from callboard.supervisors import cli
    from callboard.tests.flows.cli_kit import Done

    for name in [name for name in os.environ if name.startswith("CALLBOARD_")]:
        monkeypatch.delenv(name)

    def run_here(*arguments: str, folder: Path) -> Done:
        monkeypatch.chdir(folder)
        code = cli.run(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run_here


@pytest.fixture
def here(local: Local) -> Here:
    """The same for a test that runs in Trio: each command has a run of its own, in a thread."""

    async def run_here(*arguments: str, folder: Path) -> Done:
        return await trio.to_thread.run_sync(lambda: local(*arguments, folder=folder))

    return run_here


@pytest.fixture(scope="module")
def model_process() -> Iterator[ModelServer]:
    from callboard.tests.flows.model_kit import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
async def model_server(model_process: ModelServer) -> ModelServer:
    """A model's service that was not written here, on a port of its own, with nothing planned. Gives `model_kit.ModelServer`."""
    await model_process.reset()
    return model_process
