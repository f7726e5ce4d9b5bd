"""What the scripted day must have come to, however often its process was killed. Not here: what holds of any store (`invariants`)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from callboard.tests.crash.rows import Rows

PARTIAL = "partial " + "." * 200
CROWD = ("ann", "bea", "cem")
ANSWERED = ("delivered", "answered", None)
FAILED = ("failed", None)


def check_day(rows: Rows, lives: int) -> None:
    """Fail if something was left out, done twice or done wrong. `lives` bounds what kills may have cost."""
    states = {row["message_id"] or row["uid"]: _state(row) for row in rows.all("SELECT * FROM message")}
    for message in (
        *(
            "m-go",
            "m-notices",
            "m-flaky-1",
            "m-flaky-2",
            "m-relay-1",
            "m-relay-2",
            "m-family",
            "m-family-2",
            "m-errand-1",
            "m-errand-2",
        ),
        *("m-steer-1", "m-steer-2", "m-steer-3", "m-pause-1", "m-tinker", "m-stream", "m-asking", "m-all"),
        *("m-usher-1", "m-usher-2"),
        *(f"m-{name}-{n}" for name in CROWD for n in range(3)),
    ):
        assert states[message] == ANSWERED, f"{message}: {states[message]}"
    assert states["m-slow"] == ("delivered", "stopped", None), states["m-slow"]
    assert states["m-doomed"] == ("failed", None, "target_deleted"), states["m-doomed"]
    assert states["m-pause-2"] in (ANSWERED, ("failed", None, "cancelled")), states["m-pause-2"]
    _check_costs(rows, lives)
    _check_answers(rows)
    _check_sent(rows)
    _check_children(rows)
    _check_handoffs(rows)
    _check_side(rows.side())


def _state(row: Any) -> tuple[str, str | None, str | None]:
    return row["status"], row["outcome"], row["reason"]


def _check_costs(rows: Rows, lives: int) -> None:
    """Attempts are failures of agents alone; takeovers are lives that were lost."""
    for row in rows.all(
        "SELECT e.*, s.agent FROM message AS e JOIN session AS s ON s.mailbox = e.mailbox WHERE e.attempts > 0"
    ):
        known = {"m-flaky-1": 1}.get(row["message_id"], 5 if row["agent"] == "failing" else 0)
        assert row["attempts"] == known, f"{row['message_id']}: {row['attempts']} attempts, {known} are the agent's"
    assert rows.message("m-flaky-1")["attempts"] == 1
    worst = max(rows.values("SELECT takeovers FROM message"))
    assert worst < lives, f"{worst} takeovers in {lives} lives"


def _check_answers(rows: Rows) -> None:
    expected = {
        "m-slow": PARTIAL,
        "m-flaky-1": "ok fail once",
        "m-flaky-2": "ok go",
        "m-relay-1": "sent try",
        "m-relay-2": "sent after",
        "m-errand-1": "sent wait",
        "m-errand-2": "sent after",
        "m-pause-1": "paused for first",
        "m-stream": f"go | {'x' * 210} | end",
        "m-asking": "denied",
        "m-all": "ok we all agree",
    }
    for message, answer in expected.items():
        assert rows.answers(message) == [answer], f"{message}: answered {rows.answers(message)}"
    order = rows.values(
        "SELECT content FROM entry JOIN session USING (mailbox) WHERE path = '/crowd' AND role = 'user' ORDER BY seq"
    )
    for name in CROWD:
        own = [text for text in order if text.startswith(name)]
        assert own == [f"{name} {n}" for n in range(3)], f"{name}'s messages stand as {own}"


def _check_sent(rows: Rows) -> None:
    """What turns have sent is there once, and who sent what failed has one notice about it."""
    sent = Counter(
        (row["content"], row["status"], row["reason"])
        for row in rows.all(
            "SELECT t.content, e.status, e.reason FROM message AS e JOIN entry AS t ON t.mailbox = e.mailbox AND t.seq = e.seq"
            " WHERE e.kind = 'agent_message'"
        )
    )
    expected = {
        ("from the guide", "delivered", None): 1,
        ("from the tinker", "delivered", None): 2,
        ("after", "delivered", None): 2,
        ("a task", "delivered", None): 1,
        ("answer", "delivered", None): 1,
        ("wait for this", "failed", "dropped"): 1,
        ("wait", "failed", "target_deleted"): 1,
        ("wait", "failed", "expired"): 1,
        ("try", "failed", "retries_used"): 2,
    }
    assert sent == expected, f"sent {sent - Counter(expected)}, not sent {Counter(expected) - sent}"
    told = Counter(
        rows.values(
            "SELECT s.path FROM message AS e JOIN session AS s ON s.mailbox = e.mailbox WHERE e.kind = 'notice'"
        )
    )
    assert told == {"/guide": 1, "/relay": 1, "/errand": 1, "/family": 2}, f"notices {told}"


def _check_children(rows: Rows) -> None:
    ends = Counter(
        (row["path"], row["child_state"])
        for row in rows.all("SELECT p.path, s.child_state FROM session AS s JOIN session AS p ON p.id = s.parent")
    )
    expected = {("/guide", "completed"): 1, ("/family", "completed"): 1, ("/family", "failed"): 2}
    assert ends == expected, f"children {ends}"


def _check_handoffs(rows: Rows) -> None:
    """However many processes it took, each handoff is one event (`invariants` has the rest)."""
    handed = rows.values(
        "SELECT e.data FROM event AS e JOIN session AS s ON s.mailbox = e.mailbox"
        " WHERE s.path = '/usher' AND e.kind = 'turn.handoff' ORDER BY e.n"
    )
    paths = [json.loads(data)["path"] for data in handed]
    assert paths == ["/helper", "/guide"], f"handed over to {paths}"


def _check_side(done: list[dict[str, Any]]) -> None:
    """What tools did outside the store, by their classes."""
    booked = Counter(line["action"] for line in done if line["tool"] == "booked")
    assert len(booked) == 3, f"booked {booked}"
    assert set(booked.values()) == {1}, f"booked {booked}"
    rang = Counter(line["action"] for line in done if line["tool"] == "ring")
    assert all(times == 1 for times in rang.values()), f"rang {rang}"
    assert len(rang) <= 3, f"rang {rang}"
    assert not [line for line in done if line["tool"] == "charge"], "charged without leave"
