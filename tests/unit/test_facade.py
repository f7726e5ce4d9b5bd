"""The facade: exactly these names, each loaded when it is first used; importing does nothing to the program around it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import callboard

ROOT = Path(__file__).parents[2]

NAMES = [
    "Agent",
    "Block",
    "Budget",
    "Call",
    "CallboardError",
    "ChatAgent",
    "ChatModel",
    "Edge",
    "Entry",
    "Event",
    "Handoff",
    "Interrupted",
    "InvalidField",
    "LeaseLost",
    "MailboxFull",
    "MessageConflict",
    "MessageView",
    "ModelLimits",
    "NotFound",
    "NotPermitted",
    "PathTaken",
    "Portal",
    "Receipt",
    "Rule",
    "Runtime",
    "RuntimeFailed",
    "Scripted",
    "Session",
    "StoreError",
    "Team",
    "Tool",
    "Tuning",
    "Turn",
    "Unavailable",
    "UnknownTarget",
    "UsageError",
    "WouldDeadlock",
    "client",
    "open_portal",
    "open_runtime",
    "standard_blocks",
    "tool",
]


def in_child(program: str) -> Any:
    """What a fresh interpreter prints as JSON."""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / ".links"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(result.stdout)


def test_the_public_names_are_these() -> None:
    assert callboard.__all__ == NAMES
    assert callboard.__all__ == sorted(callboard.__all__, key=lambda name: (name[0].islower(), name))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_lives_where_the_table_says(name: str) -> None:
    value = getattr(callboard, name)
    home = value.__name__ if isinstance(value, ModuleType) else value.__module__
    assert home == f"callboard.{callboard._HOMES[name]}"
    assert value.__doc__


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    homes = {name: home if home.endswith(f".{name}") else f"{home}.{name}" for name, home in callboard._HOMES.items()}
    assert seen == homes
    assert set(callboard._HOMES) == set(callboard.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        _ = callboard.Agnet  # type: ignore[attr-defined]
    assert set(NAMES) <= set(dir(callboard))


def test_importing_it_loads_nothing_and_a_name_only_its_home() -> None:
    loaded = in_child(
        "import json, sys, callboard\n"
        "first = [name for name in sys.modules if name.partition('.')[0] == 'callboard']\n"
        "callboard.InvalidField\n"
        "then = [name for name in sys.modules if name.partition('.')[0] == 'callboard']\n"
        "print(json.dumps([first, then, 'trio' in sys.modules]))"
    )
    assert loaded[0] == ["callboard"]
    assert "callboard.storage.model.errors" in loaded[1]
    assert not any(name.startswith(("callboard.actors", "callboard.supervisors")) for name in loaded[1])
    assert loaded[2] is False


@pytest.mark.spec("RT-16")
def test_importing_changes_nothing_around_it_and_takes_no_common_name() -> None:
    """A user's own `storage.py` must not collide; signals and logging are the program's business."""
    seen = in_child(
        "import json, logging, signal, sys, threading\n"
        "before = [signal.getsignal(n) for n in sorted(signal.valid_signals())], list(logging.getLogger().handlers), logging.root.level\n"
        "import callboard\n"
        "for name in callboard.__all__: getattr(callboard, name)\n"
        "after = [signal.getsignal(n) for n in sorted(signal.valid_signals())], list(logging.getLogger().handlers), logging.root.level\n"
        "ours = [name for name in logging.root.manager.loggerDict if name.startswith('callboard')]\n"
        "configured = [n for n in ours if logging.getLogger(n).handlers or logging.getLogger(n).level]\n"
        "print(json.dumps([before == after, configured, threading.active_count(),\n"
        "    [name for name in ('actors', 'storage', 'supervisors') if name in sys.modules]]))"
    )
    assert seen == [True, [], 1, []]


def test_the_client_is_loaded_lazily_and_without_the_rest() -> None:
    code = (
        "import sys\nfrom callboard import client\nassert client.connect\n"
        "bad = [m for m in sys.modules if m.startswith('callboard.')"
        " and m.split('.')[1:3] in (['actors', 'edges'], ['actors', 'dispatch'], ['actors', 'session'])]\n"
        "bad += [m for m in sys.modules if m.startswith('callboard.supervisors')]\nprint(bad)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / ".links")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
