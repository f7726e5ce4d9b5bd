"""How a conversation looks: plain text, streamed as it comes, each answer once.

Not here: what there is to show (`actors.client.Conversation`). Invariant: text that does not count any more is followed by a line that says so.
"""

from __future__ import annotations

from typing import Any

import attrs

from ...actors.client import Show, ShowKind
from .output import line, note, piece

AGAIN = "(starting again)"


@attrs.define
class Screen:
    """Where a chat is shown. Interactive: everybody's messages and a prompt; else only answers, as plain text."""

    interactive: bool
    _open: bool = attrs.field(default=False, init=False)
    """The cursor is within a line of streamed text."""
    _prompted: bool = attrs.field(default=False, init=False)
    _lost: bool = attrs.field(default=False, init=False)

    def entry(self, entry: dict[str, Any]) -> None:
        """A line of the transcript so far."""
        line(f"{entry['sender']['label'] or entry['sender']['id']}: {entry['content']}")

    def show(self, show: Show) -> None:
        """The next thing of the conversation."""
        match show.kind:
            case ShowKind.POST:
                self._break()
                line(f"{show.label}: {show.text}")
            case ShowKind.TEXT:
                if not self._open:
                    self._break()
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
                note("some events are gone; `callboard sessions read` has the transcript")

    def prompt(self) -> None:
        """Ask for a line, if somebody is there and nothing is being said."""
        if self.interactive and not self._open and not self._prompted:
            piece("> ")
            self._prompted = True

    def typed(self) -> None:
        """A line was entered: the terminal is at the beginning of the next one."""
        self._prompted = False

    def remark(self, text: str) -> None:
        """Something about the conversation."""
        self._break()
        note(f"({text})")

    def connection(self, connected: bool) -> None:
        """The connection was made or lost."""
        if self.interactive and self._lost is connected:
            self.remark("connected again" if connected else "connection lost, trying again")
            self.prompt()
        self._lost = not connected

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        self._break()

    def _answer(self, show: Show) -> None:
        if not show.streaming:
            self._break()
        if show.text:
            piece(show.text)
            self._open = True
        if self._open:
            self._break()
        if show.stopped:
            note("(stopped)")

    def _break(self) -> None:
        if self._open or self._prompted:
            piece("\n")
        self._open = self._prompted = False
