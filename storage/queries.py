"""Named SQL. Lives here: the loader of `sql/*.sql`, names of parameters to numbers. Not here: any SQL.

A statement starts with a line `-- name: it`, then a comment that says what it is for; names are unique in a dialect, and every dialect
has the same names (tests compare them).
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
"""A named parameter; the second colon of a cast (`::text`) begins none."""


@cache
def load(dialect: str) -> MappingProxyType[str, str]:
    """All statements of `dialect` ("sqlite", "postgres") by name. Raises `ValueError` for a name that stands twice."""
    folder = resources.files(__name__.rpartition(".")[0]).joinpath(dialect, "sql")
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".sql"):
            continue
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"the statement {name} stands twice in {dialect}")
            lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip().rstrip(";")
    return MappingProxyType(found)


def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1`, `$2`, … in place of named parameters, and their names in that order, each once."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names
