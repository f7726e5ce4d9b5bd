"""`callboard serve`: a runtime with its front, from settings to a clean stop.

Lives here: the order of starting and stopping, signals, what is printed. Not here: settings, the tree, logs, an end that does not come
(`ending`).

Invariant: what is printed and written to server.json is true: the store is open, the team's sessions exist, the address is listened on. The
process ends within bounded time after a signal, whatever agents do: one that can't be ended is fenced out, named, and left behind.
"""

from __future__ import annotations

import logging
import os
import resource
import shlex
import signal
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import trio

from ...actors.edges.limits import Limits
from ...actors.edges.listeners import AddressInUse, close_listeners, open_listeners, tls_context
from ...actors.edges.token_file import TOKEN_FILE, load_or_create_token
from ...storage.sqlite.lock import FileLock
from ..demo import team_of
from ..front import Front, FrontSettings
from ..runtime import Runtime, open_runtime
from ..settings import Settings, load_settings, shown
from ..team import Team, open_places
from ..telemetry import set_up_logs, traces_of_server, watching_loop
from ..tree import ChildSpec
from .announce import FILE as SERVER_FILE
from .announce import announced, refuse_second, take_folder, withdraw
from .arguments import program
from .ending import Ending, end_now
from .output import as_json, line, progress

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log: Final = logging.getLogger("callboard.serve")
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CONNECTIONS: Final = 2_000
OWN_DESCRIPTORS: Final = 128
"""Files that the front's connections must leave to others: the store's, the loop's, and those of clients that are told there is no room."""


def serve_command(arguments: Mapping[str, Any]) -> int:
    """Serve until a signal; returns the exit code."""
    settings = load_settings(arguments)
    set_up_logs(settings.log_level, json=settings.json)
    with ExitStack() as quiet:
        # What a team's modules and agents print must not come before the line that says where it serves, or take its place.
        quiet.enter_context(redirect_stdout(sys.stderr))
        team = team_of(settings)
        with traces_of_server(settings.traces) as provider, _Signals(settings.data / SERVER_FILE) as signals:
            trio.run(_Serve(settings, team, _tls(settings), quiet, provider).run, signals)
    return 0


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return tls_context(settings.tls_cert, settings.tls_key)


def _front_settings(settings: Settings, tls: ssl.SSLContext | None) -> FrontSettings:
    return FrontSettings(
        token=load_or_create_token(settings.data, own=True),
        host=settings.host,
        port=settings.port,
        allowed_hosts=settings.allowed_hosts,
        tls=tls,
        limits=Limits(connections=connections_most(CONNECTIONS)),
        in_force=shown(settings),
    )


async def _listen(settings: Settings) -> list[trio.SocketListener]:
    try:
        return await open_listeners(settings.host, settings.port)
    except AddressInUse as error:
        raise AddressInUse(f"{error.message}; take another one: --port N, or 0 for any") from None


def connections_most(wanted: int) -> int:
    """Raise the limit of open files as far as it goes; how many connections, at most `wanted`, there is then room for.

    Beyond the limit nothing can be accepted, not even to say so, and the store can't open its files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return wanted
    most = max(1, min(wanted, soft - OWN_DESCRIPTORS))
    if most < wanted:
        log.warning("at most %d connections, as at most %d files may be open", most, soft)
    return most


@attrs.frozen
class _Serve:
    """One server, from its sockets to its last commit. `quiet` keeps stdout for its first line."""

    settings: Settings
    team: Team
    tls: ssl.SSLContext | None
    quiet: ExitStack
    provider: TracerProvider | None

    async def run(self, signals: _Signals) -> None:
        settings, stop = self.settings, trio.Event()
        signals.listen(stop, trio.lowlevel.current_trio_token())
        ending = Ending(stop, partial(withdraw, settings.data / SERVER_FILE))
        with watching_loop(), ExitStack() as held, ExitStack() as bound, ExitStack() as opening:
            opening.enter_context(progress(f"opening {settings.store_shown}"))
            # Why it could not start is told once, as the error that ends the command.
            opening.enter_context(_muted(logging.getLogger("callboard.tree")))
            async with trio.open_nursery() as nursery:
                start, waiting = trio.CancelScope(), trio.CancelScope()
                nursery.start_soon(_cancel_at, stop, start, waiting)
                with start:
                    # The address before all else: where it is taken, nothing may be left behind, and no turn started only to be
                    # cancelled. But who has it may be this folder's own server, which is the better answer.
                    refuse_second(settings.data)
                    listeners = await _listen(settings)
                    bound.callback(close_listeners, listeners)
                    settings.make_folder()
                    lock = held.enter_context(await take_folder(settings.data))
                    front = Front(_front_settings(settings, self.tls), listeners)

                    def extra(runtime: Runtime) -> list[ChildSpec]:
                        nursery.start_soon(ending.watch, runtime)
                        return front(runtime)

                    async with open_runtime(
                        settings.store,
                        agents=self.team.agents,
                        tuning=settings.tuning,
                        extra=extra,
                        tracer_provider=self.provider,
                    ) as runtime:
                        with ending.noted():
                            await open_places(runtime, self.team)
                            opening.close()
                            waiting.cancel()  # from here on a stop is a clean stop
                            await self._until(stop, front, runtime, lock)
                nursery.cancel_scope.cancel()
        log.info("stopped")

    async def _until(self, stop: trio.Event, front: Front, runtime: Runtime, lock: FileLock) -> None:
        """From the moment that everything runs to the signal."""
        url = front.url
        with announced(self.settings, url):
            lock.announce(url)
            runtime.store.announce(url)
            console = await front.console_link()
            self.quiet.close()
            _tell(self.settings, url, console)
            log.info("serving %s from %s", url, runtime.store.name)
            await stop.wait()
            log.info("stopping")


def _tell(settings: Settings, url: str, console: str) -> None:
    token_file = settings.data / TOKEN_FILE
    if settings.json:
        as_json({"url": url, "console": console, "token_file": str(token_file), "pid": os.getpid()})
    else:
        here = "" if settings.data == _current() else f" --data {shlex.quote(str(settings.data))}"
        line(f"Callboard serves {url} (process {os.getpid()}); the store is {settings.store_shown}.")
        line(f"The operator's token is in {token_file}.")
        line(f"The console, to be opened once within ten minutes:  {console}")
        line(f"Talk to it:  {program()} chat{here}    Look at it:  {program()} sessions list{here}")
    sys.stdout.flush()


def _current() -> Path | None:
    with suppress(OSError):
        return Path.cwd()
    return None


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
            end_now(1)
        self._asked = True
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)
