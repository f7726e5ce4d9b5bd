"""What an op weighs for the commit queue: all that it carries, whichever field it is in (RT-14)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from callboard.storage.model.addresses import Scope, Sender
from callboard.storage.model.limits import BATCH_BYTES, CONTENT_CHARS, ERROR_CHARS, TITLE_CHARS
from callboard.storage.model.states import Outcome, Reason
from callboard.storage.model.turns import Lease, StepKind, Summary
from callboard.storage.ops import (
    CommitTurn,
    EmitTokens,
    Fail,
    HandBack,
    Op,
    RecordStep,
    Renew,
    RequestApproval,
    RequestStop,
    Retry,
)
from callboard.storage.ops.base import json_size
from callboard.storage.ops.deliveries import StepEvent
from callboard.storage.ops.inbox import enqueue
from callboard.storage.ops.sessions import open_session

LEASE = Lease(1, "session:ses_1", 1, 1, 1)
SCOPE, ANN = Scope(), Sender("ann", "member", "Ann")
LARGE = 1_000_000


def step(**fields: Any) -> RecordStep:
    given: dict[str, Any] = {"data": {}, **fields}
    return RecordStep(LEASE, "call:0", StepKind.CALL, 0, done=True, **given)


def send(text: str) -> Op[Any]:
    return enqueue(SCOPE, "session:ses_1", ANN, text)


# What carries text, and how much of it may stand there.
CARRIES: dict[str, tuple[Callable[[str], Op[Any]], int]] = {
    "a step's data": (lambda text: step(data={"arguments": {"text": text}}), LARGE),
    "a name in a step's data": (lambda text: step(data={text: 1}), LARGE),
    "a step's result": (lambda text: step(result={"ok": [1, [text]]}), LARGE),
    "a step's event": (lambda text: step(events=(StepEvent("tool.result", {"result": text}),)), LARGE),
    "what a step sums up": (lambda text: step(summary=Summary(1, text)), LARGE),
    "what a step sends": (lambda text: step(sends=(send(text),)), CONTENT_CHARS),
    "what a step opens": (lambda text: step(opens=tuple(open_session(SCOPE, "a") for _ in text)), TITLE_CHARS),
    "what a step stops": (lambda text: step(stops=tuple(RequestStop(SCOPE, "session:s") for _ in text)), 100),
    "an approval's arguments": (lambda text: RequestApproval(LEASE, "apr_1", "k", "tool", {"text": text}), LARGE),
    "an answer": (lambda text: CommitTurn(LEASE, Outcome.ANSWERED, text, (1,)), LARGE),
    "a tail": (lambda text: CommitTurn(LEASE, Outcome.ANSWERED, None, (1,), tail=text), LARGE),
    "streamed text": (lambda text: EmitTokens(LEASE, 1, text), LARGE),
    "a retry's error": (lambda text: Retry(LEASE, text, 0), ERROR_CHARS),
    "a failure's error": (lambda text: Fail(LEASE, Reason.EXPIRED, text), ERROR_CHARS),
    "a cause": (lambda text: HandBack(LEASE, text), ERROR_CHARS),
    "a message": (send, CONTENT_CHARS),
    "leases": (lambda text: Renew(tuple(LEASE for _ in text), 30), 4_000),
}


@pytest.mark.spec("RT-14")
@pytest.mark.parametrize("name", CARRIES)
@pytest.mark.parametrize("letter", ["x", "€", "🙂"])
def test_an_op_weighs_what_it_carries(name: str, letter: str) -> None:
    build, most = CARRIES[name]
    assert build(letter * most).size - build(letter).size >= (most - 1) * len(letter.encode())


@pytest.mark.spec("RT-14")
def test_many_small_values_weigh_as_much_as_their_json() -> None:
    value = {f"key {n}": [None, True, n, n / 7, {"n": str(n)}, (), {}] for n in range(500)}
    written = len(json.dumps(value))
    assert written <= json_size(value) <= 8 * written


def test_weighing_ends_whatever_the_value() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = [endless, endless]
    assert BATCH_BYTES <= step(data=endless).size < 2 * BATCH_BYTES
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert step(result=deep).size > 100_000
    assert step(data=attrs.asdict(LEASE), result=object()).size < 2_000
