"""Credentials without any socket: the operator's token file, the check of a bearer and a cookie, the rule for Origin."""

from __future__ import annotations

import base64
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from callboard.actors.edges.auth import Auth, Principal
from callboard.actors.edges.fields import check_origin, cookie
from callboard.actors.edges.token_file import TokenFileRefused, load_or_create_token
from callboard.storage.model.access import Purpose, digest
from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.errors import Busy, Forbidden, InvalidField, Rejected, Unauthorized
from callboard.storage.ops.access import issue_token
from callboard.storage.store import Store, open_store

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


def test_a_token_that_another_user_has_made_is_not_a_servers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = load_or_create_token(tmp_path, own=True)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TokenFileRefused, match="another user"):
        load_or_create_token(tmp_path, own=True)
    assert load_or_create_token(tmp_path) == token, "a client may be run by the administrator"


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    """A store in memory, in this thread: its time is the test's."""
    async with open_store("sqlite:///:memory:", executor="inline") as opened, trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


@pytest.mark.spec("AUTH-1")
async def test_only_the_token_is_accepted(memory: Store) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert await auth.principal([(b"authorization", f"{scheme} {TOKEN}".encode())]) == OPERATOR
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
            await auth.principal([(b"authorization", value)])
    with pytest.raises(Unauthorized):
        await auth.principal([])
    with pytest.raises(InvalidField, match="once"):
        await auth.principal([(b"authorization", f"Bearer {TOKEN}".encode())] * 2)


async def test_the_token_is_not_kept(memory: Store) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    assert TOKEN not in repr(auth)
    assert not any(TOKEN in repr(value) for value in vars(auth).values())


@pytest.mark.spec("AUTH-2")
async def test_the_project_comes_from_its_field(memory: Store) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    bearer = (b"authorization", f"Bearer {TOKEN}".encode())
    found = await auth.principal([bearer, (b"callboard-project", b"other")])
    assert found.scope == Scope("default", "other")
    for bad in (b"", b"A", b"a/b", b"\xe4", b"a" * 64):
        with pytest.raises(InvalidField) as refusal:
            await auth.principal([bearer, (b"callboard-project", bad)])
        assert refusal.value.path == "Callboard-Project"


@pytest.mark.spec("AUTH-1")
async def test_the_use_of_a_token_is_written_at_most_every_half_minute(
    memory: Store, autojump_clock: trio.testing.MockClock
) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    secret = TOKEN.swapcase()
    await memory.apply(issue_token(Scope(), digest(secret), member=None, project=None, label=""))
    fields = [(b"authorization", f"Bearer {secret}".encode())]

    async def noted() -> float | None:
        ((row,), *_) = [(await memory.access.credentials("default")).items]
        return row.used

    began = memory.now()
    for _ in range(3):
        await auth.principal(fields)
    first = await noted()
    assert first == pytest.approx(began)
    committed = memory.statistics()["committed"]
    await trio.sleep(29)
    await auth.principal(fields)
    assert (await noted(), memory.statistics()["committed"]) == (first, committed)
    await trio.sleep(1)
    await auth.principal(fields)
    assert await noted() == pytest.approx(began + 30)


async def test_a_store_that_is_too_busy_to_note_a_use_keeps_nobody_out(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    secret = TOKEN.swapcase()
    await memory.apply(issue_token(Scope(), digest(secret), member=None, project=None, label=""))

    async def busy(_: object) -> None:
        raise Busy("the commit queue is full")

    monkeypatch.setattr(memory, "apply", busy)
    assert (await auth.principal([(b"authorization", f"Bearer {secret}".encode())])).credential is not None


@pytest.mark.spec("AUTH-1")
async def test_a_ticket_ends_at_its_time(memory: Store, autojump_clock: trio.testing.MockClock) -> None:
    auth = Auth(TOKEN, OPERATOR, memory)
    for purpose, seconds in ((Purpose.WEBSOCKET, 30), (Purpose.CONSOLE, 600)):
        good, late = await auth.issue(OPERATOR, purpose), await auth.issue(OPERATOR, purpose)
        assert good.expires == pytest.approx(memory.now() + seconds)
        assert good.secret not in repr(good)
        use = auth.redeem if purpose is Purpose.WEBSOCKET else auth.enter
        await trio.sleep(seconds - 1)
        await use(good.secret)
        await trio.sleep(1)
        with pytest.raises(Unauthorized):
            await use(late.secret)


@pytest.mark.spec("AUTH-1")
async def test_a_cookie_is_good_for_thirty_days(memory: Store, autojump_clock: trio.testing.MockClock) -> None:
    auth = Auth(TOKEN, OPERATOR, memory, cookie_name="board")
    secret = await auth.enter((await auth.issue(OPERATOR, Purpose.CONSOLE)).secret)
    fields = [(b"cookie", f"a=b; board={secret}; board2=x".encode())]
    await trio.sleep(30 * 24 * 3600 - 1)
    found = await auth.principal(fields)
    assert found.by_cookie
    assert found.sender == OPERATOR.sender
    await trio.sleep(1)
    with pytest.raises(Unauthorized):
        await auth.principal(fields)


def test_a_cookie_is_found_by_its_whole_name() -> None:
    fields = [(b"cookie", b"x=1; board-1=right ;board=no"), (b"Cookie", b"board-2=second")]
    assert cookie(fields, "board-1") == "right"
    assert cookie(fields, "board-2") == "second"
    assert cookie(fields, "boar") is None
    assert cookie([(b"cookie", b"; =; board-1"), (b"cookie", b"\xff=\xff")], "board-1") == ""


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


@pytest.mark.spec("AUTH-3")
@pytest.mark.parametrize(("origin", "host"), FOREIGN)
def test_another_origin_may_not(origin: str, host: str) -> None:
    with pytest.raises(Forbidden):
        check_origin([(b"host", host.encode()), (b"origin", origin.encode())], frozenset({"board.example"}))


def test_where_an_origin_is_required_none_is_not_enough() -> None:
    for fields in ([(b"host", b"localhost")], []):
        check_origin(fields, frozenset())
        with pytest.raises(Forbidden):
            check_origin(fields, frozenset(), required=True)
    check_origin([(b"host", b"localhost"), (b"origin", b"http://localhost")], frozenset(), required=True)
