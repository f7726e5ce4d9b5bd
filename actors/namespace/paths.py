"""Paths as people see them: a name that is short for one, and all of them as a tree. Pure; the grammar is `storage.model.addresses`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ...storage.model.policies import ROOT

INDENT: Final = "  "


@attrs.frozen
class Level:
    """One line of a tree: how deep, the segment that it adds (`/` for the root), its whole path; `known`: a session is there (NS-2)."""

    depth: int
    name: str
    path: str
    known: bool


def name_of(path: str) -> str:
    """The last segment of a path; the root's name is `/`."""
    return path.rpartition("/")[2] or ROOT


def matching(name: str, paths: Iterable[str]) -> list[str]:
    """The paths that `name` may be short for: itself if it is one of them, else those whose last segment it is, in their order."""
    known = list(paths)
    return [name] if name in known else [path for path in known if name_of(path) == name]


def levels(paths: Iterable[str]) -> list[Level]:
    """The tree of paths, parents before children and siblings in order; a level without a session is there if something is below it."""
    known = set(paths)
    shown = {ROOT}
    for path in known - {ROOT}:
        segments = path[1:].split("/")
        shown.update("/" + "/".join(segments[:depth]) for depth in range(1, len(segments) + 1))
    return [
        Level(0 if path == ROOT else path.count("/"), name_of(path), path, path in known)
        for path in sorted(shown, key=lambda path: path.split("/"))
    ]


def drawn(told: Mapping[str, str]) -> list[str]:
    """Lines of a tree for people: each path of `told` with what is told of it."""
    lines = [(INDENT * level.depth + level.name, told.get(level.path, "")) for level in levels(told)]
    width = max(len(line) for line, _ in lines)
    return [f"{line:<{width}}  {text}".rstrip() for line, text in lines]
