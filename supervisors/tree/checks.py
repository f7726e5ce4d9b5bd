"""Checks of the names and numbers that specifications are made of.

Lives here: refusing a wrong value with a `SpecError` that names the field. Not here: which fields there are.

Invariant: a check changes nothing and repairs nothing; a value that passes is used as it was given.
"""

import difflib
import enum
import math
from typing import TypeVar

from .errors import SpecError

_E = TypeVar("_E", bound=enum.StrEnum)


def check_name(name: str) -> None:
    """Names are shown to people and looked up: 1 to 200 printable characters. Raises `SpecError`."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise SpecError("name", f"not 1 to 200 printable characters: {name!r}")


def check_number(field: str, value: float, *, owner: str, least: float = 0.0, infinite: bool = False) -> None:
    """Refuse what is not a number from `least` upwards; raises `SpecError`."""
    # NaN fails every comparison, so it is refused by the shape of this test; True would pass as 1.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise SpecError(field, f"not a number of at least {least:g}: {value!r}", owner=owner)
    if value == math.inf and not infinite:
        raise SpecError(field, "may not be infinite", owner=owner)


def member(kind: type[_E], given: _E | str, *, field: str) -> _E:
    """The member of an enumeration with this value; raises `SpecError` that names the nearest one."""
    try:
        return kind(given)
    except ValueError:
        values = [str(value) for value in kind]
        near = difflib.get_close_matches(str(given), values, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(values)}"
        raise SpecError(field, f"unknown: {given!r}; {hint}") from None


def check_count(field: str, value: int, *, owner: str, least: int = 0) -> None:
    """Refuse what is not a whole number from `least` upwards; raises `SpecError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpecError(field, f"not a whole number of at least {least}: {value!r}", owner=owner)
