"""The lock phase: every op has its place in the table, and no batch finds out later that it has to lock another mailbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import attrs
import pytest

from callboard.storage import ops
from callboard.storage.model.addresses import Sender, session_address
from callboard.storage.model.sessions import Session
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import (
    Cancel,
    CommitTurn,
    DeleteSession,
    Enqueue,
    Fail,
    Op,
    RecordStep,
    RequestStop,
    Requeue,
    Retry,
)
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session
from callboard.storage.postgres.bridge import Statement
from callboard.storage.postgres.locks import LOCK_MAILBOXES, TABLE, keys_of
from callboard.storage.postgres.statements import statements
from callboard.storage.postgres.tx import LOCK_RECIPIENTS
from callboard.storage.queries import load, numbered
from callboard.tests.contract.pg_kit import SCOPE, Process, before, commit, post

HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def test_every_op_says_what_it_locks() -> None:
    named = {getattr(ops, name) for name in ops.__all__}
    assert set(TABLE) == {op for op in named if isinstance(op, type) and issubclass(op, Op) and op is not Op}


def test_both_databases_have_the_same_statements_in_the_same_files() -> None:
    def named(dialect: str) -> dict[str, set[str]]:
        folder = resources.files("callboard.storage") / dialect / "sql"
        return {file.name: set(HEAD.findall(file.read_text("utf-8"))) for file in folder.iterdir()}

    ours = named("postgres")
    assert ours.pop("ahead.sql") == {"message_ids", "messages_put"}
    assert ours == named("sqlite")
    assert set(load("postgres")) == set(statements())


def test_parameters_by_name_become_numbers_and_casts_stay() -> None:
    assert numbered("SELECT :b::text, :a, ':' || :b") == ("SELECT $1::text, $2, ':' || $1", ("b", "a"))
    assert numbered("SELECT $1::bigint[]") == ("SELECT $1::bigint[]", ())


async def test_every_statement_is_one_that_the_server_takes(one: Process) -> None:
    connection = await one.third()
    for statement in statements().values():
        await connection._prepare(statement.text)
    connection.close()


@attrs.frozen
class Place:
    """A parent, its running child, and who sent what waits in the child's mailbox behind its claimed head."""

    parent: Session
    child: Session
    sender: Session
    target: Session
    claimed: Any
    waiting: Any


async def place(one: Process) -> Place:
    parent, sender, target = await one.open(), await one.open(), await one.open()
    child = (await one.apply(open_session(SCOPE, "echo", parent=parent.id))).session
    await one.post(child, sender=Sender(parent.id, "session", "parent"), max_attempts=1)
    (claimed,) = await one.claim()
    waiting = await one.post(child, sender=Sender(sender.id, "session", "sender"))
    return Place(parent, child, sender, target, claimed, waiting)


def step(at: Place, **fields: Any) -> RecordStep:
    return RecordStep(at.claimed.lease, "call:0", StepKind.CALL, 0, done=True, data={}, **fields)


def send(at: Place) -> Enqueue:
    return post(at.target, sender=Sender(at.child.id, "session", "child"))


CASES: dict[str, Callable[[Place], Op[Any]]] = {
    "a child's answer": lambda at: commit(at.claimed),
    "a child's failure": lambda at: Fail(at.claimed.lease, Reason.UNDECODABLE, "no"),
    "a child's last attempt": lambda at: Retry(at.claimed.lease, "no", 0),
    "an answer beside what can't be read": lambda at: CommitTurn(
        at.claimed.lease, Outcome.ANSWERED, "x", (at.claimed.head.row,), undecodable=(at.waiting.id,)
    ),
    "a cancelled message": lambda at: Cancel(SCOPE, at.waiting.id),
    "a deleted child": lambda at: DeleteSession(SCOPE, at.child.id, Sender("ann", "member", "Ann")),
    "a stop that drops the queue": lambda at: RequestStop(SCOPE, session_address(at.child.id), drop_queued=True),
    "what a step sends": lambda at: step(at, sends=(send(at),)),
    "what a step stops": lambda at: step(
        at, stops=(RequestStop(SCOPE, session_address(at.child.id), drop_queued=True),)
    ),
    "a message": send,
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_batch_writes_to_was_locked_in_its_first_exchange(one: Process, case: str) -> None:
    at = await place(one)
    await one.driver._writer.open()
    late: list[str] = []
    phases = 0

    async def watch(exchange: Sequence[Statement]) -> None:
        nonlocal phases
        phases += any(sql == LOCK_MAILBOXES for sql, _ in exchange)
        late.extend(sql for sql, _ in exchange if sql == LOCK_RECIPIENTS)

    before(await one.driver._writer.open(), watch)
    touched = (await one.driver.apply([CASES[case](at)])).touched
    assert touched
    assert (phases, late) == (1, [])


async def test_a_requeued_message_too(one: Process) -> None:
    at = await place(one)
    await one.apply(Cancel(SCOPE, at.waiting.id))
    late: list[str] = []

    async def watch(exchange: Sequence[Statement]) -> None:
        late.extend(sql for sql, _ in exchange if sql == LOCK_RECIPIENTS)

    before(await one.driver._writer.open(), watch)
    assert (await one.apply(Requeue(SCOPE, at.waiting.id))).created
    assert late == []


async def test_what_was_asked_ahead_is_forgotten_once_it_is_written_over(one: Process) -> None:
    session = await one.open()
    await one.post(session)
    (claimed,) = await one.claim()
    lost = await one.post(session)
    end = CommitTurn(claimed.lease, Outcome.ANSWERED, "x", (claimed.head.row,), undecodable=(lost.id,))
    counted = await one.counted()
    _, receipt = await one.batch(end, post(session))
    assert receipt.created
    # Numbered by an answer from before, the send would have met the number of the failure, and all been carried out again.
    assert counted.begun == 1


def test_a_value_that_the_database_can_not_hold_locks_nothing() -> None:
    wrong = [attrs.evolve(post_to("session:x"), recipient=bad) for bad in ("session:\ud800", "session:\0")]
    keys = keys_of([*wrong, post_to("session:right")])
    ((_, args),) = keys.statements()
    assert args[1] == ["session:right"]


def post_to(recipient: str) -> Enqueue:
    return enqueue(SCOPE, recipient, Sender("ann", "member", "Ann"), "hello")
