"""`callboard serve` that ends, or does not start, while an agent can't be ended; and who may be the server of a folder."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from callboard.tests.flows.cli_kit import run, running, serving

IN_THE_MIDDLE = """
import io, logging, os, signal, sys
from callboard.supervisors.cli.ending import end_now

class Raw(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        os.kill(os.getpid(), signal.SIGTERM)
        return len(data)

signal.signal(signal.SIGTERM, lambda *_: end_now(7))
sys.stderr = io.TextIOWrapper(io.BufferedWriter(Raw()), line_buffering=True)
logging.basicConfig(stream=sys.stderr)
logging.error("stopping")
"""
"""Told to end at once while it writes a line of its log: what logging swallows must not be the end."""
STUCK = """
import os
import threading
import trio
from callboard import Team
from callboard.actors.dispatch.janitor import Janitor

begun = trio.Event()

async def janitor(self):
    await begun.wait()
    raise RuntimeError("the janitor is gone")

async def in_a_thread(turn):
    begun.set()
    await trio.to_thread.run_sync(threading.Event().wait)

async def shielded(turn):
    begun.set()
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

thread = Team(agents={"agent": in_a_thread})
shield = Team(agents={"agent": shielded})
if "GIVE_UP" in os.environ:
    Janitor.run = janitor
"""


async def test_the_end_comes_also_in_the_middle_of_a_line(tmp_path: Path) -> None:
    async with running(folder=tmp_path, prelude=("-c", IN_THE_MIDDLE)) as command:
        assert (await command.end()).code == 7


@pytest.mark.spec("RT-3")
@pytest.mark.parametrize("team", ["thread", "shield"])
async def test_a_root_that_gives_up_does_not_wait_for_an_agent_that_survives_its_cancel(
    tmp_path: Path, team: str
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 0.1\n")
    async with serving(tmp_path, "--team", f"stuck:{team}", GIVE_UP="1") as server:
        session = await server.session("/")
        await server.post("/", "work")
        done = await server.command.end()
    assert done.code == 1
    *_, leaving, last = done.err.splitlines()
    assert "the runtime gave up" in last
    assert "the janitor is gone" in last
    assert f"ending without waiting for session:{session}" in json.loads(leaving)["event"]
    assert not (tmp_path / "server.json").exists()


async def test_a_start_that_fails_does_not_wait_for_a_turn_that_it_had_begun(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 0.1\n")
    (tmp_path / "first.py").write_text(
        "from callboard import Team\nasync def idle(turn):\n    return 'done'\nteam = Team(agents={'agent': idle})\n"
    )
    async with serving(tmp_path, "--team", "first:team"):
        pass
    assert (await run("sessions", "send", "/", "work", folder=tmp_path)).code == 0
    slow = (
        "import callboard, callboard.supervisors.cli.serving as serving, stuck\n"
        "async def late(runtime, team):\n"
        "    await stuck.begun.wait()\n    raise callboard.PathTaken('/second is taken', path='sessions')\n"
        "serving.open_places = late\n"
        "from callboard.supervisors.cli import main\nmain()"
    )
    given = ("serve", "--json", "--port", "0", "--team", "stuck:thread")
    async with running(*given, folder=tmp_path, prelude=("-c", slow)) as command:
        done = await command.end()
    assert (done.code, done.out) == (1, "")
    assert "/second" in done.err.splitlines()[-1], done.err
    assert "ending without waiting for session:" in done.err
    assert "Traceback" not in done.err


async def test_a_port_in_use_is_found_before_the_store_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await run("serve", "--port", str(port), folder=tmp_path)
    assert (done.code, "in use" in done.refusal) == (1, True)
    assert not (tmp_path / "callboard.db").exists()


@pytest.mark.spec("RT-17")
async def test_a_folder_has_one_server_whatever_its_store(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        announced = (tmp_path / "server.json").read_text()
        done = await run("serve", "--port", "0", "--data", ".", "--store", "sqlite:///other.db", folder=tmp_path)
        assert done.code == 1
        assert f"{tmp_path}: has a server already: pid {server.pid}" in done.refusal
        assert server.url in done.refusal
        assert (tmp_path / "server.json").read_text() == announced
        assert not (tmp_path / "other.db").exists()


async def test_what_people_say_is_for_the_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        async with serving(tmp_path):
            for name in ("callboard.db", "callboard.db.lock", "callboard.db-wal", "operator.token", "server.lock"):
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    finally:
        os.umask(old)


@pytest.mark.spec("OPS-1")
async def test_what_a_team_prints_does_not_come_before_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "from callboard import Team\nprint('loading')\nasync def agent(turn):\n    return 'x'\n"
        "team = Team(agents={'agent': agent})\n"
    )
    async with serving(tmp_path, "--team", "loud:team") as server:
        assert server.command.out.text.count("\n") == 1
        assert "loading" in server.command.err.text


async def test_few_descriptors_leave_room_for_everybody_who_is_refused(tmp_path: Path) -> None:
    few = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 160))\n"
        "from callboard.supervisors.cli import main\nmain()"
    )
    async with running("serve", "--json", "--port", "0", folder=tmp_path, prelude=("-c", few)) as command:
        url = json.loads(await command.out.line())["url"]
        port = int(url.rpartition(":")[2])
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(200)]
        # More than fits: the last of those that are let in is answered, one that is not is told so or hung up on.
        with trio.fail_after(30):
            await streams[31].send_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in await streams[31].receive_some()
            assert b" 503 " in await streams[32].receive_some()
        for stream in streams:
            await trio.aclose_forcefully(stream)
        assert "can't accept" not in command.err.text
        assert "at most 32 connections" in command.err.text
