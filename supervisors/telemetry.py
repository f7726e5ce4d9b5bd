"""What a server tells its operators: structured logs, and a loop that is blocked.

Lives here: setting logs and traces up for `serve`, the lines about the supervision tree, the watch over the loop. Not here: who logs what;
metrics; spans (`tracing`).
Invariant: nothing is set up by import (RT-16), and no value of a local variable gets into a log: it may be a token.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import trio

from ..storage.model.errors import SettingsError
from .tree import Escalated, Exit, Exited, Restarting, Stuck, TreeEvent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log: Final = logging.getLogger("callboard.tree")
loop_log: Final = logging.getLogger("callboard.loop")
FIELDS: Final = ("session", "message_id", "attempt", "outcome", "seconds")
"""What a log line may have beside its text: ids and figures, never what anybody wrote."""
BLOCKED_SECONDS: Final = 1.0
"""A step of a task that lasts longer keeps everybody else waiting long enough to be told about (RT-6)."""


def set_up_logs(level: str, *, stream: TextIO | None = None, json: bool = False) -> None:
    """Send every log of this process to `stream` (stderr): for people if it is a terminal, else, or with `json`, one JSON object a line.

    Replaces the handlers of the root logger, so it is for programs whose own it is.
    """
    import structlog

    out: TextIO = stream or sys.stderr
    for_programs = json or not out.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        # By name: what a library attaches to its lines may be anything.
        structlog.stdlib.ExtraAdder(allow=FIELDS),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.contextvars.merge_contextvars,
    ]
    if for_programs:
        # Formatted as text: the structured form carries local variables.
        last: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            _in_order,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    else:
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their debug lines hold the bytes of requests, tokens included.
    for name in ("trio-websocket", "httpx", "httpcore", "h11", "aiosqlite"):
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))


@contextmanager
def traces_of_server(wanted: bool) -> Iterator[TracerProvider | None]:
    """Where a server's traces go, while the block lasts, if they are `wanted`. Raises `SettingsError` without the extra `otel`."""
    if not wanted:
        yield None
        return
    try:
        from .tracing import exporting

        provider = exporting()
    except ImportError:
        raise SettingsError("needs the extra otel: pip install 'callboard[otel]'", path="traces") from None
    try:
        yield provider
    finally:
        provider.shutdown()


def _in_order(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Time, level, logger and text first: people read these lines too."""
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event") if name in event}
    return {**first, **event}


def log_failure(child: str, error: Exception) -> None:
    """The line about a temporary child that failed: nothing is restarted for it, so nobody else tells of it."""
    log.error("%s failed: %s", child, _said(error), exc_info=error)


def log_tree_event(event: TreeEvent) -> None:
    """The line about what happened in a supervision tree, if it is worth one."""
    match event:
        case Exited(exit=Exit.ABNORMAL, error=error):
            # The traceback is what the person who must act needs; it holds lines of code and no values.
            log.error("%s ended abnormally: %s", event.child, _said(error), exc_info=error)
        case Restarting():
            log.warning("%s is started again in %.2f s", " and ".join(event.group) or event.child, event.delay)
        case Stuck():
            log.error("%s still runs %.0f s after it was asked to stop", event.child, event.seconds)
        case Escalated():
            log.critical("%s gives up because of %s", event.supervisor, event.child)
        case _:
            log.debug("%s: %s", type(event).__name__.lower(), event.child)


def _said(error: Exception | None) -> str:
    return "it returned" if error is None else f"{type(error).__name__}: {error}"


@contextmanager
def watching_loop(seconds: float = BLOCKED_SECONDS) -> Iterator[None]:
    """Watch the Trio loop of this thread while the block lasts: a step of a task that blocks it for over `seconds` is logged.

    A thread asks the loop for a sign of life now and then, so the loop's own steps cost nothing more, and a step that never ends is told
    about too.
    """
    watch = _Watch(seconds, trio.lowlevel.current_trio_token(), threading.get_ident())
    thread = threading.Thread(target=watch.run, name="loop watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.over.set()
        thread.join(1.0)


class _Watch:
    """The thread's side. A sign is asked for every quarter of the limit, so whatever lasts longer than the limit is seen."""

    def __init__(self, seconds: float, token: trio.lowlevel.TrioToken, thread: int) -> None:
        self.over = threading.Event()
        self._pause = seconds / 4
        self._patience = seconds - self._pause
        self._token = token
        self._thread = thread

    def run(self) -> None:
        while not self.over.wait(self._pause):
            sign = threading.Event()
            began = time.perf_counter()
            try:
                self._token.run_sync_soon(sign.set)
            except trio.RunFinishedError:
                return
            if not sign.wait(self._patience):
                task, place = self._culprit()
                loop_log.error("the loop is blocked by %s%s", task, place)
                while not sign.wait(self._pause):
                    if self.over.is_set():
                        return
                loop_log.warning(
                    "the loop goes on after %.1f s, it was blocked by %s", time.perf_counter() - began, task
                )

    def _culprit(self) -> tuple[str, str]:
        """The task whose step runs, and the line it is at."""
        frame = innermost = sys._current_frames().get(self._thread)  # noqa: SLF001 (nothing else tells where another thread is)
        while frame is not None and frame.f_code.co_name != "unrolled_run":
            frame = frame.f_back
        task = frame.f_locals.get("task") if frame is not None else None
        place = f" at {innermost.f_code.co_filename}, line {innermost.f_lineno}" if innermost is not None else ""
        return (task.name if isinstance(task, trio.lowlevel.Task) else "an unknown task"), place
