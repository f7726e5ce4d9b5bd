"""What a person or a pipe types, line by line: read as it is, or edited on a terminal with the history of this one chat.

Not here: what a line means (`chat`), what else is on the screen (`screen`).

Invariant: history is kept in memory only, and the terminal is left as it was found, also when a line is waited for no longer.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Protocol

import attrs
import trio

from ...storage.model.errors import Rejected

PROMPT: Final = "> "
_START: Final = "\001\r\002"
# The prompt is drawn from the line's beginning, as it may be there already; between the marks stands what takes no room.
_READ_BYTES: Final = 64 * 1024


class Lines(Protocol):
    """Where lines come from. `prompt` is what stands before a line that is asked for."""

    prompt: str

    @property
    def draft(self) -> str | None:
        """The line that is being edited; None where the terminal itself takes lines, or none is asked for."""
        ...

    @property
    def edited(self) -> bool:
        """Whether asking for a line draws the prompt."""
        ...

    async def next(self) -> str | None:
        """The next line without its end and the blanks around it; None at the end of the input."""
        ...


@contextmanager
def open_lines() -> Iterator[Lines]:
    """Lines of standard input, edited if it and standard output are a terminal that can show it."""
    readline = _readline() if _can_edit() else None
    if readline is None:
        yield PlainLines()
        return
    import termios

    found = termios.tcgetattr(0)
    try:
        yield EditedLines(readline)
    finally:
        # A thread may wait for a key with the terminal in its hands; nobody else puts it back.
        termios.tcsetattr(0, termios.TCSADRAIN, found)


@attrs.define
class PlainLines:
    """Lines by the descriptor: a thread that waits in `sys.stdin` would hold its lock when the program ends."""

    prompt: str = attrs.field(default=PROMPT, init=False)
    draft: None = attrs.field(default=None, init=False)
    edited: bool = attrs.field(default=False, init=False)
    _lines: deque[str] = attrs.field(factory=deque[str], init=False)
    _rest: bytes = attrs.field(default=b"", init=False)
    _over: bool = attrs.field(default=False, init=False)

    async def next(self) -> str | None:
        """See `Lines`."""
        while not self._lines and not self._over:
            try:
                data = await trio.to_thread.run_sync(os.read, sys.stdin.fileno(), _READ_BYTES, abandon_on_cancel=True)
            except OSError as error:
                raise Rejected(f"standard input can't be read: {error.strerror}") from error
            self._over = not data
            *whole, self._rest = (self._rest + data).split(b"\n")
            if self._over and self._rest:
                whole.append(self._rest)
            self._lines.extend(line.decode("utf-8", "replace").strip() for line in whole)
        return self._lines.popleft() if self._lines else None


class EditedLines:
    """Lines by the readline library, which works within `input`: in a thread, as it waits for keys."""

    edited = True

    def __init__(self, readline: Any) -> None:
        self.prompt = PROMPT
        self._readline = readline
        self._asking = False
        # The terminal would be left with that switched on when a line is waited for no longer.
        readline.parse_and_bind("set enable-bracketed-paste off")
        readline.clear_history()

    @property
    def draft(self) -> str | None:
        """See `Lines`."""
        return self._readline.get_line_buffer() if self._asking else None

    async def next(self) -> str | None:
        """See `Lines`."""
        self._asking = True
        try:
            return (await trio.to_thread.run_sync(input, _START + self.prompt, abandon_on_cancel=True)).strip()
        except EOFError:
            return None
        except OSError as error:
            raise Rejected(f"standard input can't be read: {error.strerror}") from error
        finally:
            self._asking = False


def _can_edit() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def _readline() -> Any | None:
    """The module, which some builds of Python lack."""
    try:
        return import_module("readline")
    except ImportError:
        return None
