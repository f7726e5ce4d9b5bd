"""Logs are one JSON object a line and keep secrets; a blocked loop is logged with its task; importing sets nothing up."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.supervisors.telemetry import log_tree_event, set_up_logs, watching_loop
from callboard.supervisors.tree import Escalated, Exit, Exited, Restarting, Started, Stuck

LINKS = str(Path(__file__).parents[2] / ".links")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("root")
def test_a_log_line_is_one_json_object() -> None:
    stream = io.StringIO()
    set_up_logs("info", stream=stream)
    logging.getLogger("callboard.x").info("two\nlines of %s", "text")
    logging.getLogger("callboard.x").debug("not asked for")
    (line,) = lines(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert (line["level"], line["logger"], line["event"]) == ("info", "callboard.x", "two\nlines of text")
    assert line["timestamp"].endswith("Z")


@pytest.mark.usefixtures("root")
def test_a_traceback_holds_no_values() -> None:
    stream = io.StringIO()
    set_up_logs("info", stream=stream)
    secret = "s3cr" + "et-value"
    try:
        raise RuntimeError("it has no name" if secret else secret)
    except RuntimeError:
        logging.getLogger("callboard.x").exception("it failed")
    (line,) = lines(stream)
    assert "RuntimeError: it has no name" in line["exception"]
    assert secret not in stream.getvalue()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("json_asked", "for_people"), [(False, True), (True, False)])
def test_a_terminal_gets_lines_for_people_unless_json_is_asked_for(json_asked: bool, for_people: bool) -> None:
    stream = Terminal()
    set_up_logs("info", stream=stream, json=json_asked)
    logging.getLogger("callboard.x").warning("hello")
    assert stream.getvalue().startswith("{") is not for_people
    assert "hello" in stream.getvalue()


@pytest.mark.usefixtures("root")
def test_libraries_that_log_requests_stay_quiet_at_debug() -> None:
    stream = io.StringIO()
    set_up_logs("debug", stream=stream)
    for name in ("trio-websocket", "httpx", "httpcore.http11", "h11"):
        logging.getLogger(name).debug("Authorization: Bearer abc")
    assert stream.getvalue() == ""


def test_what_happens_in_the_tree_is_logged_by_its_weight(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    boom = RuntimeError("boom")
    for event in (
        Started("root", "store", 0),
        Exited("root", "store", Exit.NORMAL, None),
        Exited("root", "store", Exit.ABNORMAL, boom),
        Restarting("root", "store", 0.5, ("store", "tails")),
        Stuck("root", "sessions", 7.0),
        Escalated("root", "store", boom),
    ):
        log_tree_event(event)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "started: store"),
        ("DEBUG", "exited: store"),
        ("ERROR", "store ended abnormally: RuntimeError: boom"),
        ("WARNING", "store and tails is started again in 0.50 s"),
        ("ERROR", "sessions still runs 7 s after it was asked to stop"),
        ("CRITICAL", "root gives up because of store"),
    ]


@pytest.mark.spec("RT-6")
async def test_a_blocked_loop_is_logged_with_its_task_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    told = threading.Semaphore(0)

    class Tells(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.release()

    handler = Tells()
    logger = logging.getLogger("callboard.loop")
    logger.addHandler(handler)

    async def blocks_the_loop() -> None:
        assert told.acquire(timeout=30)  # the loop is blocked exactly until somebody has noticed

    try:
        with watching_loop(seconds=0.2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(blocks_the_loop, name="session:blocking")
            # The loop runs again; that is told as well.
            assert await trio.to_thread.run_sync(lambda: told.acquire(timeout=30))
    finally:
        logger.removeHandler(handler)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("the loop is blocked by session:blocking at ")
    assert "threading.py" in first
    assert second.startswith("the loop goes on after 0.")
    assert second.endswith("it was blocked by session:blocking")


async def test_a_busy_loop_that_is_not_blocked_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with watching_loop(seconds=0.4):
        end = time.perf_counter() + 0.8
        while time.perf_counter() < end:
            await trio.lowlevel.checkpoint()
    assert caplog.records == []


async def test_the_watch_ends_with_its_block() -> None:
    with watching_loop():
        assert "loop watch" in {thread.name for thread in threading.enumerate()}
    assert "loop watch" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.spec("RT-16")
def test_importing_sets_up_no_logs_and_no_signals() -> None:
    code = """
import logging, signal, sys
before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
import callboard
for name in callboard.__all__: getattr(callboard, name)
import callboard.supervisors.telemetry, callboard.supervisors.front
assert {s: signal.getsignal(s) for s in before} == before
assert logging.getLogger().handlers == [] and logging.getLogger().level == logging.WARNING
assert not any(isinstance(h, logging.StreamHandler) for n in logging.root.manager.loggerDict for h in logging.getLogger(n).handlers)
assert "structlog" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": LINKS}, check=True, timeout=60)
