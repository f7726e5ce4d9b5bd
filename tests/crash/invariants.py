"""What must hold of the rows of a store, however often its processes were killed: at any moment, and once all work is done.

Here: two functions that ask the database itself. Not here: what a single test expects beyond that. Each line of a result is a violation.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from callboard.tests.crash.rows import Rows

AT_REST = ("holder", "head", "due", "nonce", "stop_at", "stuck")
TERMINAL = ("turn.completed", "turn.failed", "turn.stopped")


def check(rows: Rows) -> None:
    """Fail with all that is wrong with a store in which nothing is left to do."""
    at_rest = [*_at_rest(rows), *_messages(rows), *_turns(rows), *_children(rows), *_handoffs(rows)]
    _fail_with([*rows.damage(), *_counters(rows), *_order(rows), *at_rest])


def check_any_time(rows: Rows) -> None:
    """Fail with all that is wrong with a store whose process has just been killed: whatever is open has an owner and a deadline."""
    _fail_with([*rows.damage(), *_counters(rows), *_order(rows), *_owned(rows), *_once(rows)])


def _fail_with(wrong: list[str]) -> None:
    assert not wrong, "\n".join(wrong[:40])


def _at_rest(rows: Rows) -> list[str]:
    """No lease left, nothing due, nothing counted as open."""
    wrong: list[str] = []
    for box in rows.all("SELECT * FROM mailbox"):
        left = {name: box[name] for name in AT_REST if box[name] is not None}
        if left or box["depth"] or box["taken"]:
            wrong.append(f"{box['recipient']}: not at rest: {left}, depth {box['depth']}, taken {box['taken']}")
    return wrong


def _owned(rows: Rows) -> list[str]:
    """Every open message will be looked at again: its mailbox is due, because it is held, waits for its time, or is to be claimed now."""
    wrong: list[str] = []
    for box in rows.all(
        "SELECT m.*, s.deleted_at, s.child_state, count(e.id) AS open, count(*) FILTER (WHERE e.wakes = 1) AS waking,"
        " count(*) FILTER (WHERE e.status = 'processing') AS processing,"
        " count(*) FILTER (WHERE e.id = m.head AND e.status = 'processing') AS running"
        " FROM mailbox AS m LEFT JOIN session AS s ON s.mailbox = m.id"
        " LEFT JOIN message AS e ON e.mailbox = m.id AND e.status IN ('pending', 'processing')"
        " GROUP BY m.id, s.deleted_at, s.child_state"
    ):
        found = {
            name: box[name] for name in ("holder", "head", "due", "depth", "taken", "open", "waking", "processing")
        }
        held, claimed, deleted = box["holder"] is not None, box["head"] is not None, box["deleted_at"] is not None
        checks = {
            "open messages are counted": box["depth"] == box["open"],
            "due exactly if something can be done": (box["due"] is not None) == (box["waking"] > 0),
            "a holder has a head": claimed or not held,
            "the head is running": box["running"] == claimed,
            "what is processing is of the turn": box["processing"] == (box["taken"] if claimed else 0),
            "nothing is open after the end of its session": not (deleted and box["open"]),
            "a running child has its task": box["child_state"] != "running" or box["open"] > 0,
        }
        wrong += [f"{box['recipient']}: not so: {text}: {found}" for text, holds in checks.items() if not holds]
    return wrong + [
        f"question {row[0]} has no end" for row in rows.all("SELECT id FROM approval WHERE expires IS NULL")
    ]


def _once(rows: Rows) -> list[str]:
    """A marker stands for exactly one delivered message, and only for such."""
    return [
        f"{row['uid']}: {row['status']} with {row['markers']} markers"
        for row in rows.all(
            "SELECT e.uid, e.status, count(k.id) AS markers FROM message AS e"
            " LEFT JOIN marker AS k ON k.mailbox = e.mailbox AND k.message = e.id GROUP BY e.id"
        )
        if row["markers"] != (row["status"] == "delivered")
    ]


def _counters(rows: Rows) -> list[str]:
    """Numbers of events and entries are dense, and the counters count what is there."""
    wrong: list[str] = []
    for box in rows.all(
        "SELECT m.*, (SELECT count(*) FROM event AS e WHERE e.mailbox = m.id) AS events,"
        " (SELECT max(n) FROM event AS e WHERE e.mailbox = m.id) AS top,"
        " (SELECT count(*) FROM entry AS e WHERE e.mailbox = m.id) AS entries,"
        " (SELECT max(seq) FROM entry AS e WHERE e.mailbox = m.id) AS last FROM mailbox AS m"
    ):
        # Unique indexes forbid a number twice, so as many rows as the highest number means dense from 1.
        if not box["events"] == (box["top"] or 0) == box["last_event"]:
            wrong.append(f"{box['recipient']}: events {box['events']}, top {box['top']}, counter {box['last_event']}")
        if not box["entries"] == (box["last"] or 0) == box["last_seq"]:
            wrong.append(f"{box['recipient']}: entries {box['entries']}, top {box['last']}, counter {box['last_seq']}")
    return wrong


def _messages(rows: Rows) -> list[str]:
    """Every message is final; delivered means one marker, failed means none; each has its own entry."""
    markers = Counter(rows.values("SELECT message FROM marker"))
    own = Counter(
        rows.values(
            "SELECT m.id FROM message AS m JOIN entry AS e ON e.mailbox = m.mailbox AND e.seq = m.seq"
            " WHERE e.message = m.id AND e.role <> 'assistant'"
        )
    )
    entries = Counter(rows.values("SELECT message FROM entry"))
    wrong: list[str] = []
    for row in rows.all("SELECT * FROM message"):
        key, status = row["id"], row["status"]
        answers = entries[key] - own[key]
        name = f"{row['message_id'] or row['uid']} ({status} {row['outcome'] or row['reason']})"
        if status not in ("delivered", "failed"):
            wrong.append(f"{name}: not final")
        if markers[key] != (status == "delivered"):
            wrong.append(f"{name}: {markers[key]} markers")
        if own[key] != 1 or answers > 1 or (status == "failed" and answers):
            wrong.append(f"{name}: {own[key]} entries of its own, {answers} answers")
    return wrong


def _turns(rows: Rows) -> list[str]:
    """Each turn has started once, its attempts are numbered and closed, it ends once and says nothing afterwards."""
    events: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for turn, kind, data in rows.all("SELECT turn, kind, data FROM event WHERE turn IS NOT NULL ORDER BY mailbox, n"):
        events[turn].append((kind, json.loads(data)))
    answered = set(rows.values("SELECT message FROM entry WHERE role = 'assistant'"))
    wrong: list[str] = []
    for row in rows.all("SELECT m.*, k.turn, k.attempt FROM message AS m LEFT JOIN marker AS k ON k.message = m.id"):
        turn = "turn_" + row["uid"].removeprefix("msg_")
        mine = events.pop(turn, [])
        if row["turn"] not in (None, turn):  # it was part of another message's turn
            mine = [(kind, data) for kind, data in mine if kind in TERMINAL]
            wrong += [f"{turn}: has an end although {row['turn']} consumed it"] if mine else []
            continue
        kinds = [kind for kind, _ in mine]
        count = Counter(kinds)
        ends = sum(count[kind] for kind in TERMINAL)
        if ends != 1 or kinds[-1] not in TERMINAL:
            wrong.append(f"{turn}: {ends} ends, last event {kinds[-1:]}")
        attempts = [data["attempt"] for kind, data in mine if kind == "attempt.claimed"]
        given_up = [data for kind, data in mine if kind == "attempt.relinquished"]
        claims = row["claims"]
        if attempts != list(range(1, claims + 1)) or count["turn.started"] != min(claims, 1):
            wrong.append(f"{turn}: attempts {attempts}, claims {claims}, started {count['turn.started']}")
        lost = [data["attempt"] for data in given_up]
        if lost != attempts[: len(lost)] or claims - len(lost) not in (0, 1):
            wrong.append(f"{turn}: relinquished {lost} of {attempts}")
        if row["takeovers"] != sum(data["cause"] == "takeover" for data in given_up):
            wrong.append(f"{turn}: {row['takeovers']} takeovers, relinquished {given_up}")
        if row["status"] == "delivered" and row["attempt"] != claims:
            wrong.append(f"{turn}: committed by attempt {row['attempt']} of {claims}")
        if (row["outcome"] == "answered") != (row["id"] in answered) and row["outcome"] != "stopped":
            wrong.append(f"{turn}: {row['outcome']}, but its answer says otherwise")
    return wrong + [f"{turn}: events of no message" for turn in events]


def _order(rows: Rows) -> list[str]:
    """What was consumed, and its answers, stand in the order of acceptance for each target and mode (INB-6)."""
    consumed: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for mailbox, wakes, steers, message in rows.all(
        "SELECT e.mailbox, e.wakes, e.steers, e.id FROM marker AS k JOIN message AS e ON e.id = k.message ORDER BY k.id"
    ):
        consumed[mailbox, wakes, steers].append(message)
    asked: dict[int, list[int]] = defaultdict(list)
    for mailbox, seq in rows.all(
        "SELECT e.mailbox, m.seq FROM entry AS e JOIN message AS m ON m.id = e.message"
        " WHERE e.role = 'assistant' ORDER BY e.mailbox, e.seq"
    ):
        asked[mailbox].append(seq)
    wrong = [f"mailbox and mode {box}: consumed {ids}" for box, ids in consumed.items() if ids != sorted(ids)]
    return wrong + [f"mailbox {box}: answered {seqs}" for box, seqs in asked.items() if seqs != sorted(seqs)]


def _handoffs(rows: Rows) -> list[str]:
    """Each recorded call of connect_user has one event, directly behind its result; the last one of a turn is the turn's result (HND-2, HND-3)."""
    pairs: dict[tuple[int, int], tuple[str, str, dict[str, Any]]] = {}
    handed: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    for mailbox, n, turn, kind, text in rows.all(
        "SELECT mailbox, n, turn, kind, data FROM event WHERE kind IN ('tool.result', 'turn.handoff') ORDER BY mailbox, n"
    ):
        data = json.loads(text)
        if kind == "tool.result":
            if data["tool"] == "connect_user" and "ok" in data["result"]:
                pairs[mailbox, n + 1] = turn, data["action_id"], data["result"]["ok"]
            continue
        own, _, result = pairs.get((mailbox, n), ("", "", {}))
        handed[turn] = {name: data[name] for name in ("path", "channel_id", "confirm") if name in data} | {
            "event_id": n
        }
        if own != turn or any(result.get(name) != data[name] for name in ("path", "channel_id")):
            wrong.append(f"{turn}: handoff {n} to {data['path']} is not behind its result")
    events = rows.one("SELECT count(*) FROM event WHERE kind = 'turn.handoff'")[0]
    actions = Counter(action for _, action, _ in pairs.values())
    if not events == len(pairs) == len(actions):
        wrong.append(f"{events} handoffs of {len(pairs)} results of {len(actions)} calls")
    for turn, text in rows.all("SELECT turn, data FROM event WHERE kind IN ('turn.completed', 'turn.stopped')"):
        if json.loads(text).get("handoff") != handed.get(turn):
            wrong.append(
                f"{turn}: its result hands over to {json.loads(text).get('handoff')}, and not to {handed.get(turn)}"
            )
    for uid, text in rows.all(
        "SELECT m.uid, e.handoff FROM entry AS e JOIN message AS m ON m.id = e.message WHERE e.role = 'assistant'"
    ):
        found = None if text is None else json.loads(text)
        if found != handed.get("turn_" + uid.removeprefix("msg_")):
            wrong.append(f"{uid}: its answer hands over to {found}")
    return wrong


def _children(rows: Rows) -> list[str]:
    """Every child has ended and its parent was told once."""
    wrong: list[str] = []
    for child, state, told in rows.all(
        "SELECT s.id, s.child_state, (SELECT count(*) FROM message AS m JOIN session AS p ON p.mailbox = m.mailbox"
        " WHERE p.id = s.parent AND m.kind = 'subagent_result' AND m.message_id = 'subagent-result-' || s.id)"
        " FROM session AS s WHERE s.parent IS NOT NULL"
    ):
        if state == "running" or told != 1:
            wrong.append(f"child {child}: {state}, its parent was told {told} times")
    return wrong
