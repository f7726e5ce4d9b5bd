"""Arguments that several commands take, and commands as hints. Not here: the commands; what is done with the arguments.

Invariant: a command that a hint names can be typed where this one was typed: it is called the same way and has the same folder and store.
A password is no part of it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number

from ...storage.urls import without_password

PROGRAM: Final = "callboard"
Flag = Annotated[bool | None, Parameter(negative="")]
"""Given or not: a `--no-…` beside each would only lengthen the help."""
Number0 = Annotated[int, Parameter(validator=Number(gte=0))]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Place:
    """Which server a command is about."""

    data: Annotated[Path | None, Parameter(help="DIR, the server's folder. Default: this one.")] = None
    store: Annotated[str | None, Parameter(help="URL of the store, where it is not DIR/callboard.db.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings among them that were given."""
        return given({name: getattr(self, name, None) for name in ("data", "store", "json")})

    def command(self, words: str) -> str:
        """`callboard WORDS` for the same place, as it is to be typed."""
        where = [("--data", self.data), ("--store", self.store and without_password(self.store))]
        options = [part for name, value in where if value is not None for part in (name, shlex.quote(str(value)))]
        return " ".join([program(), words, *options])


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Asked(Place):
    """A question to it."""

    json: Annotated[bool | None, Parameter(negative="", help="Print the answer as one line of JSON.")] = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Paged(Asked):
    """A listing of its."""

    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200), help="At most this many, 1 to 200.")] = 50
    cursor: Annotated[str | None, Parameter(help="Go on from the `next` of an earlier listing.")] = None


PLACE: Final = Place()
ASKED: Final = Asked()
PAGED: Final = Paged()


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def program() -> str:
    """How the person who called this program calls it: by its name if the shell finds it by that, else by its path."""
    called = sys.argv[0]
    found = shutil.which(PROGRAM)
    if os.path.basename(called) != PROGRAM:
        return PROGRAM
    with suppress(OSError):
        if found is not None and os.path.samefile(found, called):
            return PROGRAM
    return shlex.quote(called)
