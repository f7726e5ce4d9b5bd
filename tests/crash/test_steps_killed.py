"""A turn of several steps, killed at each of them: what was recorded is fed back, what was not goes by its tool's class (RT-10)."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import attrs
import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Workers
from callboard.tests.crash.rows import Rows

STEPS = ["book 1", "look 1", "ring 1?", "ring 1", "send", "book 2", "ring 2?", "ring 2", "send"]
"""The commits of the agent `tinker`: an external call is recorded twice, first (?) that it begins."""


@attrs.frozen
class Kill:
    """Just before or just after the commit of STEPS[n - 1]. What each tool must then have done, by the classes alone."""

    where: str
    n: int

    def runs(self, tool: str, x: int) -> int:
        """How often the tool has run after a second attempt."""
        at = STEPS.index(f"{tool} {x}") + 1
        cut_off = self.where == "before" and self.n == at  # it had run, and its result was lost
        if tool == "ring":
            return 0 if self.interrupts(x) and not cut_off else 1
        return 2 if cut_off else 1

    def interrupts(self, x: int) -> bool:
        """Whether an external call was recorded as begun, without its result."""
        begun = STEPS.index(f"ring {x}?") + 1
        return (self.where, self.n) in {("after", begun), ("before", begun + 1)}

    def answer(self) -> str:
        rang = {x: "interrupted" if self.interrupts(x) else f"rang {x}" for x in (1, 2)}
        return f"booked 1; looked 1; {rang[1]}; pending; booked 2; {rang[2]}; pending"


KILLS = [Kill(where, n) for n in range(1, len(STEPS) + 1) for where in ("before", "after")]


@pytest.mark.spec("RT-10", "RT-8")
async def test_killed_at_each_step(workers: Workers, tmp_path: Path) -> None:
    clean = tmp_path / "clean.db"
    worker = await workers.open(clean)
    await worker.ask("session", path="/helper", agent="nothing")
    await worker.ask("session", path="/tinker", agent="tinker")
    await worker.ask("close")
    for kill in KILLS:
        file = tmp_path / f"{kill.where}-{kill.n}.db"
        shutil.copy(clean, file)
        await worker.ask("open", path=str(file), trap={"where": kill.where, "n": kill.n, "op": "RecordStep"})
        await worker.dies("send", session="/tinker", content="go", message_id="m-1")
        worker = await workers.open(file)
        await worker.ask("send", session="/tinker", content="go", message_id="m-1")
        await worker.ask("idle")
        await worker.ask("close")
        judge(Rows(file), kill)


def judge(rows: Rows, kill: Kill) -> None:
    check(rows)
    assert rows.answers("m-1") == [kill.answer()], kill
    assert rows.message("m-1")["takeovers"] == 1
    assert rows.message("m-1")["attempts"] == 0
    done = rows.side()
    for tool, x in (("book", 1), ("look", 1), ("ring", 1), ("book", 2), ("ring", 2)):
        assert sum(line["tool"] == tool and line["x"] == x for line in done) == kill.runs(tool, x), (kill, tool, x)
    booked = [line["action"] for line in done if line["tool"] == "booked"]
    assert len(booked) == len(set(booked)) == 2, (kill, "a durable tool has had its effect twice")
    sent = rows.values("SELECT message_id FROM message WHERE kind = 'agent_message'")
    assert len(sent) == 2, (kill, "each agent_send is one row")
    assert rows.values("SELECT count(*) FROM step WHERE done") == rows.values("SELECT count(*) FROM step") == [7]
    for kind in ("tool.call", "tool.result"):
        told = Counter(rows.values("SELECT json_extract(data, '$.action_id') FROM event WHERE kind = ?", kind))
        assert len(told) == 7
        assert set(told.values()) == {1}, (kill, kind)


@pytest.mark.spec("INB-8")
async def test_an_agent_that_has_committed_in_its_own_store_is_not_run_again(
    workers: Workers, file: Path, rows: Rows
) -> None:
    worker = await workers.open(file, trap={"where": "before", "n": 1, "op": "CommitTurn"})
    await worker.ask("session", path="/keeper", agent="keeper")
    await worker.dies("send", session="/keeper", content="keep this", message_id="m-1")
    worker = await workers.open(file)
    await worker.ask("idle")
    await worker.close()
    check(rows)
    assert [line["tool"] for line in rows.side()] == ["kept"]
    assert worker.lines("running") == []
    assert rows.message("m-1")["status"] == "delivered"
