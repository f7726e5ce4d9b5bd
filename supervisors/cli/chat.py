"""`callboard chat`: talk to a session of the running server, over its restarts.

Lives here: the order of asking and answering, commands, Ctrl-C. Not here: reconnecting (`actors.client`), lines in (`lines`), how things look
(`screen`).

Invariant: a line is one message, however often the connection is lost, and its answer is shown once; what was streamed of an attempt that
was given up is marked as such before the next attempt's text.
"""

from __future__ import annotations

import re
import signal
import sys
import uuid
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...actors.client import Conversation, LiveClient, Show, ShowKind, Subscription, connect
from ...storage.model.errors import CallboardError, Inactive, NotFound
from ..settings import load_settings
from .announce import Server, find_server
from .arguments import Place
from .lines import open_lines
from .output import note, problem, progress
from .remote import Remote, open_remote, operator_token
from .screen import Screen

FROM_NOW: Final = 2**62
"""A cursor beyond any event: the server says where "now" is."""
TAIL: Final = 10
FINAL: Final = ("delivered", "failed")
_COMMAND: Final = re.compile(r"/[a-z]+")
HELP: Final = """\
/help  lists this
/stop  stops the turn that runs; so does Ctrl-C, and once more ends the chat
/quit  ends the chat, as the end of the input does (Ctrl-D)
Everything else is a message."""


def chat_command(session: str, place: Place) -> int:
    """Talk until the input ends; returns 1 if a message failed."""
    settings = load_settings(place.settings)
    start = f"start one: {place.command('serve')}"
    server = find_server(settings.data)
    if server is None:
        raise NotFound(f"no server runs for {settings.data}; {start}")
    with open_lines() as lines:
        transcript = place.command(f"sessions read {session}")
        screen = Screen(sys.stdin.isatty(), lines, transcript)
        return trio.run(_chat, session, server, settings.data, screen, start)


async def _chat(session: str, server: Server, folder: Path, screen: Screen, start: str) -> int:
    async with open_remote(server, folder) as remote:
        if remote is None:
            raise NotFound(f"no server answers at {server.url}; {start}")
        with progress("connecting"):
            known = await remote.session(session)
        async with connect(server.url, operator_token(folder), tls=server.tls, on_change=screen.connection) as live:
            if screen.interactive:
                note(f"Talking to {session}. /help lists what may be typed, /quit ends.")
            return await Chat(live, remote, known, screen).run()


@attrs.define
class Chat:
    """One conversation. `waiting` are our messages without their end, by message id."""

    live: LiveClient
    remote: Remote
    session: str
    screen: Screen
    conversation: Conversation = attrs.field(factory=Conversation, init=False)
    waiting: dict[str, trio.Event] = attrs.field(factory=dict[str, trio.Event], init=False)
    own: set[str] = attrs.field(factory=set[str], init=False)
    failed: bool = attrs.field(default=False, init=False)
    leaving: bool = attrs.field(default=False, init=False)

    async def run(self) -> int:
        """Until the input has ended and everything sent is answered, or somebody wants to leave."""
        events = self.live.subscribe(self.session, after=FROM_NOW)
        await events.started()
        # After it: what is said in between is in the tail, or comes as an event, or both, and then its number tells.
        tail = await newest_entries(self.remote, self.session, TAIL) if self.screen.interactive else []
        shown = max((entry["seq"] for entry in tail), default=0)
        for entry in tail:
            self.screen.entry(entry)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_signals, nursery.cancel_scope)
            nursery.start_soon(self._show, events, shown)
            await self._talk()
            nursery.cancel_scope.cancel()
        return 1 if self.failed else 0

    async def _talk(self) -> None:
        while not self.leaving:
            self.screen.ask()
            line = await self.screen.lines.next()
            self.screen.typed()
            if line is None or line == "/quit":
                break
            if line == "/stop":
                await self._stop()
            elif line == "/help":
                self.screen.help(HELP)
            elif self.screen.interactive and _COMMAND.fullmatch(line):
                # Of a person it is a slip, and an agent would answer who knows what; a program means what it says.
                self.screen.remark(f"{line} is not a command, and was not sent; /help lists them")
            elif line:
                await self._say(line)
        self.screen.end()

    async def _say(self, text: str) -> None:
        """Send one line; from a pipe, wait for its end."""
        name = f"chat-{uuid.uuid4().hex}"
        self.own.add(name)
        ended = self.waiting[name] = trio.Event()
        try:
            await self.live.send(self.session, text, message_id=name)
        except CallboardError as refusal:
            del self.waiting[name]
            self.failed = True
            problem(str(refusal))
            return
        if not self.screen.interactive:
            await ended.wait()

    async def _stop(self) -> None:
        try:
            await self.live.stop(self.session)
        except Inactive:
            self.screen.remark("nothing runs")
        except CallboardError as refusal:
            self.screen.remark(str(refusal))

    async def _show(self, events: Subscription, shown: int) -> None:
        """Everything that happens in the session, as it happens. From a pipe only what concerns our own lines is of interest."""
        first = True
        async for event in events:
            show = self.conversation.see(event)
            if show is None:
                continue
            if show.kind is ShowKind.GAP and first:
                first = False  # the answer to FROM_NOW
                continue
            known = (show.seq is not None and show.seq <= shown) or (
                show.kind is ShowKind.POST and show.message_id in self.own
            )
            if not known and (self.screen.interactive or show.message_id in self.waiting or show.kind is ShowKind.GAP):
                self.screen.show(show)
            if show.kind in (ShowKind.ANSWER, ShowKind.FAILED, ShowKind.GAP):
                await self._end(show)
                self.screen.prompt()

    async def _end(self, show: Show) -> None:
        """A turn is over: with it its own message, and any other of ours that it took in or that ended unseen."""
        for name, ended in [*self.waiting.items()]:
            failed = show.kind is ShowKind.FAILED
            if name != show.message_id:
                message = await self._look(name)
                if message is None or not _ended_with(show, message):
                    continue
                failed = message["status"] == "failed"
                if not self.screen.interactive and show.whole:
                    self.screen.show(attrs.evolve(show, text=show.whole, streaming=False))
            self.failed = self.failed or failed
            del self.waiting[name]
            ended.set()

    async def _look(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.remote.message(name)
        except CallboardError:
            return None  # not accepted yet, or the server is away: the next end of a turn asks again

    async def _watch_signals(self, scope: trio.CancelScope) -> None:
        """Ctrl-C stops the turn that runs; if none does, or again, it ends the chat."""
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            asked: str | None = None
            async for _ in signals:
                running = self.conversation.running
                if running is None or running == asked:
                    self.failed = self.failed or bool(self.waiting)
                    self.screen.end()
                    scope.cancel()
                    return
                asked = running
                if not self.screen.interactive:
                    self.leaving = self.failed = True
                await self._stop()


def _ended_with(show: Show, message: dict[str, Any]) -> bool:
    """Whether `message` has no end of its own to wait for: a running turn took it in (it was never claimed), or its end is in a gap."""
    if show.kind is ShowKind.GAP:
        return message["status"] in FINAL
    return message["status"] == "delivered" and message["attempt"] == 0


async def newest_entries(remote: Remote, session: str, count: int) -> list[dict[str, Any]]:
    """The last entries of a transcript. Sequence numbers are dense from 1, so the end is found by doubling and halving."""
    low, high = 0, 256
    while (await remote.transcript(session, after=high, limit=1))["entries"]:
        low, high = high, 2 * high
    while high - low > count:
        middle = (low + high) // 2
        if (await remote.transcript(session, after=middle, limit=1))["entries"]:
            low = middle
        else:
            high = middle
    return (await remote.transcript(session, after=max(0, low - count), limit=2 * count + 1))["entries"][-count:]
