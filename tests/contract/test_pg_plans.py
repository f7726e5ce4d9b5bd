"""How PostgreSQL finds rows: every statement of a running store by an index that names what it looks for (RT-13).

The plans are those that a connection keeps: made once, for any parameters, while the tables are empty. Whatever looks good there and
would read all of a large table is found here.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from callboard.storage.postgres.bridge import Connection
from callboard.storage.postgres.link import SETTINGS
from callboard.storage.postgres.locks import LOCK_MAILBOXES
from callboard.storage.postgres.statements import statements
from callboard.storage.postgres.tx import LOCK_DUE, LOCK_OF_MESSAGE, LOCK_RECIPIENTS
from callboard.tests.contract.pg_kit import processes
from callboard.tests.contract.postgres_server import session_server

WALKS = {
    # What reads a whole table, or a whole index of what is due or open, and may: it is asked seldom, or its answer is about all of it.
    *("integrity", "schema_version", "scopes", "stuck_sessions", "void_leases", "void_stuck", "stuck_forget"),
    *("processes", "processes_forget", "store_stats", "oldest_open", "held_by_nonce", "leases_run_out"),
    # Listings walk along the order they are given in, as far as their page.
    *("inbox_list", "sessions_active", "tokens_list", "members_list", "events_to_prune", "event_last"),
}
ALIKE = ~1
"""All columns but the first."""
LEFT_BY_A_CLAIM = "SET callboard.locked = '{}'; SET callboard.now = '0';"
OURS = {"due": LOCK_DUE, "mailboxes": LOCK_MAILBOXES, "recipients": LOCK_RECIPIENTS, "message": LOCK_OF_MESSAGE}
SHAPED = {f"{name} of rows": each.shaped(ALIKE) for name, each in statements().items() if each.rows}
"""Those that take rows, as they are written where most of what the rows say is alike."""
TEXTS = {name: statement.text for name, statement in statements().items()} | SHAPED | OURS


def plain(name: str) -> str:
    return name.removesuffix(" of rows")


@pytest.fixture
async def conn() -> AsyncIterator[Connection]:
    """On a database that nobody has used: one that was emptied still has statistics."""
    with session_server().database() as url:
        async with processes(url, 1) as (process,):
            connection = await process.third()
            await connection.script(SETTINGS + LEFT_BY_A_CLAIM)  # with it a plan is for any parameters
            yield connection
            connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def leading(conn: Connection) -> dict[str, str]:
    """The first column of each index."""
    sql = """SELECT c.relname, a.attname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"""
    return dict((await conn.execute(sql)).rows)


async def plan_of(conn: Connection, text: str) -> list[dict[str, Any]]:
    count = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
    await conn.script(f"DEALLOCATE ALL; PREPARE asked AS {text}")
    conn._names.clear()
    given = f"({', '.join(['NULL'] * count)})" if count else ""
    ((explained,),) = (await conn.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked {given}")).rows
    return list(nodes((json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]))


@pytest.mark.spec("RT-13")
async def test_no_statement_of_a_running_store_reads_more_than_it_looks_for(conn: Connection) -> None:
    first = await leading(conn)
    faults: list[str] = []
    for name, text in sorted(TEXTS.items()):
        if plain(name) in WALKS:
            continue
        for node in await plan_of(conn, text):
            if node["Node Type"] == "Seq Scan":
                faults.append(f"{name} reads all of {node['Relation Name']}")
            elif "Index Name" in node:
                # Behind LIMIT it may also be walked in its order, from the one end.
                condition = node.get("Index Cond", "")
                if not re.search(rf"\b{first[node['Index Name']]}\b", condition):
                    faults.append(f"{name} reads all of {node['Index Name']} ({condition})")
    assert not faults, "\n".join(faults)


LONG = {
    "entry_seq": "seq",
    "event_n": "n",
    "mailbox_recent": "updated_at",
    "marker_message": "message",
    "message_key": "message_id",
    "session_path": "path",
    "step_key": "key",
}
"""Indexes that begin with a project, a session or a message, of which there may be any number of rows: the column that says which."""
WHOLE = {"entries_count", "steps_forget", "steps_of", "transcript_tail"}
"""What is asked of all of one session or turn, or goes along its order from one end."""


@pytest.mark.spec("RT-13")
async def test_no_statement_reads_a_whole_project_or_session_for_one_row_of_it(conn: Connection) -> None:
    faults: list[str] = []
    for name, text in sorted(TEXTS.items()):
        for node in await plan_of(conn, text):
            column = LONG.get(node.get("Index Name", ""))
            if column and not re.search(rf"\b{column}\b", node.get("Index Cond", "")) and plain(name) not in WHOLE:
                faults.append(f"{name} reads all rows of one in {node['Index Name']} ({node.get('Index Cond')})")
    assert not faults, "\n".join(faults)


@pytest.mark.spec("RT-13")
async def test_what_may_walk_exists(conn: Connection) -> None:
    assert set(TEXTS) >= WALKS
    # A claim goes along the index of what is due and sorts nothing.
    plan = await plan_of(conn, LOCK_DUE)
    assert {node.get("Index Name") for node in plan} == {None, "mailbox_due"}
    assert "Sort" not in {node["Node Type"] for node in plan}
