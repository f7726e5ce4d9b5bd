"""Whatever is wrong with the streams, the folder or the bytes that a command is given: at most one line on stderr, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.supervisors.cli.announce import find_server, take_folder
from callboard.tests.flows.cli_kit import Here, Local, environment, run, running, serving

CALLBOARD = (sys.executable, "-m", "callboard")


def shell(line: str, folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run `line` in a shell, where `"$@"` is the command."""
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", *CALLBOARD, *arguments],
        cwd=folder,
        env=environment(),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    assert err.count("\n") <= 1, err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def surrogates(data: bytes) -> str:
    return os.fsdecode(data)


@pytest.fixture
def seeded(tmp_path: Path, local: Local) -> Path:
    assert local("migrate", folder=tmp_path).code == 0
    return tmp_path


def test_text_that_is_not_utf_8_names_its_field(seeded: Path, local: Local) -> None:
    bad = surrogates(b"caf\xe9")
    done = local("sessions", "send", "/", bad, folder=seeded)
    assert (done.code, done.refusal) == (2, "text: is not UTF-8")
    done = local("inbox", "list", "--peer", bad, folder=seeded)
    assert (done.code, done.refusal) == (2, "--peer: is not UTF-8")
    typed = shell('"$@"', seeded, "sessions", "send", "/", "-", stdin=b"caf\xe9")
    assert (typed.returncode, "text: standard input is not UTF-8" in typed.stderr) == (1, True)


@pytest.mark.parametrize("line", ['"$@" <&-', '"$@" >&-', '"$@" 2>&-', '"$@" <&- >&- 2>&-'])
def test_a_closed_stream_is_no_crash(seeded: Path, line: str) -> None:
    assert shell(line, seeded, "sessions", "list").returncode == 0
    assert shell(line, seeded, "sessions", "send", "/", "-").returncode == 1
    assert shell(line, seeded, "sessions", "lst").returncode == 2


def test_an_output_that_is_full_is_one_line(seeded: Path) -> None:
    done = shell('"$@" >/dev/full', seeded, "sessions", "list", "--json")
    assert (done.returncode, "standard output can't be written: No space left" in done.stderr) == (1, True)
    assert shell('"$@" 2>/dev/full', seeded, "sessions", "lst").returncode == 2
    assert shell('"$@" >/dev/full', seeded, "--version").returncode in (0, 1)


async def test_a_reader_that_has_gone_ends_a_chat_without_a_word(tmp_path: Path) -> None:
    async with serving(tmp_path):
        # The group that a nursery makes of it must not hide what it is.
        done = shell('"$@" | true', tmp_path, "chat", stdin=b"echo one\necho two\n" * 20)
    assert done.stderr == ""


def test_a_folder_that_was_deleted_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = shell('cd gone && rmdir ../gone && exec "$@"', tmp_path, "sessions", "list")
    assert (done.returncode, "the current folder can't be used" in done.stderr) == (1, True)


async def test_ctrl_c_during_the_imports_is_silent(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'cyclopts':\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from callboard.supervisors.cli import main\nmain()"
    )
    async with running("sessions", "list", folder=tmp_path, prelude=("-c", code)) as command:
        done = await command.end()
    assert (done.code, done.out, done.err) == (1, "", "")


def test_a_defect_is_one_line_with_its_place(seeded: Path, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise ExceptionGroup("several", [ZeroDivisionError("nobody\nexpected this")])

    monkeypatch.setattr("callboard.supervisors.cli.listings.sessions_list_command", broken)
    done = local("sessions", "list", folder=seeded)
    assert done.code == 1
    assert "unexpected: ZeroDivisionError: nobody expected this" in done.refusal
    assert "test_cli_streams.py, line" in done.refusal


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "http://", "http://h:99999", "ftp://h:1", "http://a\nb:1"])
async def test_a_server_json_with_a_bad_address_counts_for_nothing(seeded: Path, here: Here, url: str) -> None:
    with await take_folder(seeded):
        (seeded / "server.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        assert find_server(seeded) is None
        assert (await here("sessions", "list", folder=seeded)).code == 0


async def test_a_module_with_a_broken_getattr_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("def __getattr__(name):\n    raise ValueError('no ' + name)\n")
    done = await run("serve", "--port", "0", "--team", "odd:team", folder=tmp_path)
    assert (done.code, "no team" in done.refusal) == (1, True)


def test_a_team_without_a_colon_is_wrong_use(tmp_path: Path, local: Local) -> None:
    done = local("serve", "--port", "0", "--team", "foo", folder=tmp_path)
    assert (done.code, done.refusal) == (2, "--team: must be MODULE:NAME, not 'foo'")


def test_migrate_makes_the_folder(tmp_path: Path, local: Local) -> None:
    assert local("migrate", "--data", "a/new/one", folder=tmp_path).code == 0
    assert (tmp_path / "a/new/one/callboard.db").exists()


def test_the_setting_json_is_for_listings_too(seeded: Path, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    (seeded / "callboard.toml").write_text("json = true\n")
    assert local("sessions", "list", folder=seeded).json["sessions"] == []
    assert local("inbox", "list", folder=seeded).json["messages"] == []
    assert local("token", "list", folder=seeded).json["tokens"] == []
    (seeded / "callboard.toml").unlink()
    monkeypatch.setenv("CALLBOARD_JSON", "1")
    assert local("member", "list", folder=seeded).json["members"] == []
    assert json.loads(local("doctor", folder=seeded).out)["checks"]


async def test_a_listing_for_a_session_that_does_not_exist_fails_either_way(tmp_path: Path) -> None:
    async with serving(tmp_path):
        online = await run("inbox", "list", "--target", "nope", folder=tmp_path)
    offline = await run("inbox", "list", "--target", "nope", folder=tmp_path)
    assert (online.code, offline.code) == (1, 1)
    assert online.refusal == offline.refusal


async def test_a_store_without_a_server_has_the_limits_of_its_folder(tmp_path: Path) -> None:
    async with serving(tmp_path):
        pass
    (tmp_path / "callboard.toml").write_text("mailbox_depth = 1\n")
    assert (await run("sessions", "send", "/", "one", folder=tmp_path)).code == 0
    done = await run("sessions", "send", "/", "two", folder=tmp_path)
    assert (done.code, "mailbox" in done.refusal) == (1, True)
