"""A team is refused where it is made, and found by MODULE:NAME with errors that a person can act on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.storage.model.errors import InvalidField, PathTaken, SettingsError
from callboard.supervisors.team import load_team, open_places


async def agent(turn: callboard.Turn) -> str | None:
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user's modules; what is imported from it is forgotten again."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


GOOD = """
from callboard import Team, Turn
async def greet(turn: Turn) -> str: return "hello"
team = Team(agents={"greeter": greet}, sessions={"/desk": "greeter"})
other = 3
"""


def test_the_first_agent_is_the_default_at_the_root() -> None:
    team = callboard.Team(agents={"first": agent, "second": agent}, sessions={"/a/b": "second"})
    assert team.default == "first"
    assert list(team.places.items()) == [("/", "first"), ("/a/b", "second")]
    named = callboard.Team(agents={"first": agent}, sessions={"/": "first"})
    assert named.places == {"/": "first"}


@pytest.mark.parametrize(
    ("agents", "sessions", "path"),
    [
        ({}, {}, "agents"),
        ([], {}, "agents"),
        ({"a": 3}, {}, "agents.a"),
        ({"a": agent}, [], "sessions"),
        ({"a": agent}, {"/x": "b"}, "sessions./x"),
        ({"a": agent}, {"x": "a"}, "sessions.x"),
        ({"a": agent}, {"/X": "a"}, "sessions./X"),
        ({"a": agent, "b": agent}, {"/": "b"}, "sessions./"),
    ],
)
def test_a_wrong_team_is_refused_and_the_field_named(agents: Any, sessions: Any, path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        callboard.Team(agents=agents, sessions=sessions)
    assert caught.value.path == path


def test_a_team_is_found_in_the_folder(folder: Path) -> None:
    (folder / "good_team.py").write_text(GOOD)
    team = load_team("good_team:team", folder=folder)
    assert isinstance(team, callboard.Team)
    assert team.places == {"/": "greeter", "/desk": "greeter"}


def test_a_team_in_a_package_is_found(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "teams.py").write_text(GOOD)
    assert load_team("pack.teams:team", folder=folder).default == "greeter"


@pytest.mark.parametrize("name", ["", "x", ":", "x:", ":x", "a b:c", "a:b c", "a..b:c", "../x:y", "a:b:c", "a.py:b.c"])
def test_a_name_of_another_form_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="must be MODULE:NAME"):
        load_team(name, folder=folder)


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        (None, "absent_module:team", ["there is no module absent_module"]),
        (None, "absent_module.inner:team", ["there is no module absent_module"]),
        ("", "bad_team:team", ["has no team"]),
        (GOOD, "bad_team:taem", ["has no taem", "did you mean bad_team:team?"]),
        (GOOD, "bad_team:other", ["is a int, not a callboard.Team"]),
        ("import nothing_of_that_name", "bad_team:team", ["No module named 'nothing_of_that_name'", "line 1"]),
        ("\n\nx = 1 / 0", "bad_team:team", ["ZeroDivisionError: division by zero", "bad_team.py, line 3"]),
        ("x = (", "bad_team:team", ["SyntaxError", "bad_team.py, line 1"]),
        ("raise SystemExit(3)", "bad_team:team", ["SystemExit: 3"]),
        ("from callboard import Team\nteam = Team(agents={})", "bad_team:team", ["agents: names no agent", "line 2"]),
        ("raise ValueError('two\\nlines')", "bad_team:team", ["ValueError: two"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, source: str | None, name: str, words: list[str]) -> None:
    if source is not None:
        (folder / "bad_team.py").write_text(source)
    with pytest.raises(SettingsError) as caught:
        load_team(name, folder=folder)
    line = str(caught.value)
    assert caught.value.path == "team"
    assert "\n" not in line
    assert all(word in line for word in words), line


async def test_opening_a_teams_sessions_twice_finds_them(tmp_path: Path) -> None:
    team = callboard.Team(agents={"one": agent, "two": agent}, sessions={"/two": "two"})
    url = f"sqlite:///{tmp_path}/x.db"
    ids: list[set[str]] = []
    for _ in range(2):
        async with callboard.open_runtime(url, agents=team.agents) as runtime:
            await open_places(runtime, team)
            ids.append({session.id for session in await runtime.list_sessions()})
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2
    swapped = callboard.Team(agents={"two": agent, "one": agent})
    async with callboard.open_runtime(url, agents=swapped.agents) as runtime:
        with pytest.raises(PathTaken) as caught:
            await open_places(runtime, swapped)
        assert "one" in str(caught.value)
