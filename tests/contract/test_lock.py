"""One process owns an SQLite file: proven with real processes and real kills."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.storage.model.errors import StoreError, StoreLocked, StoreReadOnly
from callboard.storage.sqlite.lock import LockOwner, acquire_lock, read_owner

DEADLINE = 20.0
HOLDER = """
import sys
from callboard.storage.sqlite.lock import acquire_lock
lock = acquire_lock(sys.argv[1])
lock.announce("http://127.0.0.1:8420")
print("held", flush=True)
sys.stdin.read()
"""


HOLDER_WITH_A_PROGRAM = """
import signal, subprocess, sys
from callboard.storage.sqlite.lock import acquire_lock
lock = acquire_lock(sys.argv[1])
program = "import sys; print('held', flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", program], close_fds=False)
signal.pause()
"""


@contextmanager
def holder(database: Path, script: str = HOLDER) -> Generator[subprocess.Popen[str]]:
    """Another process that holds the lock until its input ends or it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


@pytest.fixture
def folder_of_a_plain_user() -> Iterator[Path]:
    """A folder of somebody whom file modes bind, and the test as that user: the super-user may write anywhere."""
    folder = Path(tempfile.mkdtemp())
    before = os.geteuid()
    if before == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    os.seteuid(before)
    shutil.rmtree(folder)


@pytest.mark.spec("RT-17")
def test_second_process_is_refused_and_told_the_owner(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with holder(database) as owner:
        with pytest.raises(StoreLocked) as refused:
            acquire_lock(database)
        assert refused.value.path == str(database)
        assert f"pid {owner.pid} on host {socket.gethostname()}" in refused.value.owner
        assert "serving http://127.0.0.1:8420" in refused.value.owner
        message = str(refused.value)
        assert str(database) in message
        assert refused.value.owner in message
        assert "\n" not in message


@pytest.mark.spec("RT-17")
def test_sigkill_of_the_owner_frees_the_file(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with holder(database) as owner:
        owner.send_signal(signal.SIGKILL)
        owner.wait(DEADLINE)
        stale = read_owner(database)
        assert stale is not None
        assert stale.pid == owner.pid, "its words stay, and decide nothing"
        with acquire_lock(database) as lock:
            assert lock.owner.pid == os.getpid()
            assert read_owner(database) == lock.owner


@pytest.mark.spec("RT-17")
def test_owner_in_this_process_refuses_the_second_open(tmp_path: Path) -> None:
    with acquire_lock(tmp_path / "a.db"):
        with pytest.raises(StoreLocked, match=f"pid {os.getpid()} "):
            acquire_lock(tmp_path / "a.db")
        acquire_lock(tmp_path / "b.db").release()
    acquire_lock(tmp_path / "a.db").release()


@pytest.mark.spec("RT-17")
def test_every_spelling_of_a_file_is_the_same_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "a.db").touch()
    (tmp_path / "alias.db").symlink_to(tmp_path / "data" / "a.db")
    monkeypatch.chdir(tmp_path / "data")
    with acquire_lock("a.db") as lock:
        assert lock.path == tmp_path / "data" / "a.db.lock"
        for spelling in (tmp_path / "link" / "a.db", tmp_path / "alias.db", Path("../link/./a.db"), "../alias.db"):
            with pytest.raises(StoreLocked):
                acquire_lock(spelling)


def test_content_is_json_with_pid_host_since_and_url(tmp_path: Path) -> None:
    lock = acquire_lock(tmp_path / "a.db")
    content = json.loads(lock.path.read_text())
    assert sorted(content) == ["host", "pid", "since"]
    assert (content["pid"], content["host"]) == (os.getpid(), socket.gethostname())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", content["since"])
    lock.announce("http://127.0.0.1:8420/" + "x" * 100)
    lock.announce("http://127.0.0.1:8420")
    assert json.loads(lock.path.read_text()) == {**content, "url": "http://127.0.0.1:8420"}
    lock.release()
    lock.release()
    lock.announce("http://late")
    assert read_owner(tmp_path / "a.db") is None, "who has given the file up is not named as its owner"


def test_stale_or_hostile_content_is_only_words(tmp_path: Path) -> None:
    path = tmp_path / "a.db.lock"
    for text in ("", "{", "[]", "null", '{"pid": "1"}', "\x00\xff", '{"pid": 1, "host": "h"}'):
        path.write_text(text)
        assert read_owner(tmp_path / "a.db") is None
        acquire_lock(tmp_path / "a.db").release()
    path.write_text(json.dumps({"pid": 1, "host": "h\n\x1b[2J" + "x" * 999, "since": "s", "url": 5, "more": 1}))
    owner = read_owner(tmp_path / "a.db")
    assert isinstance(owner, LockOwner)
    assert str(owner).isprintable()
    assert len(str(owner)) < 300


def test_programs_started_by_the_owner_do_not_keep_its_lock(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with holder(database, HOLDER_WITH_A_PROGRAM) as owner:
        with pytest.raises(StoreLocked):
            acquire_lock(database)
        owner.kill()
        owner.wait(DEADLINE)
        acquire_lock(database).release()  # its program lives on until its input ends, which is when this block does


def test_release_unlocks_although_a_program_being_started_still_has_a_copy(tmp_path: Path) -> None:
    lock = acquire_lock(tmp_path / "a.db")
    assert lock._descriptor is not None
    copy = os.dup(lock._descriptor)  # what a child has between fork and exec
    try:
        lock.release()
        acquire_lock(tmp_path / "a.db").release()
    finally:
        os.close(copy)


def test_missing_folder_folder_and_foreign_link_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="its folder does not exist"):
        acquire_lock(tmp_path / "none" / "a.db")
    assert not (tmp_path / "none").exists()
    with pytest.raises(StoreError, match="is a folder"):
        acquire_lock(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a.db.lock").symlink_to(victim)
    with pytest.raises(Exception, match=r"a\.db\.lock"):
        acquire_lock(tmp_path / "a.db")
    assert victim.read_text() == "precious"


def test_folder_without_write_access_is_a_clear_error(folder_of_a_plain_user: Path) -> None:
    folder = folder_of_a_plain_user
    folder.chmod(0o500)
    with pytest.raises(StoreReadOnly, match=r"a\.db\.lock.*write access"):
        acquire_lock(folder / "a.db")
    folder.chmod(0o700)
    acquire_lock(folder / "a.db").release()


@pytest.mark.spec("RT-17")
def test_a_file_with_two_names_is_refused_under_both(tmp_path: Path) -> None:
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    one.touch()
    other.hardlink_to(one)
    for file in (one, other):
        with pytest.raises(StoreError, match="hard links"):
            acquire_lock(file)
    other.unlink()
    acquire_lock(one).release()
