"""Every hot statement finds its rows by an index: its cost does not grow with what is stored (RT-13)."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from callboard.storage.queries import load
from callboard.storage.sqlite.migrations import migrate
from callboard.tests.unit.sql_kit import written

HOT = """
targets_for_enqueue messages_by_key message_by_key mailbox_accept pair_count due_mailboxes mailbox_claim head_claim
carried_for_claim fence step_by_key steerable row_absorb row_deliver marker_of
head_retry attempt_of mailbox_release mailbox_renew stop_target due_after session_by_id
oldest_due messages_to_blank messages_to_forget session_by_path session_by_redirect redirect_at sessions_by_path policy_of policy_rules
navigation_of frontiers frontiers_of transcript events_after event_counters message_named steps_of
""".split()  # noqa: SIM905

SHORT = {"SCAN d", "SCAN v", "SCAN (subquery-1)", "SCAN (subquery-5)"}
"""Due mailboxes, at most the claim's limit; the rows that a statement is given; the one head of a mailbox. All else must be a search."""


@pytest.fixture
def conn(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "plan.db", isolation_level=None)
    migrate(connection)
    return connection


@pytest.mark.spec("RT-13")
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_scans_no_table(conn: sqlite3.Connection, name: str) -> None:
    sql = written(name, 4)
    named = set(re.findall(r":([a-z_]+)", sql))
    numbered = {int(number) for number in re.findall(r"\?(\d+)", sql)}
    arguments: object = (
        dict.fromkeys(named) if named else (None,) * (max(numbered) if numbered else len(re.findall(r"\?", sql)))
    )
    plan = [row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + sql, arguments)]  # pyright: ignore[reportArgumentType]
    assert plan or name.startswith(("row_", "head_", "mailbox_"))
    scans = [step for step in plan if step.startswith("SCAN") and step not in SHORT]
    assert not [step for step in scans if "CONSTANT" not in step], plan


@pytest.mark.spec("RT-13")
def test_a_claim_reads_due_mailboxes_in_the_order_of_their_index(conn: sqlite3.Connection) -> None:
    plan = [
        row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + load("sqlite")["due_mailboxes"], {"now": 0, "limit": 1})
    ]
    assert any("mailbox_due" in step for step in plan), plan
    assert any("message_head" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


def test_a_listing_goes_along_the_index_of_changes(conn: sqlite3.Connection) -> None:
    arguments = dict.fromkeys(("tenant", "project", "idle", "updated", "row", "limit"))
    plan = [row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + load("sqlite")["sessions_list"], arguments)]
    assert any("mailbox_recent (scope=? AND updated_at<?)" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in plan), plan


def test_active_sessions_are_found_without_looking_at_the_others(conn: sqlite3.Connection) -> None:
    arguments = dict.fromkeys(("tenant", "project", "updated", "row", "limit"))
    plan = [row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + load("sqlite")["sessions_active"], arguments)]
    assert any("SEARCH m USING INTEGER PRIMARY KEY" in step for step in plan), plan
    # What is scanned are partial indexes of what is due and of children that run.
    scans = [step for step in plan if step.startswith("SCAN")]
    assert all("mailbox_due" in step or "session_running" in step or "session_children" in step for step in scans), plan
