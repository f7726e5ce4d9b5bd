"""`callboard chat`: talk to the sessions of the running server, one at a time, over its restarts and over handoffs.

Lives here: the order of asking and answering, commands, Ctrl-C. Not here: reconnecting and where the user is (`actors.client`), lines in
(`lines`), how things look (`screen`).

Invariant: a line is one message to the session that is open when it is entered, however often the connection is lost, and its answer is
shown once; what was streamed of an attempt that was given up is marked as such before the next attempt's text.
"""

from __future__ import annotations

import fcntl
import re
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from ...actors.client import (
    By,
    Ended,
    FileMemory,
    Front,
    InMemory,
    Kept,
    Notice,
    Offered,
    Opened,
    Refused,
    Remembered,
    Said,
    ShowKind,
    open_front,
)
from ...actors.client.handoffs import post_id
from ...actors.client.rest import newest_entries
from ...storage.model.errors import CallboardError, Inactive, NotFound
from ..settings import load_settings
from .announce import Server, find_server
from .arguments import Place
from .lines import open_lines
from .output import note, problem, progress
from .remote import Remote, open_remote, operator_token
from .screen import Screen

TAIL: Final = 10
MEMORY: Final = "chat.json"
_COMMAND: Final = re.compile(r"/[a-z]+")
_GO: Final = re.compile(r"/go\s+(\S+)")
HELP: Final = """\
/where  says which session is open
/go PATH  opens another one; so does an answer that takes you there
/back  opens the one before, /up the one above
/help  lists this
/stop  stops the turn that runs; so does Ctrl-C, and once more ends the chat
/quit  ends the chat, as the end of the input does (Ctrl-D)
Everything else is a message; one that begins with // is sent with one of them."""


def chat_command(session: str, place: Place) -> int:
    """Talk until the input ends; returns 1 if a message failed."""
    settings = load_settings(place.settings)
    start = f"start one: {place.command('serve')}"
    server = find_server(settings.data)
    if server is None:
        raise NotFound(f"no server runs for {settings.data}; {start}")
    with open_lines() as lines, _memory(settings.data, sys.stdin.isatty()) as memory:
        screen = Screen(sys.stdin.isatty(), lines, lambda name: place.command(f"sessions read {name}"))
        return trio.run(_chat, session, server, settings.data, screen, memory, start)


async def _chat(session: str, server: Server, folder: Path, screen: Screen, memory: Remembered, start: str) -> int:
    async with open_remote(server, folder) as remote:
        if remote is None:
            raise NotFound(f"no server answers at {server.url}; {start}")
        with progress("connecting"):
            known = await remote.session(session)
        token, told = operator_token(folder), screen.connection
        async with open_front(server.url, token, known, memory=memory, tls=server.tls, on_change=told) as front:
            if screen.interactive:
                note(f"Talking to {session}. /help lists what may be typed, /quit ends.")
            return await Chat(front, remote, screen).run()


@contextmanager
def _memory(folder: Path, interactive: bool) -> Iterator[Remembered]:
    """What a terminal keeps between two chats; of two at a time, and of a pipe, each is a client of its own that keeps nothing."""
    fresh = InMemory(Kept(f"chat-{uuid.uuid4().hex}"))
    if not interactive:
        yield fresh
        return
    file = folder / MEMORY
    try:
        lock = file.with_suffix(".lock").open("w")
    except OSError:
        yield fresh
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield fresh
            return
        memory = FileMemory(file)
        if memory.load() is None:
            memory.save(attrs.evolve(fresh.kept or Kept("")))
        yield memory


@attrs.define
class Chat:
    """One conversation. `waiting` are our messages without their end, by message id."""

    front: Front
    remote: Remote
    screen: Screen
    waiting: dict[str, trio.Event] = attrs.field(factory=dict[str, trio.Event], init=False)
    own: set[str] = attrs.field(factory=set[str], init=False)
    seen: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    """By session, the newest entry that was shown when it was opened."""
    failed: bool = attrs.field(default=False, init=False)
    leaving: bool = attrs.field(default=False, init=False)

    async def run(self) -> int:
        """Until the input has ended and everything sent is answered, or somebody wants to leave."""
        await self._hear(await anext(self.front))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_signals, nursery.cancel_scope)
            nursery.start_soon(self._listen)
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
            if line and not await self._obey(line):
                # So that a line which is a command elsewhere, or begins like one, can be said all the same.
                await self._say(line[1:] if line.startswith("//") else line)
        self.screen.end()

    async def _obey(self, line: str) -> bool:
        """Carry out a command; False for what is none."""
        going = _GO.fullmatch(line)
        if line == "/stop":
            await self._stop()
        elif line == "/help":
            self.screen.help(HELP)
        elif line == "/where":
            place = self.front.open
            self.screen.remark(f"{place.name}, {place.agent}")
        elif line in ("/back", "/up") or going:
            await self._go(line, going[1] if going else "")
        elif self.screen.interactive and _COMMAND.fullmatch(line):
            # Of a person it is a slip, and an agent would answer who knows what; a program means what it says.
            self.screen.remark(f"{line} is not a command, and was not sent; /help lists them")
        else:
            return False
        return True

    async def _go(self, line: str, path: str) -> None:
        try:
            if path:
                await self.front.navigate(path)
            elif await (self.front.back() if line == "/back" else self.front.up()) is None:
                self.screen.remark("there is nothing before" if line == "/back" else "this is the top")
        except CallboardError as refusal:
            self.failed = self.failed or not self.screen.interactive
            self.screen.remark(str(refusal))

    async def _say(self, text: str) -> None:
        """Send one line; from a pipe, wait for its end."""
        name = post_id(self.front.client)
        self.own.add(name)
        ended = self.waiting[name] = trio.Event()
        try:
            await self.front.say(text, message_id=name)
        except CallboardError as refusal:
            del self.waiting[name]
            self.failed = True
            problem(str(refusal))
            return
        if not self.screen.interactive:
            await ended.wait()

    async def _stop(self) -> None:
        try:
            await self.front.stop()
        except Inactive:
            self.screen.remark("nothing runs")
        except CallboardError as refusal:
            self.screen.remark(str(refusal))

    async def _listen(self) -> None:
        async for notice in self.front:
            await self._hear(notice)

    async def _hear(self, notice: Notice) -> None:
        """Everything that happens, as it happens. From a pipe only what concerns our own lines is of interest."""
        match notice:
            case Opened():
                await self._opened(notice)
            case Said():
                self._said(notice)
            case Ended():
                self._end(notice)
                self.screen.prompt()
            case Offered(place, handoff):
                self.screen.remark(f"{place.name} offers to take you to {handoff.path}: /go {handoff.path}")
                self.screen.prompt()
            case Refused(handoff, error):
                self.screen.remark(f"you can't be taken to {handoff.path}: {error.message}")
                self.screen.prompt()

    async def _opened(self, opened: Opened) -> None:
        place, session = opened.place, opened.place.session
        self.screen.at(place)
        if not self.screen.interactive:
            return
        if opened.by is not By.START:
            self.screen.remark(f"opened {place.name}")

        async def read(after: int, limit: int) -> list[dict[str, Any]]:
            return (await self.remote.transcript(session, after=after, limit=limit))["entries"]

        # What is said in between is in the tail, or comes as an event, or both, and then its number tells.
        try:
            tail = await newest_entries(read, TAIL)
        except CallboardError as refusal:
            self.screen.remark(str(refusal))
            return
        for entry in tail:
            self.screen.entry(entry)
        self.seen[session] = max((entry["seq"] for entry in tail), default=0)
        self.screen.prompt()

    def _said(self, said: Said) -> None:
        show, session = said.show, said.place.session
        ours = show.kind is ShowKind.POST and show.message_id in self.own
        if ours or (show.seq is not None and show.seq <= self.seen.get(session, 0)):
            return
        if self.screen.interactive or show.message_id in self.waiting or show.kind is ShowKind.GAP:
            self.screen.show(show, said.place)
        if show.kind in (ShowKind.ANSWER, ShowKind.FAILED, ShowKind.GAP):
            self.screen.prompt()

    def _end(self, ended: Ended) -> None:
        if ended.message_id not in self.waiting:
            return
        if ended.message_id != ended.show.message_id and not self.screen.interactive and ended.show.whole:
            self.screen.show(attrs.evolve(ended.show, text=ended.show.whole, streaming=False), ended.place)
        self.failed = self.failed or ended.failed
        self.waiting.pop(ended.message_id).set()

    async def _watch_signals(self, scope: trio.CancelScope) -> None:
        """Ctrl-C stops the turn that runs; if none does, or again, it ends the chat."""
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            asked: str | None = None
            async for _ in signals:
                running = self.front.running
                if running is None or running == asked:
                    self.failed = self.failed or bool(self.waiting)
                    self.screen.end()
                    scope.cancel()
                    return
                asked = running
                if not self.screen.interactive:
                    self.leaving = self.failed = True
                await self._stop()
