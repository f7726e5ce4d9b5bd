"""How conversations look: plain text, streamed as it comes, each answer once, and where one is.

Not here: what there is to show (`actors.client.Conversation`). Invariant: text that does not count any more is followed by a line that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from ...actors.client import Place, Show, ShowKind
from .lines import PROMPT, Lines
from .output import line, note, one_line, piece, wipe
from .views import who

AGAIN: Final = "(starting again)"
NAME_MOST: Final = 40
"""Characters of a session's name in the prompt."""


@attrs.define
class Screen:
    """Where a chat is shown. Interactive: everybody's messages and a prompt; else only answers, as plain text."""

    interactive: bool
    lines: Lines
    transcript: Callable[[str], str]
    """The command that shows all of a session, by its path or id: a title is no argument."""
    where: Place | None = attrs.field(default=None, init=False)
    """The open session."""
    _open: bool = attrs.field(default=False, init=False)
    """The cursor is within a line of streamed text."""
    _prompted: bool = attrs.field(default=False, init=False)
    _lost: bool = attrs.field(default=False, init=False)

    def entry(self, entry: dict[str, Any]) -> None:
        """A line of the transcript so far."""
        line(f"{one_line(who(entry))}: {entry['content']}")

    def at(self, place: Place) -> None:
        """This session is open from here on."""
        self.where = place
        short = place.name
        self.lines.prompt = (short if len(short) <= NAME_MOST else f"…{short[-NAME_MOST:]}") + PROMPT

    def show(self, show: Show, place: Place) -> None:
        """The next thing of the open session; of another one only how it ends, as two streams can't be read at once."""
        if self.interactive and (self.where is None or place.session != self.where.session):
            self._aside(show, place.name)
            return
        match show.kind:
            case ShowKind.POST:
                self._break()
                line(f"{one_line(show.label)}: {show.text}")
            case ShowKind.TEXT:
                if not self._open or self._prompted:
                    self._begin()
                piece(show.text)
                self._open = True
            case ShowKind.DROPPED:
                self._break()
                line(AGAIN)
            case ShowKind.RETRY:
                self._break()
                note(f"({show.text}; trying again)")
                if show.streaming:
                    line(AGAIN)
            case ShowKind.ANSWER:
                self._answer(show)
            case ShowKind.FAILED:
                self._break()
                note(f"failed: {show.text}")
            case ShowKind.GAP:
                self._break()
                note(f"some events are gone; all that was said: {self.transcript(place.path or place.session)}")

    def ask(self) -> None:
        """A line is about to be asked for."""
        if self.lines.edited:
            self._prompted = True  # also within a line of streamed text: the editor draws it in any case
        else:
            self.prompt()

    def prompt(self) -> None:
        """Show that a line is waited for, and what of it is typed, if somebody is there and nothing is being said."""
        if not self.interactive or self._open or self._prompted:
            return
        draft = self.lines.draft
        if draft is not None or not self.lines.edited:
            piece(self.lines.prompt + (draft or ""))
            self._prompted = True

    def typed(self) -> None:
        """A line was entered: the terminal is at the beginning of the next one."""
        self._prompted = False

    def help(self, text: str) -> None:
        """What may be typed."""
        self._break()
        note(text)

    def remark(self, text: str) -> None:
        """Something about the conversation."""
        self._break()
        note(f"({one_line(text)})")

    def connection(self, connected: bool) -> None:
        """The connection was made or lost."""
        if self.interactive and self._lost is connected:
            self.remark("connected again" if connected else "connection lost, trying again")
            self.prompt()
        self._lost = not connected

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        self._break()

    def _aside(self, show: Show, where: str) -> None:
        if show.kind is ShowKind.ANSWER and show.whole:
            self._break()
            line(f"{where}: {show.whole}")
        elif show.kind is ShowKind.FAILED:
            self._break()
            note(f"{where}: failed: {show.text}")

    def _answer(self, show: Show) -> None:
        if not show.streaming:
            self._break()
        if show.text:
            if self._prompted:
                self._begin()
            piece(show.text)
            self._open = True
        if self._open:
            self._break()
        if show.stopped:
            note("(stopped)")

    def _begin(self) -> None:
        """Begin a line of streamed text, or go on with it where a line was typed into it."""
        if self._prompted and self.lines.edited:
            wipe()
            self._prompted = False
        elif not self._open:
            self._break()

    def _break(self) -> None:
        if self._prompted and self.lines.edited:
            wipe()  # the editor shows it again, with what is typed so far
        elif self._open or self._prompted:
            piece("\n")
        self._open = self._prompted = False
