"""The SQLite bridge in processes that are killed, or that end without closing it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from callboard.storage.sqlite.bridge import open_connection

DEADLINE = 20.0


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [x for (x,) in connection.execute("SELECT x FROM n")]


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", script, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_connection_left_open_does_not_keep_the_process() -> None:
    """Also: a batch still running when Trio's run ends has nobody to answer, which must not upset its thread."""
    script = """
import threading, trio
from callboard.storage.sqlite.bridge import open_connection
release, done = threading.Event(), threading.Event()
async def main():
    global connection
    connection = await open_connection(":memory:", readonly=False)
    begun, token = trio.Event(), trio.lowlevel.current_trio_token()
    def batch(c):
        token.run_sync_soon(begun.set)
        release.wait(20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, batch)
        await begun.wait()
        nursery.cancel_scope.cancel()
trio.run(main)
release.set()
connection._tx.put_nowait((None, done.set))
assert done.wait(20), "the thread died of an answer that nobody awaits"
print("end of main")
"""
    ran = subprocess.run(
        python(script), env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "end of main\n"), ran.stderr
    assert "RunFinishedError" not in ran.stderr


COMMITTER = """
import sys, trio
from callboard.storage.sqlite.bridge import open_connection

def batch(first):
    def run(c):
        c.execute("BEGIN IMMEDIATE")
        c.executemany("INSERT INTO n VALUES (?)", [(first + i,) for i in range(64)])
        c.execute("COMMIT")
    return run

async def main():
    connection = await open_connection(sys.argv[1], readonly=False)
    await connection.run(lambda c: c.execute("CREATE TABLE IF NOT EXISTS n (x INTEGER PRIMARY KEY)"))
    (first,) = await connection.run(lambda c: c.execute("SELECT coalesce(max(x) + 1, 0) FROM n").fetchone())
    while True:
        await connection.run(batch(first))
        sys.stdout.write(f"{first}\\n")
        sys.stdout.flush()
        first += 64

trio.run(main)
"""


@pytest.mark.spec("INB-1")
async def test_kill_9_loses_no_acknowledged_batch(tmp_path: Path) -> None:
    file, acknowledged = tmp_path / "a.db", list[int]()
    for kill_after in (5, 60, 200):
        acknowledged += await _commit_until_killed(file, kill_after)
        connection = await open_connection(file, readonly=False)
        assert await connection.run(lambda c: c.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
        found = await connection.run(numbers)
        await connection.aclose()
        assert {first + i for first in acknowledged for i in range(64)} <= set(found)
        assert len(found) % 64 == 0, "a batch is there as a whole or not at all"
        assert len(found) <= 64 * (len(acknowledged) + 3), "at most one batch a kill is committed and not acknowledged"


async def _commit_until_killed(file: Path, lines: int) -> list[int]:
    with trio.fail_after(DEADLINE):
        child = await trio.lowlevel.open_process(
            python(COMMITTER, str(file)), stdout=subprocess.PIPE, env=environment()
        )
        assert child.stdout is not None
        said = b""
        while said.count(b"\n") < lines:
            said += await child.stdout.receive_some(65536)
        child.send_signal(signal.SIGKILL)
        await child.wait()
        async with child.stdout:
            async for rest in child.stdout:
                said += rest
    return [int(line) for line in said.split(b"\n")[:-1]]
