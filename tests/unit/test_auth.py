"""Credentials without any socket: the operator's token file, the check of a bearer, the rule for Origin."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import pytest

from callboard.actors.edges.auth import Auth, Principal, TokenFileRefused, check_origin, load_or_create_token
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import Forbidden, InvalidField, Rejected, Unauthorized

OPERATOR = Principal(Sender("operator", "member", "operator"), Scope())
TOKEN = base64.urlsafe_b64encode(bytes(range(32))).rstrip(b"=").decode()


def test_a_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    token = load_or_create_token(folder)
    assert len(base64.urlsafe_b64decode(token + "=")) == 32
    file = folder / "operator.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == token + "\n"
    assert load_or_create_token(folder) == token
    assert [entry.name for entry in folder.iterdir()] == ["operator.token"]
    assert load_or_create_token(tmp_path) != token


def test_the_umask_does_not_widen_or_narrow_it(tmp_path: Path) -> None:
    for mask in (0o000, 0o022, 0o077):
        before = os.umask(mask)
        try:
            load_or_create_token(tmp_path / str(mask))
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / str(mask) / "operator.token").stat().st_mode) == 0o600


def test_many_processes_that_start_at_once_have_one_token(tmp_path: Path) -> None:
    barrier = threading.Barrier(16)
    found: list[str] = []

    def start() -> None:
        barrier.wait()
        found.append(load_or_create_token(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["operator.token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    load_or_create_token(tmp_path)
    (tmp_path / "operator.token").chmod(mode)
    with pytest.raises(TokenFileRefused, match=f"mode {mode:04o}") as refusal:
        load_or_create_token(tmp_path)
    assert refusal.value.path == str(tmp_path / "operator.token")
    assert isinstance(refusal.value, Rejected)


@pytest.mark.parametrize(
    "content", ["", "short", "a" * 42, "a" * 44, "a" * 42 + "!", "é" * 43, f"{TOKEN}\n{TOKEN}\n", "x" * 5000]
)
def test_a_file_without_a_token_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    file = tmp_path / "operator.token"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(TokenFileRefused, match="does not hold a token"):
        load_or_create_token(tmp_path)
    assert file.read_text() == content


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a" / "operator.token").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    load_or_create_token(elsewhere)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "operator.token").symlink_to(elsewhere / "operator.token")
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "operator.token", 0o600)
    (tmp_path / "d").write_text("a file")
    for name in "abcd":
        with pytest.raises(TokenFileRefused):
            load_or_create_token(tmp_path / name)


def test_only_the_token_is_accepted() -> None:
    auth = Auth(TOKEN, OPERATOR)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert auth.principal([(b"authorization", f"{scheme} {TOKEN}".encode())]) == OPERATOR
    wrong = [
        b"",
        b"Bearer",
        b"Bearer ",
        TOKEN.encode(),
        b"Basic " + TOKEN.encode(),
        b"Bearer " + TOKEN[:-1].encode(),
        b"Bearer \xff",
    ]
    for value in (*wrong, b"Bearer " + TOKEN.swapcase().encode(), b"Bearer " + TOKEN.encode() + b"x"):
        with pytest.raises(Unauthorized):
            auth.principal([(b"authorization", value)])
    with pytest.raises(Unauthorized):
        auth.principal([])
    with pytest.raises(InvalidField, match="once"):
        auth.principal([(b"authorization", f"Bearer {TOKEN}".encode())] * 2)


def test_the_token_is_not_kept() -> None:
    auth = Auth(TOKEN, OPERATOR)
    assert TOKEN not in repr(auth)
    assert not any(TOKEN in repr(value) for value in vars(auth).values())


def test_the_project_comes_from_its_field() -> None:
    auth = Auth(TOKEN, OPERATOR)
    bearer = (b"authorization", f"Bearer {TOKEN}".encode())
    assert auth.principal([bearer, (b"callboard-project", b"other")]).scope == Scope("default", "other")
    for bad in (b"", b"A", b"a/b", b"\xe4", b"a" * 64):
        with pytest.raises(InvalidField) as refusal:
            auth.principal([bearer, (b"callboard-project", bad)])
        assert refusal.value.path == "Callboard-Project"


OURS = [
    (None, "127.0.0.1:8420"),
    ("http://127.0.0.1:8420", "127.0.0.1:8420"),
    ("http://localhost:8420", "LOCALHOST:8420"),
    ("http://[::1]:8420", "[::1]:8420"),
    ("https://desk.example", "desk.example"),
    ("https://desk.example", "desk.example:443"),
    ("https://board.example", "127.0.0.1:8420"),
    ("http://board.example", "127.0.0.1:8420"),
]
FOREIGN = [
    ("null", "127.0.0.1:8420"),
    ("", "127.0.0.1:8420"),
    ("http://127.0.0.1:3000", "127.0.0.1:8420"),
    ("http://localhost:8420", "127.0.0.1:8420"),
    ("http://evil.example", "127.0.0.1:8420"),
    ("http://127.0.0.1:8420.evil.example", "127.0.0.1:8420"),
    ("http://evil.example:8420", "127.0.0.1:8420"),
    ("https://board.example:444", "127.0.0.1:8420"),
    ("https://board.example.evil.example", "127.0.0.1:8420"),
    ("file://", "127.0.0.1:8420"),
    ("chrome-extension://abc", "127.0.0.1:8420"),
    ("http://[bad", "127.0.0.1:8420"),
    ("http://x:99999", "127.0.0.1:8420"),
]


@pytest.mark.parametrize(("origin", "host"), OURS)
def test_our_origin_may_write(origin: str | None, host: str) -> None:
    fields = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    check_origin(fields, frozenset({"board.example"}))


@pytest.mark.parametrize(("origin", "host"), FOREIGN)
def test_another_origin_may_not(origin: str, host: str) -> None:
    with pytest.raises(Forbidden):
        check_origin([(b"host", host.encode()), (b"origin", origin.encode())], frozenset({"board.example"}))
