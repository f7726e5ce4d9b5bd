"""The tests' own PostgreSQL server: one for all workers of a run, and none left when they are gone, however they end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]
LIMIT = 30.0
WORKER = """
import sys
from callboard.tests.contract.postgres_server import session_server
server = session_server()
with server.database() as url:
    print(server.folder, server.pid, server.template("t", print), flush=True)
    sys.stdin.read()
"""


def freed(users: Path, pid: str) -> None:
    """Wait for the guard, which has its lock until the folder is gone, and for the server's last moment."""
    with users.open("r+") as file:
        while users.exists():
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_UN)
    while lives(pid):
        pass


def lives(pid: str) -> bool:
    """Whether it runs; one that has ended and that nobody has asked about is still listed."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout
    return bool(state) and not state.startswith("Z")


def prepared(lines: list[str]) -> int:
    return sum(line.startswith("postgresql://") for line in lines)


def start_worker(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_workers_share_a_server_which_ends_with_the_last_of_them() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".links"), "PYTEST_XDIST_TESTRUNUID": uuid.uuid4().hex}
    workers = [start_worker(environment) for _ in range(2)]
    said: list[list[str]] = []

    async def hear(worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        lines = [await trio.to_thread.run_sync(worker.stdout.readline)]
        while not lines[-1].startswith("/tmp/"):
            lines.append(await trio.to_thread.run_sync(worker.stdout.readline))
            assert lines[-1], "it ended"
        said.append(lines)

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(hear, worker)
        assert said[0][-1] == said[1][-1], "one folder, one server"
        assert prepared(said[0]) + prepared(said[1]) == 1, "one of them prepared the template"
        folder, pid, _ = said[0][-1].split()
        for worker in workers:
            assert await trio.to_thread.run_sync(lives, pid), "it is there as long as one of them is"
            worker.send_signal(signal.SIGKILL)
            with worker:
                pass
        await trio.to_thread.run_sync(freed, Path(folder) / "users", pid, abandon_on_cancel=True)
    assert not os.path.exists(folder)  # noqa: ASYNC240
