"""The log of a running system: one line for each attempt of a turn, with ids and figures; never contents, never secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator

import pytest
import trio

from callboard.supervisors.telemetry import FIELDS, set_up_logs
from callboard.tests.flows.cli_kit import run, serving
from callboard.tests.flows.edge_kit import Served

SECRET = "a-secret-text"


class Lines(logging.Handler):
    """The lines that end an attempt, by message id, and a way to wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, logging.LogRecord] = {}
        self._more = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("a turn ended: "):
            self.ended[record.__dict__["message_id"]] = record
            self._more.set()

    async def all_of(self, messages: Iterable[str]) -> None:
        """Wait until each of `messages` has a line."""
        while not set(messages) <= set(self.ended):
            self._more = trio.Event()
            await self._more.wait()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("callboard")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.spec("OPS-4")
async def test_every_attempt_has_one_line_that_says_how_it_ended(
    served: Served, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "callboard")
    answered = await served.say(await served.open(), f"echo {SECRET}", message_id="m-1")
    silent = await served.say(await served.open("silent"), SECRET)
    broken = await served.open("broken")
    failing = await served.post(broken, SECRET, message_id="m-2")
    await served.until(broken, "attempt.relinquished")
    patient = await served.open("patient")
    stopped = await served.post(patient, SECRET)
    await served.until(patient, "turn.token")
    await served.client.post(f"/v1/sessions/{patient}/stop")
    await served.until(patient, "turn.stopped")
    expected = {
        "m-1": "answered",
        silent["message_id"]: "no_visible_reply",
        failing["message_id"]: "retried",
        stopped["message_id"]: "stopped",
    }
    # The line about an attempt follows its commit, which is what readers are told of.
    await lines.all_of(expected)
    outcomes = {name: record.__dict__["outcome"] for name, record in lines.ended.items()}
    assert outcomes == expected
    line = lines.ended["m-1"].__dict__
    assert (line["session"], line["attempt"]) == (answered["session"], 1)
    assert 0 < line["seconds"] < 30
    assert SECRET not in caplog.text


@pytest.mark.spec("OPS-4")
async def test_a_served_log_has_the_fields_and_no_secret_even_at_debug(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("served")
    async with serving(folder, "--log-level", "debug") as server:
        token = server.token_file.read_text().strip()
        console = json.loads(await server.command.out.line())["console"]
        await server.post("/", f"echo {SECRET}")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        assert (await run("chat", folder=folder, stdin=f"echo {SECRET}\n")).out == f"{SECRET}\n"
        await server.post("/", "fail")
        await server.until("/", lambda kind, _: kind == "attempt.relinquished")
    done = await server.command.end()
    lines = [json.loads(line) for line in done.err.splitlines()]
    turns = [line for line in lines if line["event"].startswith("a turn ended: ")]
    assert {line["outcome"] for line in turns} == {"answered", "retried"}
    assert all(set(FIELDS) <= set(line) for line in turns)
    for secret in (SECRET, token, console.partition("ticket=")[2]):
        assert secret
        assert secret not in done.err


def test_what_a_library_attaches_to_its_lines_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logs("info", json=True)
        logging.getLogger("some.module").info("a request", extra={"headers": "Bearer abc", "session": "ses_1"})
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["session"]) == ("a request", "ses_1")
    assert "headers" not in line
