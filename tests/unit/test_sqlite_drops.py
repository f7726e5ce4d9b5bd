"""What dropping and deleting cost in SQLite, and what they leave in a mailbox's row."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.storage.model.addresses import Scope, Sender, session_address
from callboard.storage.model.sessions import Session
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Claim, DeleteSession, EmitTokens, Op, RecordStep, RequestStop
from callboard.storage.ops.deliveries import HandOver
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.sqlite.tx import SqliteTx
from callboard.storage.store import Store, open_store

SCOPE, ANN = Scope(), Sender("ann", "member", "Ann")


async def queue(store: Store, count: int) -> Session:
    """A session that runs a turn while `count` messages wait behind it."""
    session = (await store.apply(open_session(SCOPE, "echo"))).session
    async with trio.open_nursery() as nursery:
        for n in range(count + 1):
            nursery.start_soon(store.apply, enqueue(SCOPE, session_address(session.id), ANN, f"{n}"))
    await store.apply(Claim("worker", f"n-{count}", 1, 30, frozenset({"echo"})))
    return session


def drop(session: Session) -> Op[Any]:
    return RequestStop(SCOPE, session_address(session.id), drop_queued=True)


def delete(session: Session) -> Op[Any]:
    return DeleteSession(SCOPE, session.id, ANN)


@pytest.mark.parametrize("build", [drop, delete])
async def test_a_long_queue_costs_no_more_statements_than_a_short_one(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counted(kind: str) -> Any:
        plain = getattr(SqliteTx, kind)

        def call(self: SqliteTx, name: str, *args: Any) -> Any:
            calls[name] += 1
            return plain(self, name, *args)

        return call

    for kind in ("all", "run", "each", "many", "returning"):
        monkeypatch.setattr(SqliteTx, kind, counted(kind))
    used: list[Counter[str]] = []
    async with open_store("sqlite:///:memory:") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for count in (2, 400):
            session = await queue(store, count)
            calls.clear()
            await store.apply(build(session))
            used.append(Counter(calls))
        nursery.cancel_scope.cancel()
    assert used[0] == used[1]


async def test_a_deleted_sessions_mailbox_keeps_nothing_of_lease_turn_or_stop(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db") as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        session = (await store.apply(open_session(SCOPE, "echo"))).session
        target = session_address(session.id)
        await store.apply(enqueue(SCOPE, target, ANN, "hello"))
        (claimed,) = (await store.apply(Claim("worker", "n-1", 1, 30, frozenset({"echo"})))).claimed
        await store.apply(EmitTokens(claimed.lease, 3, "text"))
        other = (await store.apply(open_session(SCOPE, "echo", path="/other"))).session
        handed = HandOver("/other", other.id)
        await store.apply(RecordStep(claimed.lease, "call:0", StepKind.CALL, 0, done=True, data={}, handoff=handed))
        await store.apply(RequestStop(SCOPE, target, 5, key="stop_1"))
        with closing(sqlite3.connect(tmp_path / "store.db")) as conn:
            conn.row_factory = sqlite3.Row
            held = dict(conn.execute("SELECT * FROM mailbox WHERE id = ?", (claimed.lease.mailbox,)).fetchone())
            await store.apply(delete(session))
            left = dict(conn.execute("SELECT * FROM mailbox WHERE id = ?", (claimed.lease.mailbox,)).fetchone())
        nursery.cancel_scope.cancel()
    kept = ("id", "scope", "recipient", "last_seq", "event_floor")
    assert {name: left[name] for name in kept} == {name: held[name] for name in kept}
    assert (left["epoch"], left["last_event"]) == (held["epoch"] + 1, held["last_event"] + 1)
    rest = {name: value for name, value in left.items() if name not in {*kept, "epoch", "last_event", "updated_at"}}
    assert all(held[name] for name in rest if name not in {"event_floor", "stuck"}), "each has something to lose"
    assert set(rest.values()) == {None, 0}
