"""What must hold of the rows when processes of a fleet were killed and paused under load, beyond what holds of any store (`invariants`).

Each function returns what is wrong, a line each. Not here: the load, measuring (`takeovers` says how late each one was).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from callboard.tests.crash.fleet import Blow
from callboard.tests.crash.fleet_load import Told
from callboard.tests.crash.fleet_plan import FAILED, PLACES, wrong_answer
from callboard.tests.crash.rows import Rows

ENDS = ("turn.completed", "turn.failed", "turn.stopped", "attempt.relinquished")


def promised(rows: Rows, told: Told) -> Iterator[str]:
    """Zero lost: what was accepted is there in its place, nothing else is, and all of it ended as it had to."""
    found = {row["message_id"]: row for row in rows.all("SELECT * FROM message WHERE sender_kind = 'member'")}
    for message_id, seq in told.accepted.items():
        row = found.get(message_id)
        if row is None:
            yield f"{message_id}: was accepted, and is not there"
        elif row["seq"] != seq:
            yield f"{message_id}: has place {row['seq']}, and was told {seq}"
    yield from (f"{message_id}: is there, and nobody was told so" for message_id in found.keys() - told.accepted.keys())
    for message_id, row in found.items():
        name = message_id.partition(".")[0]
        ended = (
            ("failed", "retries_used") if name in FAILED else ("delivered", "stopped" if name == "slow" else "answered")
        )
        if (row["status"], row["outcome"] or row["reason"]) != ended:
            yield f"{message_id}: {row['status']} {row['outcome'] or row['reason']}, not {ended}"


def answers(rows: Rows) -> Iterator[str]:
    """Each person's message has the one answer that its agent gives, whole: a stream that was cut off is not continued in the middle."""
    paths = {
        row["mailbox"]: row["path"] for row in rows.all("SELECT mailbox, path FROM session WHERE path IS NOT NULL")
    }
    answered: dict[int, list[str]] = defaultdict(list)
    for message, content in rows.all("SELECT message, content FROM entry WHERE role = 'assistant'"):
        answered[message].append(content)
    for row in rows.all(
        "SELECT m.id, m.message_id, m.mailbox, t.content FROM message AS m JOIN entry AS t ON t.mailbox = m.mailbox AND t.seq = m.seq"
        " WHERE m.sender_kind = 'member' AND m.status = 'delivered'"
    ):
        given = answered[row["id"]]
        name = paths[row["mailbox"]].split("/")[1]
        if name == "slow" and not given:
            continue  # it was stopped before it had said anything
        if len(given) != 1 or wrong_answer(name, row["content"], given[0]):
            yield f"{row['message_id']}: answered {[text[:60] for text in given]}"


def sent_once(rows: Rows) -> Iterator[str]:
    """What turns have sent is there once for each turn that was committed."""
    relayed = Counter(
        rows.values(
            "SELECT s.path || ' ' || t.content FROM message AS m JOIN entry AS t ON t.mailbox = m.mailbox AND t.seq = m.seq"
            " JOIN session AS s ON s.mailbox = m.mailbox WHERE m.kind = 'agent_message' AND t.content LIKE 'relayed %'"
        )
    )
    asked = Counter(
        rows.values(
            "SELECT t.content FROM message AS m JOIN entry AS t ON t.mailbox = m.mailbox AND t.seq = m.seq"
            " WHERE m.message_id LIKE 'relay.%'"
        )
    )
    yield from (f"relayed {n} times, not {asked[text]}: {text}" for text, n in relayed.items() if n != asked[text])
    yield from (f"never relayed: {text}" for text in asked.keys() - relayed.keys())
    tinkered = rows.one("SELECT count(*) FROM message WHERE message_id LIKE 'tinker.%'")[0]
    helped = rows.one(
        "SELECT count(*) FROM message AS m JOIN session AS s ON s.mailbox = m.mailbox WHERE s.path = '/helper'"
    )[0]
    if helped != 2 * tinkered:
        yield f"the helper got {helped} messages of {tinkered} turns that send two each"


def external_once(rows: Rows) -> Iterator[str]:
    """A tool that can't be repeated ran at most once for each of its actions, in whichever process."""
    rang = Counter(line["action"] for line in rows.side() if line["tool"] == "ring")
    yield from (f"rang {n} times for {action}" for action, n in rang.items() if n > 1)


def one_turn_at_a_time(rows: Rows) -> Iterator[str]:
    """The fenced rows of each mailbox: an attempt is claimed when the one before has ended, and nothing but its own holder's comes between.

    Times never go back, and an epoch has one end: a marker's or an attempt's.
    """
    running: dict[int, tuple[str, int] | None] = {}
    last: dict[int, float] = {}
    for mailbox, n, kind, turn, data, at in rows.all(
        "SELECT mailbox, n, kind, turn, data, at FROM event ORDER BY mailbox, n"
    ):
        where = f"mailbox {mailbox}, event {n} ({kind})"
        if at < last.get(mailbox, 0.0):
            yield f"{where}: is older than the one before"
        last[mailbox] = at
        if turn is None:
            continue
        now, own = running.get(mailbox), (turn, json.loads(data)["attempt"])
        if kind == "turn.started":
            if now is not None:
                yield f"{where}: {now} has not ended"
        elif kind == "attempt.claimed":
            if now is not None:
                yield f"{where}: {now} is held"
            running[mailbox] = own
        elif now != own and not (kind == "turn.failed" and now is None):
            yield f"{where}: is of {own}, and the holder's is {now}"
        elif kind in ENDS:
            running[mailbox] = None
    ends: dict[int, list[int]] = defaultdict(list)
    for mailbox, epoch in rows.all(
        "SELECT DISTINCT mailbox, epoch FROM marker UNION ALL SELECT mailbox, epoch FROM attempt"
    ):
        ends[mailbox].append(epoch)
    yield from (
        f"mailbox {box}: an epoch ended twice" for box, epochs in ends.items() if len(set(epochs)) < len(epochs)
    )


def followers(rows: Rows, told: Told) -> Iterator[str]:
    """Whoever followed a session has seen each of its events once, in order."""
    boxes = {row["id"]: row["mailbox"] for row in rows.all("SELECT id, mailbox FROM session")}
    for (member, session), seen in told.seen.items():
        there = rows.values("SELECT n FROM event WHERE mailbox = ? ORDER BY n", boxes[session])
        if seen != there:
            missing, extra = sorted({*there} - {*seen})[:5], [n for n, times in Counter(seen).items() if times > 1][:5]
            yield f"follower of {session} on {member}: saw {len(seen)} of {len(there)}; missing {missing}, twice {extra}"


@attrs.frozen
class Takeover:
    """A turn that was taken from `holder` at `at`. `late` is seconds since that process was struck; None: it was not."""

    mailbox: int
    holder: str
    at: float
    late: float | None


def takeovers(rows: Rows, blows: Sequence[Blow]) -> list[Takeover]:
    """All takeovers, each with how long after the blow to its holder it came."""
    holders: dict[tuple[str, int], tuple[str, float]] = {}
    found: list[Takeover] = []
    for mailbox, kind, turn, data, at in rows.all(
        "SELECT mailbox, kind, turn, data, at FROM event WHERE kind IN ('attempt.claimed', 'attempt.relinquished') ORDER BY mailbox, n"
    ):
        told: dict[str, Any] = json.loads(data)
        if kind == "attempt.claimed":
            holders[turn, told["attempt"]] = told["holder"], at
        elif told["cause"] == "takeover":
            holder, since = holders[turn, told["attempt"]]
            struck = [blow.at for blow in blows if f".{blow.pid}." in holder and since <= blow.at <= at]
            found.append(Takeover(mailbox, holder, at, at - max(struck) if struck else None))
    return found


def returns(rows: Rows, blows: Sequence[float]) -> list[float]:
    """How many seconds after each blow the next turn was claimed; a blow after which there was nothing to do counts for nothing."""
    claims = sorted(rows.values("SELECT at FROM event WHERE kind = 'attempt.claimed'"))
    return [min(at - blow for at in claims if at >= blow) for blow in blows if claims and claims[-1] >= blow]


def others_turns(rows: Rows, told: Told, names: dict[str, set[int]]) -> int:
    """How many turns that followers saw were run by other processes than theirs."""
    boxes = {row["id"]: row["mailbox"] for row in rows.all("SELECT id, mailbox FROM session")}
    seen = 0
    for member, session in told.seen:
        claims = rows.values("SELECT data FROM event WHERE mailbox = ? AND kind = 'attempt.claimed'", boxes[session])
        ours = tuple(f".{pid}." for pid in names[member])
        seen += sum(not any(pid in json.loads(data)["holder"] for pid in ours) for data in claims)
    return seen


def coverage(rows: Rows) -> Iterator[str]:
    """The load was a load: every kind of session has had turns."""
    busy = set(rows.values("SELECT DISTINCT s.path FROM session AS s JOIN marker AS k ON k.mailbox = s.mailbox"))
    idle = sorted(path for path in PLACES if path not in busy and path.split("/")[1] not in FAILED)
    if idle:
        yield f"never had a turn: {', '.join(idle)}"
