"""What the commands print: lines, tables, JSON, problems, and a sign of life while something takes long.

Invariant: stdout has what was asked for and nothing else; everything about the asking goes to stderr. What others wrote is printed with
its control characters made harmless, and what they named on the line of the name (`one_line`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from ...storage.model.errors import Rejected

PROGRESS_AFTER: Final = 1.0
PROGRESS_EVERY: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


def problem(line: str) -> None:
    """One line on stderr about what went wrong."""
    _put(sys.stderr, f"callboard: {one_line(line)}\n")


def note(line: str) -> None:
    """One line on stderr that a person should know and a program need not."""
    _put(sys.stderr, f"{plain(line)}\n")


def line(text: str) -> None:
    """One line, or several, of what was asked for."""
    _put(sys.stdout, f"{plain(text)}\n")


def as_json(value: Any) -> None:
    """One line of JSON, in ASCII: it is the same in every locale."""
    _put(sys.stdout, json.dumps(value) + "\n")


def piece(text: str) -> None:
    """Part of a line of what was asked for, seen at once."""
    _put(sys.stdout, plain(text))


def wipe() -> None:
    """Take back the terminal's line that standard output is in."""
    _put(sys.stdout, _CLEAR)


def plain(text: str) -> str:
    """`text` without what a terminal would obey; line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """The same on one line: a title, a label or a purpose that others gave stands where it was put, and makes no line of its own."""
    return " ".join(plain(text).split())


def repair_streams() -> None:
    """Put the null device where standard input, output or error is closed: the next file to be opened would take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for the rest of the process)


def let_streams_go() -> None:
    """Whoever reads our output is gone, or its disk is full: what is left of it is dropped, or Python would complain when it ends."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _put(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        if stream is sys.stdout:
            raise
    except (OSError, ValueError) as error:
        # There is nobody left to tell about standard error.
        if stream is sys.stdout:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise Rejected(f"standard output can't be written: {why}") from None


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns under headings. On a terminal the last column is cut to the line; elsewhere nothing is."""
    from rich.cells import cell_len, set_cell_size

    cells = [[*headings], *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(headings))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in cells:
        start = "  ".join(set_cell_size(cell, width) for cell, width in zip(row[:-1], widths, strict=False))
        text = f"{start}  {row[-1]}"
        if room is not None and cell_len(text) > room:
            text = set_cell_size(text, room - 1).rstrip() + "…"
        _put(sys.stdout, f"{text}\n")


def more(answer: dict[str, Any]) -> None:
    """Say how to go on, if this was not all of a listing."""
    if answer["has_more"]:
        note(f"there are more: the same command with --cursor {answer['next']}")


@contextmanager
def progress(what: object) -> Iterator[None]:
    """Say on stderr, if that is a terminal, what takes longer than a second, until it is over. `what` may read differently each time."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def tell() -> None:
        began = time.monotonic()
        if over.wait(PROGRESS_AFTER):
            return
        while True:
            _put(sys.stderr, f"{_CLEAR}{what} … {time.monotonic() - began:.0f} s")
            if over.wait(PROGRESS_EVERY):
                _put(sys.stderr, _CLEAR)
                return

    # A thread: what takes long may be one call that gives nobody else a turn.
    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
