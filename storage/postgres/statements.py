"""The named statements of PostgreSQL, and how one is written for the rows that it is given.

Here: `Statement`, `statements`, `written`. Not here: SQL (`sql/*.sql`), sending it (`bridge.py`), when (`tx.py`).

A statement for several rows takes an array for each column: `unnest($1::bigint[], $2::text[])`. What all rows of a batch say alike (the
time, the project, what nobody has set) need not be written, read and unfolded once for each of them: it goes as one value, and the
statement is written as `(SELECT c1, $2::text AS c2 FROM unnest($1::bigint[]) AS u (c1))` in place of that.

Invariant: the same rows, however they are written. One statement has few shapes, as each is prepared and planned by every connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from ..handlers.tx import Args
from ..queries import load, numbered
from . import bridge

SHAPES_MOST: Final = 8
"""Past that, rows are written in the shape among those there that gives most of what they say alike once."""
_UNNEST: Final = re.compile(r"\bunnest\(\s*(\$1::\w+\[\](?:,\s*\$\d+::\w+\[\])*)\s*\)(?:\s+AS (\w+) \(([^)]*)\))?")
_TYPE: Final = re.compile(r"::(\w+)\[\]")


class Statement:
    """A named statement. `names` are those of its parameters in their order, if it has names; `rows`: it takes rows."""

    __slots__ = ("_after", "_before", "_called", "_shapes", "_types", "names", "rows", "text")

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text = text
        self.names = names
        found = None if names else _UNNEST.search(text)
        self.rows = found is not None
        if found is None:
            return
        self._before, self._after = text[: found.start()], text[found.end() :]
        self._types: list[str] = _TYPE.findall(found[1])
        columns = ", ".join(f"c{number}" for number in range(1, len(self._types) + 1))
        self._called = f"AS {found[2] or 'v'} ({found[3] or columns})"
        self._shapes = {0: text}

    def asked(self, rows: Sequence[Args]) -> bridge.Statement:
        """The statement as it is written for `rows` (at least one), and its arguments: a value or a column for each parameter."""
        columns = list(zip(*rows, strict=True))
        alike = 0
        # One column stays an array: it says how many rows there are.
        for place in range(1, len(columns)):
            column = columns[place]
            first = column[0]
            if first == column[-1] and column.count(first) == len(column):
                alike |= 1 << place
        shape = self._shape(alike)
        return self._shapes[shape], [
            column[0] if shape >> place & 1 else column for place, column in enumerate(columns)
        ]

    def _shape(self, alike: int) -> int:
        if alike in self._shapes:
            return alike
        if len(self._shapes) < SHAPES_MOST:
            self._shapes[alike] = self.shaped(alike)
            return alike
        return max((known for known in self._shapes if known & ~alike == 0), key=int.bit_count)

    def shaped(self, alike: int) -> str:
        """The text for rows in which the columns of `alike` (a bit for each, the lowest is the first) are values."""
        names = [f"${place + 1}::{kind}" for place, kind in enumerate(self._types)]
        chosen = [
            f"{name} AS c{place + 1}" if alike >> place & 1 else f"c{place + 1}" for place, name in enumerate(names)
        ]
        arrays = [place for place in range(len(names)) if not alike >> place & 1]
        unfolded = ", ".join(f"{names[place]}[]" for place in arrays)
        called = ", ".join(f"c{place + 1}" for place in arrays)
        source = f"unnest({unfolded}) AS u ({called})"
        return "".join((self._before, "(SELECT ", ", ".join(chosen), " FROM ", source, ") ", self._called, self._after))


@cache
def statements() -> Mapping[str, Statement]:
    """All statements of PostgreSQL by name."""
    return MappingProxyType({name: Statement(*numbered(sql)) for name, sql in load("postgres").items()})


def written(name: str, given: Sequence[Any]) -> bridge.Statement:
    """A statement and its arguments: `given` are rows if it takes rows."""
    statement = statements()[name]
    return statement.asked(given) if statement.rows else (statement.text, given)
