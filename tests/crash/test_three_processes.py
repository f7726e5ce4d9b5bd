"""Several processes on one PostgreSQL store: a short part of what `three_processes.py` does for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.tests.contract.postgres_server import Server, session_server
from callboard.tests.crash.three_processes import DATABASE, LATE_SECONDS, PROCESSES, Result, run

LEASE = 2.0
# httpx drops the body of a request that is cut off in the middle of it, as those are whose process is killed.
CUT_OFF = "ignore:Exception ignored in. <async_generator object ByteStream:pytest.PytestUnraisableExceptionWarning"


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that this test may stop: the others' goes on."""
    server = Server.launch()
    yield server
    server.stop("immediate")


def check(result: Result) -> None:
    assert not result.wrong, "\n".join(result.wrong)
    assert result.accepted > 50
    assert result.turns >= result.accepted
    assert result.others_turns > 0, "the followers saw no turn that another process ran"


@pytest.mark.filterwarnings(CUT_OFF)
@pytest.mark.spec("RT-7", "RT-8", "RT-9", "RT-17", "INB-1", "INB-6", "INB-8", "EVT-2", "EVT-3", "MSG-2", "OPS-4")
async def test_processes_are_killed_and_paused_under_load_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    server = session_server()
    with server.database() as url:
        result = await run(server, url, tmp_path, seconds=14.0, lease=LEASE, kinds=PROCESSES, seed=3)
    check(result)
    assert set(result.blows) == {"SIGKILL", "SIGSTOP"}
    assert result.takeovers - result.unexplained > 0, "no blow fell into a turn"
    assert result.worst_takeover <= LEASE + LATE_SECONDS


@pytest.mark.filterwarnings(CUT_OFF)
@pytest.mark.spec("RT-9", "RT-17", "INB-1", "INB-8", "EVT-3")
async def test_the_database_is_cut_off_and_restarted_under_load_and_all_goes_on_by_itself(
    tmp_path: Path, own_server: Server
) -> None:
    with own_server.database() as url:
        result = await run(own_server, url, tmp_path, seconds=10.0, lease=LEASE, kinds=DATABASE[::-1], seed=1)
    check(result)
    assert sum(result.blows.values()) >= 2
