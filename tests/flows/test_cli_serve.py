"""`callboard serve` as a real process: what it says, how it stops, and the one line that says why it does not start."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
from pathlib import Path

import pytest
import trio

from callboard.supervisors import cli
from callboard.tests.flows.cli_kit import Done, run, running, serving

STUBBORN = """
import sys, trio
from callboard import Team, Turn

async def shields_itself(turn: Turn) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def blocks_the_loop(turn: Turn) -> None:
    print("blocking", file=sys.stderr, flush=True)
    while True:
        pass

team = Team(agents={"shield": shields_itself, "block": blocks_the_loop}, sessions={"/block": "block"})
"""


async def test_the_first_line_of_json_says_where_it_serves(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = json.loads(await server.command.out.line())
        assert list(first) == ["url", "console", "token_file", "pid"]
        assert first["url"].startswith("http://127.0.0.1:")
        assert first["console"].startswith(first["url"])
        assert first["pid"] == server.command.process.pid
        assert first["token_file"] == str(tmp_path / "operator.token")
        assert stat.S_IMODE((tmp_path / "operator.token").stat().st_mode) == 0o600
        assert json.loads((tmp_path / "server.json").read_text()) == {"url": first["url"], "pid": first["pid"]}
        async with server.http as http:
            listed = (await http.get("/v1/sessions")).json()["sessions"]
        assert {(item["path"], item["agent"]) for item in listed} == {
            ("/", "front-desk"),
            ("/ops/deploy", "deploy"),
            ("/research/pricing", "pricing"),
        }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_cleanly(tmp_path: Path, number: int) -> None:
    async with serving(tmp_path) as server:
        token = server.token_file.read_text().strip()
        await server.post("/", "echo hello")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        server.command.signal(number)
        done = await server.command.end()
    assert done.code == 0
    assert done.out.count("\n") == 1, "nothing but the first line"
    assert token not in done.err
    assert not (tmp_path / "server.json").exists()
    # Closed in order: the write-ahead log is part of the file again, and the lock names nobody.
    assert not (tmp_path / "callboard.db-wal").exists()
    assert (tmp_path / "callboard.db.lock").read_text() == ""
    assert all(json.loads(line)["level"] == "info" for line in done.err.splitlines()), done.err


async def test_a_running_turn_is_given_back_by_a_stop(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 0.1\n")
    async with serving(tmp_path) as server:
        await server.post("/", "hang 1000")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
    listed = (await run("inbox", "list", "--json", folder=tmp_path)).json["messages"]
    assert [(message["status"], message["attempts"], message["takeovers"]) for message in listed] == [("pending", 0, 0)]


async def test_for_people_it_says_how_to_go_on(tmp_path: Path) -> None:
    async with running("serve", "--port", "0", "--data", "board", folder=tmp_path) as command:
        text = await command.out.until("sessions list")
        url = json.loads((tmp_path / "board" / "server.json").read_text())["url"]
        for part in (url, str(tmp_path / "board" / "operator.token"), "callboard chat --data"):
            assert part in text
        command.signal(signal.SIGTERM)
        assert (await command.end()).code == 0


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 3600\n")
    async with serving(tmp_path) as server:
        await server.post("/", "hang 3600")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        server.command.signal(signal.SIGTERM)
        await server.command.err.until('"stopping"')
        server.command.signal(signal.SIGTERM)
        assert (await server.command.end()).code == 1
    assert not (tmp_path / "server.json").exists()


@pytest.mark.spec("RT-6")
async def test_an_agent_that_survives_its_cancel_does_not_hold_the_process(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 0.1\n")
    async with serving(tmp_path, "--team", "stubborn:team") as server:
        session = await server.session("/")
        await server.post("/", "work")
        await server.until("/", lambda kind, _: kind == "attempt.claimed")
        server.command.signal(signal.SIGTERM)
        done = await server.command.end()
    assert done.code == 0
    last = json.loads(done.err.splitlines()[-1])
    assert (last["level"], session in last["event"]) == ("error", True)
    assert not (tmp_path / "server.json").exists()
    listed = (await run("inbox", "list", "--json", folder=tmp_path)).json["messages"]
    assert [message["status"] for message in listed] == ["pending"]


@pytest.mark.spec("RT-6")
async def test_an_agent_that_blocks_the_loop_is_named_and_can_be_ended(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    async with serving(tmp_path, "--team", "stubborn:team") as server:
        session = await server.session("/block")
        await server.post("/block", "work")
        text = await server.command.err.until("the loop is blocked by")
        assert f"session:{session}" in text
        assert "stubborn.py, line 1" in text
        server.command.signal(signal.SIGTERM)
        # The first one can't be acted upon, and nothing says that it came; signals of one kind may be merged into one.
        while server.command.process.returncode is None:
            server.command.signal(signal.SIGINT)
            server.command.signal(signal.SIGTERM)
            with trio.move_on_after(0.05):
                await server.command.process.wait()
        assert (await server.command.end()).code == 1


@pytest.mark.spec("RT-17")
async def test_a_second_process_is_refused_and_told_whose_the_store_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = await run("serve", "--port", "0", folder=tmp_path)
        assert done.code == 1
        assert f"pid {server.pid} on host {socket.gethostname()}" in done.refusal
        assert server.url in done.refusal
        # It has harmed nothing, also not the way to the first one.
        assert (await run("sessions", "list", "--json", folder=tmp_path)).json["sessions"]
        assert json.loads((tmp_path / "server.json").read_text())["pid"] == server.pid


async def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await run("serve", "--port", str(port), folder=tmp_path)
        new = await run("serve", "--port", str(port), "--data", "a/new/one", folder=tmp_path)
    words = f"127.0.0.1 port {port} is in use: another program listens there; take another one: --port N, or 0 for any"
    for told in (done, new):
        assert (told.code, told.refusal) == (1, words)
    assert os.listdir(tmp_path) == [], "nothing is left behind"


@pytest.mark.spec("RT-17")
async def test_a_port_in_use_by_this_folders_own_server_names_that(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = await run("serve", "--port", str(server.port), folder=tmp_path)
    assert done.code == 1
    assert f"has a server already: pid {server.pid}" in done.refusal
    assert server.url in done.refusal


async def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "callboard.db").write_bytes(b"no database " * 1000)
    done = await run("serve", "--port", "0", folder=tmp_path)
    assert done.code == 1
    assert f"{tmp_path}/callboard.db: is not an SQLite database" in done.refusal


async def test_a_damaged_database_is_one_line(tmp_path: Path) -> None:
    assert (await run("migrate", folder=tmp_path)).code == 0
    file = tmp_path / "callboard.db"
    data = bytearray(file.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(data)
    done = await run("serve", "--port", "0", folder=tmp_path)
    assert done.code == 1
    assert "callboard.db: " in done.refusal


async def test_a_newer_database_is_one_line_and_left_alone(tmp_path: Path) -> None:
    assert (await run("migrate", folder=tmp_path)).code == 0
    file = tmp_path / "callboard.db"
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO migration VALUES (9999, 'from_the_future', 'x', 0)")
    connection.close()
    before = file.read_bytes()
    done = await run("serve", "--port", "0", folder=tmp_path)
    assert done.code == 1
    assert "has schema version 9999 of a newer Callboard" in done.refusal
    assert file.read_bytes() == before


async def test_a_database_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    done = await run("serve", "--port", "0", "--data", ".", "--store", "sqlite:////sys/x.db", folder=tmp_path)
    assert done.code == 1
    assert "/sys/x.db" in done.refusal
    assert "can't be written" in done.refusal


@pytest.mark.spec("OPS-3")
async def test_an_unknown_setting_is_one_line_with_the_nearest_known_one(tmp_path: Path) -> None:
    done = await run("serve", folder=tmp_path, CALLBOARD_PROT="1")
    assert (done.code, done.refusal) == (1, "CALLBOARD_PROT: is not a setting; the nearest is CALLBOARD_PORT")
    (tmp_path / "callboard.toml").write_text("leas_seconds = 1\n")
    done = await run("serve", folder=tmp_path)
    assert done.code == 1
    assert done.refusal == f"{tmp_path}/callboard.toml: leas_seconds: is not a setting; the nearest is lease_seconds"
    # Not only `serve`: a mistake in the file is a mistake for everybody who reads it.
    assert (await run("sessions", "list", folder=tmp_path)).code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serv",), "serve"),
        (("serve", "--prot", "1"), "--port"),
        (("serve", "--port", "many"), "--port"),
        (("serve", "--port", "99999"), "--port: must be 0 to 65,535"),
        (("serve", "--tls-cert", "c.pem"), "--tls-cert: needs tls_key as well"),
        (("serve", "--store", "mysql://x"), "--store: must be sqlite:///FILE"),
        (("serve", "extra"), "extra"),
        (("serve", "--log-level", "loud"), "loud"),
        (("sessions", "read"), "session"),
        (("sessions", "list", "--limit", "0"), "--limit"),
        (("sessions", "list", "--status", "asleep"), "asleep"),
        (("inbox", "lst"), "list"),
        (("chat", "/", "/"), "/"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = cli.run(arguments)
    done = Done(code, *capsys.readouterr())
    assert done.code == 2, done
    assert words in done.refusal
    assert list(tmp_path.iterdir()) == []


async def test_the_process_ends_with_that_code(tmp_path: Path) -> None:
    done = await run("serve", "--port", "99999", folder=tmp_path)
    assert (done.code, done.refusal) == (2, "--port: must be 0 to 65,535")


async def test_a_team_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from callboard import Team\n"
        "def shout(turn):\n    return turn.text.upper()\n"
        'team = Team(agents={"shouter": shout}, sessions={"/loud": "shouter"})\n'
    )
    async with serving(tmp_path, "--team", "mine:team"):
        done = await run("chat", "/loud", folder=tmp_path, stdin="hello\n")
        assert (done.code, done.out) == (0, "HELLO\n")
    # The store belongs to that team now; another one would take its sessions over.
    done = await run("serve", "--port", "0", folder=tmp_path)
    assert done.code == 1
    assert "shouter" in done.refusal


async def test_a_team_that_is_broken_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nothing_at_all\n")
    done = await run("serve", "--port", "0", "--team", "mine:team", folder=tmp_path)
    assert (done.code, "No module named 'nothing_at_all'" in done.refusal) == (1, True)
    assert not (tmp_path / "callboard.db").exists()


@pytest.mark.spec("RT-3")
async def test_a_root_that_gives_up_ends_it_with_exit_1(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import trio\n"
        "from callboard import Team\n"
        "from callboard.actors.dispatch.janitor import Janitor\n"
        "gate = trio.Event()\n"
        "async def run(self):\n    await gate.wait()\n    raise RuntimeError('the janitor is gone')\n"
        "Janitor.run = run\n"
        "async def agent(turn):\n    gate.set()\n    await trio.sleep_forever()\n"
        'team = Team(agents={"agent": agent})\n'
    )
    (tmp_path / "callboard.toml").write_text("stop_grace_seconds = 0.1\n")
    async with serving(tmp_path, "--team", "broken:team") as server:
        await server.post("/", "work")
        done = await server.command.end()
    assert done.code == 1
    lines = done.err.splitlines()
    assert "the runtime gave up" in lines[-1]
    assert "the janitor is gone" in lines[-1]
    assert all(line.startswith("{") for line in lines[:-1]), done.err
    assert not (tmp_path / "server.json").exists()
    (message,) = (await run("inbox", "list", "--json", folder=tmp_path)).json["messages"]
    assert (message["status"], message["takeovers"]) == ("pending", 0), "its lease was given back"


async def test_tls(tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("board.example")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    async with serving(tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem") as server:
        assert server.url.startswith("https://127.0.0.1:")
        # The certificate is for another name and of no known authority: the folder vouches for it.
        assert (await run("sessions", "list", "--json", folder=tmp_path)).json["sessions"]
        done = await run("chat", folder=tmp_path, stdin="echo secret\n")
        assert (done.code, done.out, done.err) == (0, "secret\n", "")
        server.command.signal(signal.SIGTERM)
        assert (await server.command.end()).code == 0


async def test_a_certificate_that_is_none_is_one_line(tmp_path: Path) -> None:
    done = await run("serve", "--tls-cert", "cert.pem", "--tls-key", "key.pem", folder=tmp_path)
    assert done.code == 1
    assert f"{tmp_path}/cert.pem does not exist" in done.refusal


async def test_a_token_file_that_others_may_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "operator.token").write_text("x" * 43 + "\n")
    (tmp_path / "operator.token").chmod(0o644)
    done = await run("serve", "--port", "0", folder=tmp_path)
    assert done.code == 1
    assert "operator.token: has mode 0644" in done.refusal


async def test_help_answers_without_loading_the_rest(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom callboard.supervisors.cli import run\nassert run(['--help']) == 0\n"
        "heavy = {'trio', 'httpx', 'starlette', 'structlog', 'trio_websocket', 'sqlite3', 'cattrs'} & set(sys.modules)\n"
        "print(heavy, file=sys.stderr)"
    )
    async with running(folder=tmp_path, prelude=("-c", code)) as command:
        done = await command.end()
    assert (done.code, done.err) == (0, "set()\n")
    for name in ("chat", "inbox", "migrate", "serve", "sessions"):
        assert f" {name} " in done.out
