"""Two thousand messages, a hundred sessions, twenty kills: nothing lost, nothing doubled, nothing out of order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from callboard.tests.crash.invariants import check
from callboard.tests.crash.kit import Worker, Workers
from callboard.tests.crash.rows import Rows

KILLS = 20
SESSIONS = [
    *(("nothing", f"/nothing/{n}") for n in range(40)),
    *(("stream", f"/stream/{n}") for n in range(20)),
    *(("flaky", f"/flaky/{n}") for n in range(15)),
    *(("relay", f"/relay/{n}") for n in range(20)),
    *(("parent", f"/parent/{n}") for n in range(5)),
]
EACH = 20
TOTAL = EACH * len(SESSIONS)
PROGRESS = ("accepted", "ended")

Plan = list[tuple[str, str, list[list[str]]]]


def plan() -> Plan:
    return [
        (path, agent, [[f"{path[1:].replace('/', '.')}.{k}", text(agent, path, k)] for k in range(EACH)])
        for agent, path in SESSIONS
    ]


def text(agent: str, path: str, k: int) -> str:
    if agent == "flaky":
        return f"fail {k}" if k in (3, 4) else f"go {k}"
    if agent == "relay":
        return f"{path.replace('relay', 'nothing')} relayed {k}"
    return f"message {k}"


def without(done: set[str]) -> Plan:
    return [(path, agent, [one for one in messages if one[0] not in done]) for path, agent, messages in plan()]


@pytest.mark.spec("RT-9", "INB-1", "INB-6", "INB-8", "EVT-2", "MSG-1")
async def test_two_thousand_messages_and_twenty_kills(workers: Workers, file: Path, rows: Rows) -> None:
    chance = random.Random(20)
    accepted: set[str] = set()
    before: set[str] = set()
    repeated, ahead = 0, 2 * TOTAL
    for left in range(KILLS, 0, -1):
        worker = await workers.open(file)
        await worker.tell("storm", plan=without(accepted))
        # At least `ahead` lines are to come, and they are to last for all kills; a worker says more than it is killed at.
        await worker.count(chance.randint(1, max(1, ahead * 3 // (2 * left + 1))), *PROGRESS)
        await worker.kill()
        heard(worker, accepted)
        repeated += len(worker.lines("accepted", created=False))
        found = set(rows.values("SELECT message_id FROM message WHERE sender_kind = 'member'"))
        assert accepted <= found, "a send had returned and its row is not there"
        assert before <= found
        before = found
        delivered = rows.one("SELECT count(*) FROM message WHERE sender_kind = 'member' AND status = 'delivered'")[0]
        ahead = 2 * TOTAL - len(accepted) - delivered
    worker = await workers.open(file)
    await worker.ask("storm", plan=without(accepted))
    heard(worker, accepted)
    repeated += len(worker.lines("accepted", created=False))
    await worker.ask("idle")
    await worker.close()

    check(rows)
    assert accepted == {message_id for _, _, messages in plan() for message_id, _ in messages}
    sent = rows.all("SELECT message_id, status, outcome FROM message WHERE sender_kind = 'member'")
    assert len(sent) == TOTAL
    assert {(row["status"], row["outcome"]) for row in sent} == {("delivered", "answered")}
    assert repeated > 0, "no kill fell between a commit and its receipt, so the re-sends proved nothing"
    assert rows.one("SELECT sum(takeovers) FROM message")[0] > 0, "no kill fell into a turn"
    failed = rows.all("SELECT attempts, content FROM message JOIN entry USING (mailbox, seq) WHERE attempts > 0")
    assert {(row["attempts"], row["content"][:4]) for row in failed} == {(1, "fail")}, "a kill has cost an attempt"
    relayed = "SELECT content FROM message JOIN entry USING (mailbox, seq) WHERE content GLOB 'relayed *'"
    assert len(rows.values(relayed)) == EACH * 20
    check_answers(rows)


def heard(worker: Worker, accepted: set[str]) -> None:
    accepted |= {line["message_id"] for line in worker.lines("accepted")}


def check_answers(rows: Rows) -> None:
    """Each answer is its agent's, whole: a stream cut off by a kill is not continued in the middle."""
    for row in rows.all(
        "SELECT m.message_id, q.content AS asked, a.content AS answer, s.agent, m.kind FROM message AS m"
        " JOIN entry AS q ON q.mailbox = m.mailbox AND q.seq = m.seq JOIN session AS s ON s.mailbox = m.mailbox"
        " JOIN entry AS a ON a.mailbox = m.mailbox AND a.message = m.id AND a.role = 'assistant'"
    ):
        asked, answer = row["asked"], row["answer"]
        if row["kind"] == "subagent_result":
            assert answer.startswith("heard "), row["message_id"]
        elif row["agent"] in ("nothing", "flaky"):
            assert answer == f"ok {asked}"
        elif row["agent"] == "stream":
            assert answer == f"{asked} | {'x' * 210} | end"
        elif row["agent"] == "relay":
            assert answer == f"sent {asked.partition(' ')[2]}"
        else:
            assert answer.startswith(("child ses_", "refused too_many_children")), answer
    children = rows.values("SELECT id FROM session WHERE parent IS NOT NULL")
    started = rows.values(
        "SELECT substr(content, 7) FROM entry WHERE role = 'assistant' AND content GLOB 'child ses_*'"
    )
    assert sorted(children) == sorted(started)
    assert len(children) >= 5
