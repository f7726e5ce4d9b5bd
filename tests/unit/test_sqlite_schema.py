"""The SQL of SQLite: every row carries its project, every statement has a place and is used. Of both dialects: every read names its project."""

from __future__ import annotations

import gc
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pytest

from callboard.storage import ops, postgres, sqlite
from callboard.storage.handlers.table import HANDLERS
from callboard.storage.queries import load
from callboard.storage.sqlite.migrations import migrate
from callboard.tests.unit.sql_kit import written

FOLDER = resources.files(sqlite) / "sql"
OF_THE_STORE = {"meta", "scope", "process", "migration"}
"""Tables of the store itself, which belong to no project."""


@pytest.fixture
def schema() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def named(file: str, folder: Traversable = FOLDER) -> list[str]:
    return re.findall(r"^-- name: ([a-z_]+)$", (folder / file).read_text("utf-8"), re.MULTILINE)


READS = [
    (dialect, name)
    for dialect, folder in (("sqlite", FOLDER), ("postgres", resources.files(postgres) / "sql"))
    for file in ("reads.sql", "prompts.sql")
    for name in named(file, folder)
    if not load(dialect)[name].startswith("INSERT")
]


@pytest.mark.spec("NS-5")
@pytest.mark.parametrize(("dialect", "name"), READS)
def test_every_read_names_tenant_and_project(dialect: str, name: str) -> None:
    """ "A read without both is refused": both stand in the WHERE that all of it goes through, and no OR goes around them."""
    statement = load(dialect)[name]
    before, both, behind = statement.partition("c.tenant = :tenant AND c.project = :project")
    assert both
    assert name == "project_known" or re.search(r"\bscope = c\.id\b|\bc\.id = \w+\.scope\b", statement), (
        "what is read is the scope's"
    )
    where = before[before.rindex("WHERE") :] + both + behind
    # What stands in parentheses is a condition or a question of its own; one that closes more than was opened ends this question.
    while where != (outer := re.sub(r"\([^()]*\)", "", where)):
        where = outer
    assert not re.search(r"\b(OR|UNION)\b", where.partition(")")[0])


@pytest.mark.spec("NS-5")
def test_every_row_carries_its_scope(schema: sqlite3.Connection) -> None:
    found = tables(schema)
    assert set(found) > OF_THE_STORE
    for table in set(found) - OF_THE_STORE:
        columns = {row[1]: row for row in schema.execute(f"PRAGMA table_info({table})")}
        assert "scope" in columns, table
        assert columns["scope"][3] == 1, f"{table}.scope may be NULL"
    assert {row[1] for row in schema.execute("PRAGMA table_info(scope)")} >= {"tenant", "project"}


@pytest.mark.spec("NS-5")
def test_the_runtimes_own_questions_give_no_text() -> None:
    for name in named("system.sql"):
        statement = load("sqlite")[name]
        assert not re.search(r"\b(entry|content|title|payload|event|data)\b", statement), name


@pytest.mark.parametrize("name", sorted(load("sqlite")))
def test_every_statement_can_be_prepared(schema: sqlite3.Connection, name: str) -> None:
    statement = written(name)
    parameters = set(re.findall(r":([a-z_]+)", statement))
    arguments: dict[str, None] | list[None] = dict.fromkeys(parameters)
    if not parameters:
        numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
        arguments = [None] * (max(numbers) if numbers else statement.count("?"))
    schema.execute(f"EXPLAIN {statement}", arguments).fetchall()


def test_every_statement_is_used_and_says_what_it_is_for() -> None:
    code = "\n".join(file.read_text("utf-8") for file in Path(str(FOLDER)).parent.parent.rglob("*.py"))
    for file in (item.name for item in FOLDER.iterdir() if item.name.endswith(".sql")):
        text = (FOLDER / file).read_text("utf-8")
        for name in named(file):
            assert f'"{name}"' in code, f"{name} is used nowhere"
            assert re.search(rf"^-- name: {name}\n-- \S", text, re.MULTILINE), f"{name} does not say what it is for"


def test_every_op_has_its_handler() -> None:
    # A class with slots is made twice, and the first one lives until it is collected.
    gc.collect()
    found: list[Any] = ops.Op.__subclasses__()  # pyright: ignore[reportUnknownVariableType]
    known = {op for op in found if op.__module__.startswith("callboard.storage.")}
    assert set(HANDLERS) == known
    assert {op.__name__ for op in known} <= set(ops.__all__)


@pytest.mark.spec("INB-8")
def test_a_second_marker_of_a_message_cannot_be_written(schema: sqlite3.Connection) -> None:
    insert = written("marker_insert")
    schema.execute(insert, (1, 1, 7, "turn_a", 1, 1, None, None))
    schema.execute(insert, (1, 2, 7, "turn_b", 1, 1, None, None))
    with pytest.raises(sqlite3.IntegrityError):
        schema.execute(insert, (1, 1, 7, "turn_c", 2, 1, None, None))


@pytest.mark.parametrize(
    ("table", "columns"),
    [("event", ("mailbox", "n")), ("entry", ("mailbox", "seq")), ("message", ("scope", "message_id", "principal"))],
)
@pytest.mark.spec("EVT-2", "MSG-1", "INB-4")
def test_the_database_itself_refuses_a_number_twice(
    schema: sqlite3.Connection, table: str, columns: tuple[str, ...]
) -> None:
    unique = [row[1] for row in schema.execute(f"PRAGMA index_list({table})") if row[2]]
    assert columns in [tuple(row[2] for row in schema.execute(f"PRAGMA index_info({index})")) for index in unique]
