"""A turn of several model rounds, killed at each of its commits: no recorded model call is repeated, and no durable tool has its effect twice.

The model is a service of other people's, and the count of its calls is the service's own.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Workers
from callboard.tests.crash.rows import Rows
from callboard.tests.flows.model_kit import ModelServer, breaks, calls, says

STEPS = ["round 1?", "round 1", "book", "send", "round 2?", "round 2", "ring?", "ring", "round 3?", "round 3"]
"""The commits of steps; a round and an external call are recorded twice, first (?) that they begin."""
ANSWER = "One.\n\nTwo.\n\nThree."
LOST = "interrupted: ring may have run; it was not repeated"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@attrs.frozen
class Kill:
    """Just before or just after the n-th commit that holds an `op`."""

    where: str
    n: int
    op: str = "RecordStep"

    @property
    def at(self) -> tuple[str, str]:
        return (self.where, STEPS[self.n - 1] if self.op == "RecordStep" else f"steer {self.n}")

    def repeats(self, number: int) -> bool:
        """Whether the model is asked for a round again: its answer was lost before it was recorded."""
        return self.at == ("before", f"round {number}")

    @property
    def interrupts(self) -> bool:
        """Whether an external call was recorded as begun, without its result."""
        return self.at in {("after", "ring?"), ("before", "ring")}

    def runs(self, tool: str) -> int:
        """How often a tool has run after a second attempt, by its class alone."""
        if tool == "ring":
            return 0 if self.at == ("after", "ring?") else 1
        return 2 if self.at == ("before", tool) else 1


KILLS = [
    *(Kill(where, n) for n in range(1, len(STEPS) + 1) for where in ("before", "after")),
    *(Kill(where, n, "Absorb") for n in (1, 2) for where in ("before", "after")),
]


def rounds(kill: Kill) -> list[dict[str, Any]]:
    """What the model says, each round once more if it will be asked for again."""
    told = [
        calls(("book", {"x": 1}), ("agent_send", {"agent_id": "/helper", "message": "from the desk"}), text="One."),
        calls(("ring", {"x": 2}), text="Two."),
        says("Three."),
    ]
    return [{**one, "times": 1 + kill.repeats(number)} for number, one in enumerate(told, start=1)]


@pytest.mark.spec("RT-10", "CTX-4", "CTX-6", "CTX-7")
async def test_killed_at_each_step_of_a_turn_of_several_rounds(
    workers: Workers, server: ModelServer, tmp_path: Path
) -> None:
    clean = tmp_path / "clean.db"
    worker = await workers.open(clean, model=server.url)
    await worker.ask("session", path="/helper", agent="nothing")
    await worker.ask("session", path="/desk", agent="chat")
    await worker.ask("close")
    for kill in KILLS:
        file = tmp_path / f"{kill.where}-{kill.op}-{kill.n}.db"
        shutil.copy(clean, file)
        await server.reset()
        await server.plan(*rounds(kill))
        trap = {"where": kill.where, "n": kill.n, "op": kill.op}
        await worker.ask("open", path=str(file), trap=trap, model=server.url)
        await worker.dies("send", session="/desk", content="go", message_id="m-1")
        worker = await workers.open(file, model=server.url)
        await worker.ask("send", session="/desk", content="go", message_id="m-1")
        await worker.ask("idle")
        await worker.ask("close")
        judge(Rows(file), kill, await server.requests())


def judge(rows: Rows, kill: Kill, requests: list[dict[str, Any]]) -> None:
    check(rows)
    assert rows.answers("m-1") == [ANSWER], kill
    assert (rows.message("m-1")["takeovers"], rows.message("m-1")["attempts"]) == (1, 0)
    asked = Counter(sum(m["role"] == "assistant" for m in request["body"]["messages"]) + 1 for request in requests)
    assert asked == {number: 1 + kill.repeats(number) for number in (1, 2, 3)}, kill
    # "A turn that continues on a second owner re-renders there; the deterministic order and unchanged data give the same bytes."
    assert len({json.dumps(request["body"]) for request in requests}) == 3, kill
    hashes = rows.values("SELECT json_extract(data, '$.request_hash') FROM event WHERE kind = 'model.request'")
    assert len(set(hashes)) == 3, kill
    done = rows.side()
    for tool in ("book", "ring"):
        assert sum(line["tool"] == tool for line in done) == kill.runs(tool), (kill, tool)
    assert sum(line["tool"] == "booked" for line in done) == 1, (kill, "a durable tool has had its effect twice")
    assert len(rows.values("SELECT message_id FROM message WHERE kind = 'agent_message'")) == 1, kill
    assert rows.values("SELECT kind FROM step ORDER BY ordinal") == [
        *("round", "call", "call", "steer"),
        *("round", "call", "steer"),
        "round",
    ]
    assert set(rows.values("SELECT done FROM step")) == {1}
    for kind in ("tool.call", "tool.result"):
        told = Counter(rows.values("SELECT json_extract(data, '$.action_id') FROM event WHERE kind = ?", kind))
        assert sorted(told.values()) == [1, 1, 1], (kill, kind)
    # The last request of all was for the third round: it tells what the model was given back.
    results = [m["content"] for m in requests[-1]["body"]["messages"] if m["role"] == "tool"]
    assert (results[0], results[2]) == ("booked 1", LOST if kill.interrupts else "rang 2"), kill
    assert '"status": "pending"' in results[1]


@pytest.mark.spec("RT-10")
async def test_killed_while_the_model_talks(workers: Workers, server: ModelServer, file: Path, rows: Rows) -> None:
    await server.reset()
    await server.plan(breaks("stall", 60, stall_seconds=600), says("word " * 80), says("All is well."))
    worker = await workers.open(file, model=server.url)
    session = (await worker.ask("session", path="/desk", agent="chat"))["id"]
    await worker.ask("follow", session=session, after=0)
    await worker.ask("send", session="/desk", content="go", message_id="m-1")
    await worker.heard("event", kind="turn.token")
    await worker.kill()
    worker = await workers.open(file, model=server.url)
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert rows.answers("m-1") == ["All is well."]
    kinds = rows.kinds("m-1")
    assert kinds.count("model.request") == 2
    assert kinds.index("turn.token") < kinds.index("attempt.relinquished") < kinds.index("turn.completed")
    assert rows.values("SELECT key FROM step") == ["round:1"]
