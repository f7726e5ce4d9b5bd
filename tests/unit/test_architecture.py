"""The shape of the code, read from its text: who imports whom, where SQL stands, how long a file is.

Imports inside functions count too; those under `TYPE_CHECKING` do not, as they are never carried out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ("actors", "storage", "supervisors")
LINES_MOST = 400

ALLOWED = {"storage": {"storage"}, "actors": {"actors", "storage"}, "supervisors": {"supervisors", "actors", "storage"}}
"""Which of our folders may import which."""

STOREYS = (
    {"ports"},
    {"actor"},
    {"models", "tail"},
    {"desk"},
    {"session", "namespace", "mailbox", "peers", "a2a", "targets", "schedule", "social"},
    {"dispatch", "edges", "client"},
)
"""Inside actors, from the ground up: each imports only what is below it, and never its neighbours on the top storey."""

SQL = re.compile(
    r"\s*(SELECT\b.+\bFROM|INSERT\s+INTO|UPDATE\b.+\bSET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX|UNIQUE)|ALTER\s+TABLE|DROP\s+TABLE"
    r"|PRAGMA\b|BEGIN\b|COMMIT\b|ROLLBACK\b|SAVEPOINT\b)",
    re.DOTALL,
)
DATABASES = {"sqlite3", "aiosqlite", "psycopg", "psycopg_pool"}


@attrs.frozen
class Module:
    """A file of ours; `imports` are the dotted names below the package that it imports, as far as they are ours."""

    path: Path
    name: str
    tree: ast.Module
    imports: frozenset[str]
    foreign: frozenset[str]

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def tracked() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.py"))
    for folder in (*PACKAGE, "tests", "examples"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {name_of(path) for path in tracked()}


def carried_out(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but what stands under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield other
                yield from carried_out(other)
            continue
        yield child
        yield from carried_out(child)


def read(path: Path) -> Module:
    name = name_of(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ours: set[str] = set()
    foreign: set[str] = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in carried_out(tree):
        if isinstance(node, ast.Import):
            foreign.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            foreign.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = [part for part in package[: len(package) - node.level + 1] if part]
            base += (node.module or "").split(".") if node.module else []
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                ours.add(whole if whole in KNOWN else ".".join(base))
    return Module(path, name, tree, frozenset(ours), frozenset(foreign))


MODULES = [read(path) for path in tracked()]
PACKAGED = [module for module in MODULES if module.top in PACKAGE]


def storey(name: str) -> int | None:
    """The storey of a module inside actors; None for the package itself."""
    parts = name.split(".")
    if len(parts) < 2:
        return None
    found = [number for number, names in enumerate(STOREYS) if parts[1] in names]
    assert found, f"{name}: decide on which storey actors.{parts[1]} stands"
    return found[0]


def test_the_reader_sees_imports() -> None:
    """The tests below would pass over an empty list."""
    by_name = {module.name: module for module in MODULES}
    assert len(PACKAGED) > 60
    assert {"actors.desk", "storage.store", "supervisors.tree"} <= by_name["supervisors.runtime"].imports
    assert {"actors.desk", "actors.session.turn", "storage.model.states"} <= by_name["actors.dispatch.delivery"].imports
    assert "storage.sqlite.driver" in by_name["storage.store"].imports, "imports inside functions count"
    assert "actors.desk" not in by_name["actors.session.turn"].imports, "imports for type checkers do not"
    assert {"trio", "attrs"} <= by_name["storage.commit"].foreign


def test_imports_go_from_supervisors_over_actors_to_storage() -> None:
    assert [
        f"{module.name} imports {name}"
        for module in PACKAGED
        for name in module.imports
        if name.partition(".")[0] not in ALLOWED[module.top]
    ] == []
    assert [module.name for module in PACKAGED if "callboard" in module.foreign] == [], "our imports are relative"


def test_inside_actors_imports_go_down() -> None:
    faults: list[str] = []
    for module in PACKAGED:
        own = storey(module.name) if module.top == "actors" else None
        for name in module.imports if own is not None else ():
            if name.startswith("actors.") and name.split(".")[1] != module.name.split(".")[1]:
                below = storey(name)
                if own is None or below is None or below >= own:
                    faults.append(f"{module.name} imports {name}")
    assert faults == []


@pytest.mark.spec("RT-2")
def test_the_supervision_library_imports_nothing_of_ours() -> None:
    tree = [module for module in PACKAGED if module.name.startswith("supervisors.tree")]
    assert len(tree) > 5
    for module in tree:
        assert all(name.startswith("supervisors.tree") for name in module.imports), module.name


def test_the_model_knows_nobody_and_only_the_door_knows_a_driver() -> None:
    for module in [module for module in PACKAGED if module.top != "supervisors"]:
        if module.name.startswith("storage.model"):
            assert all(name.startswith("storage.model") for name in module.imports), module.name
        if module.name.startswith("storage.ops"):
            assert all(name.startswith(("storage.model", "storage.ops")) for name in module.imports), module.name
        driver = {name for name in module.imports if name.startswith(("storage.sqlite", "storage.postgres"))}
        if driver and module.name != "storage.store":
            assert module.name.startswith(("storage.sqlite", "storage.postgres")), module.name


def test_no_module_imports_itself_in_a_circle() -> None:
    # A package's own file re-exports: whoever imports a module below it does not import what it re-exports.
    graph = {module.name: {name for name in module.imports if name != module.name} for module in PACKAGED}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


WRITERS = {
    "actors.desk.Desk.send": "people, and agents by the rules: signed as a session, it is checked",
    "actors.desk.Desk.requeue": "what an operator or a backend puts in again goes through; what an agent does is checked",
    "actors.session.tools.AgentTools.agent": "an agent's own child, which the rules leave alone",
    "actors.session.tools.AgentTools.agent_send": "agents, by the rules",
}
"""Where messages are written from outside the store, and why a project's rules about who writes to whom are kept there (NS-4)."""


NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def written(module: Module) -> Iterator[str]:
    """The functions and methods of a module that make an op which accepts a message; the module itself for what stands in none."""
    places: list[tuple[str, ast.AST]] = [(module.name, module.tree)]
    while places:
        place, node = places.pop()
        for child in ast.iter_child_nodes(node):
            inside = place
            # What is inside a function is a part of it.
            if isinstance(node, (ast.Module, ast.ClassDef)) and isinstance(child, NAMED):
                inside = f"{place}.{child.name}"
            places.append((inside, child))
            if isinstance(child, ast.Call) and called(child) in {"enqueue", "Enqueue", "Requeue"}:
                yield place


def called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


@pytest.mark.spec("NS-4")
def test_every_place_that_writes_messages_has_its_word_about_the_rules() -> None:
    """ "Refuses every agent-to-agent route": whoever adds one (A2A, peers, mail, message_send) says here what keeps the rules there."""
    outside = [module for module in PACKAGED if module.top != "storage"]
    assert sorted({place for module in outside for place in written(module)}) == sorted(WRITERS)


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the nodes that are documentation."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                found.add(id(first.value))
    return found


def only_asks_its_version(tree: ast.Module) -> bool:
    """Whether a module that imports SQLite does no more than tell people which one it is."""
    asked = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    return {node.attr for node in asked if isinstance(node.value, ast.Name) and node.value.id in DATABASES} == {
        "sqlite_version"
    }


def test_sql_stands_in_storage_alone() -> None:
    faults: list[str] = []
    for module in [module for module in MODULES if module.top not in {"tests", "examples"}]:
        if module.name.startswith(("storage.sqlite", "storage.postgres")):
            continue
        used = module.foreign & DATABASES
        if used and not only_asks_its_version(module.tree):
            faults.append(f"{module.name} imports {', '.join(sorted(used))}")
        documented = docstrings(module.tree)
        faults += [
            f"{module.name}: line {node.lineno}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documented
            and SQL.match(node.value)
        ]
    assert faults == []


def test_the_sql_pattern_knows_sql() -> None:
    for text in (
        "SELECT a\nFROM b",
        "INSERT INTO t VALUES (1)",
        "UPDATE t\nSET a = 1",
        "PRAGMA user_version",
        "BEGIN IMMEDIATE",
    ):
        assert SQL.match(text)
    for text in ("Select an agent", "UPDATE", "COMMITTED", "DELETE", "INSERT", "PATCH, DELETE"):
        assert not SQL.match(text)


def test_every_module_says_what_it_is() -> None:
    assert [module.name for module in MODULES if not ast.get_docstring(module.tree)] == []


def test_every_module_is_short() -> None:
    lengths = {module.name: len(module.path.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MOST} == {}
