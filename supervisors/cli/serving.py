"""`callboard serve`: a runtime with its front, from settings to a clean stop.

Lives here: the order of starting and stopping, signals, what is printed. Not here: settings, the tree, logs.

Invariant: what is printed and written to server.json is true: the store is open, the team's sessions exist, the address is listened on. The
process ends within bounded time after a signal, whatever agents do: one that can't be ended is fenced out, named, and left behind.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import trio

from ...actors.edges.listeners import tls_context
from ...actors.edges.token_file import TOKEN_FILE, load_or_create_token
from ...storage.model.errors import Rejected
from ..demo import demonstration
from ..front import Front, FrontSettings
from ..runtime import Runtime, open_runtime
from ..settings import Settings, load_settings, shown
from ..team import Team, load_team, open_places
from ..telemetry import set_up_logs, traces_of_server, watching_loop
from .announce import FILE as SERVER_FILE
from .announce import announced, withdraw
from .output import as_json, line, progress

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log: Final = logging.getLogger("callboard.serve")
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
STUCK_LOOK_SECONDS: Final = 0.2


def serve_command(arguments: Mapping[str, Any]) -> int:
    """Serve until a signal; returns the exit code."""
    settings = load_settings(arguments)
    set_up_logs(settings.log_level, json=settings.json)
    team = load_team(settings.team) if settings.team is not None else demonstration(settings.chat_model())
    front = Front(_front_settings(settings))
    with traces_of_server(settings.traces) as provider, _Signals(settings.data / SERVER_FILE) as signals:
        trio.run(_serve, settings, team, front, signals, provider)
    return 0


def _front_settings(settings: Settings) -> FrontSettings:
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = tls_context(settings.tls_cert, settings.tls_key)
    try:
        settings.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Rejected(f"can't be made: {error.strerror}", path=str(settings.data)) from error
    return FrontSettings(
        token=load_or_create_token(settings.data),
        host=settings.host,
        port=settings.port,
        allowed_hosts=settings.allowed_hosts,
        tls=tls,
        in_force=shown(settings),
    )


async def _serve(
    settings: Settings, team: Team, front: Front, signals: _Signals, provider: TracerProvider | None
) -> None:
    stop = trio.Event()
    signals.listen(stop, trio.lowlevel.current_trio_token())
    with watching_loop(), ExitStack() as opening:
        opening.enter_context(progress(f"opening {settings.store}"))
        # Why it could not start is told once, as the error that ends the command.
        opening.enter_context(_muted(logging.getLogger("callboard.tree")))
        async with trio.open_nursery() as nursery:
            start, waiting = trio.CancelScope(), trio.CancelScope()
            nursery.start_soon(_cancel_at, stop, start, waiting)
            with start:
                async with open_runtime(
                    settings.store, agents=team.agents, tuning=settings.tuning, extra=front, tracer_provider=provider
                ) as runtime:
                    await open_places(runtime, team)
                    opening.close()
                    waiting.cancel()  # from here on a stop is a clean stop
                    await _run(settings, front, runtime, stop, nursery)
            nursery.cancel_scope.cancel()
    log.info("stopped")


async def _run(settings: Settings, front: Front, runtime: Runtime, stop: trio.Event, nursery: trio.Nursery) -> None:
    """From the moment that everything runs to the signal."""
    url = front.url
    with announced(settings, url) as file:
        runtime.store.announce(url)
        _tell(settings, url, await front.console_link())
        log.info("serving %s from %s", url, runtime.store.name)
        await stop.wait()
        log.info("stopping")
        nursery.start_soon(_leave_the_stuck, runtime, file)


def _tell(settings: Settings, url: str, console: str) -> None:
    token_file = settings.data / TOKEN_FILE
    if settings.json:
        as_json({"url": url, "console": console, "token_file": str(token_file), "pid": os.getpid()})
    else:
        here = "" if settings.data == Path.cwd() else f" --data {settings.data}"
        line(f"Callboard serves {url} (process {os.getpid()}); the store is {settings.store}.")
        line(f"The operator's token is in {token_file}.")
        line(f"The console, to be opened once within ten minutes:  {console}")
        line(f"Talk to it:  callboard chat{here}    Look at it:  callboard sessions list{here}")
    sys.stdout.flush()


@contextmanager
def _muted(logger: logging.Logger) -> Iterator[None]:
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


async def _cancel_at(event: trio.Event, scope: trio.CancelScope, waiting: trio.CancelScope) -> None:
    with waiting:
        await event.wait()
        scope.cancel()


async def _leave_the_stuck(runtime: Runtime, file: Path) -> None:
    """End the process once all that is left of it are agents that can't be ended (RT-6); a clean stop ends this first.

    Trio can't leave a living task behind, so its root would wait for them for ever. They are fenced out and their messages are where they
    belong, and a store that is closed this way is as good as one closed in order.
    """
    while True:
        await trio.sleep(STUCK_LOOK_SECONDS)
        states = {node.name: node.state for node in runtime.snapshot().children}
        stuck = runtime.dispatcher.stuck
        if stuck and len(stuck) == len(runtime.dispatcher.live) and states["dispatcher"] == "stopped":
            log.error("ending without waiting for %s", ", ".join(stuck))
            withdraw(file)
            _exit(0)


@attrs.define
class _Signals:
    """The first signal asks for a clean stop, the second ends the process at once, even if an agent blocks the loop."""

    file: Path
    _asked: bool = attrs.field(default=False, init=False)
    _stop: trio.Event = attrs.field(init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    _old: dict[int, Any] = attrs.field(factory=dict[int, Any], init=False)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)

    def listen(self, stop: trio.Event, token: trio.lowlevel.TrioToken) -> None:
        """Set `stop` at the first signal from now on."""
        self._stop, self._token = stop, token

    def _handle(self, _: int, __: FrameType | None) -> None:
        if self._token is None:
            raise KeyboardInterrupt  # nothing runs yet that would have to be stopped in order
        if self._asked:
            withdraw(self.file)
            _exit(1)
        self._asked = True
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)


def _exit(code: int) -> None:
    """End now: no handler, no thread and no task is waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
