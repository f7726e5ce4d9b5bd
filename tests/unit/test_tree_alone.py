"""The supervision library stands alone, and its facade says what is public."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.supervisors import tree

ROOT = Path(__file__).parents[2]
LAZY_PARENTS = {"callboard", "callboard.supervisors"}


@pytest.mark.spec("RT-2")
def test_importing_it_loads_nothing_else_of_ours() -> None:
    program = "import json, sys, callboard.supervisors.tree; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / ".links"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded: list[str] = json.loads(result.stdout)
    ours = {name for name in loaded if name.split(".")[0] == "callboard"}
    assert "callboard.supervisors.tree" in ours
    assert {name for name in ours - LAZY_PARENTS if not name.startswith("callboard.supervisors.tree")} == set()
    assert {"actors", "storage", "supervisors"}.isdisjoint(loaded)


@pytest.mark.spec("RT-2")
def test_no_module_of_it_reaches_outside() -> None:
    files = sorted((ROOT / "supervisors" / "tree").glob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{file.name}: line {node.lineno}"
                assert not (node.module or "").startswith("callboard"), f"{file.name}: line {node.lineno}"
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("callboard") for alias in node.names), file.name


def test_every_public_name_exists_and_is_listed_in_order() -> None:
    assert tree.__all__ == sorted(tree.__all__)
    assert all(getattr(tree, name).__doc__ or name in {"Observer", "TreeEvent"} for name in tree.__all__)
