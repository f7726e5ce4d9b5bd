"""Paths and rules inside a transaction: taking a path, moving a session, SetPolicy, Navigate, who may write to whom, handing a turn's user
over.

Not here: what the rules mean (`model/policies`). Invariant: whatever is decided by a path or a rule is decided by their rows in the
transaction that writes it; a refusal comes before the first write.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from ..model.errors import Conflict, PathTaken, UnknownTarget
from ..model.policies import (
    CLIENTS_MOST,
    FRONTIERS_MOST,
    NAVIGATION_KEEP_SECONDS,
    REDIRECT_SECONDS,
    ROOT,
    AgentsMay,
    By,
    Edge,
    Rules,
)
from ..model.sessions import Handoff, SessionKind
from ..ops.deliveries import HandOver
from ..ops.namespace import Navigate, Navigated, SetPolicy
from ..rows import Row, rule_from
from .tx import Tx, encode


def check_free(tx: Tx, scope: int, path: str, by: By, *, mine: str | None = None) -> None:
    """Refuse a path that leads to another session than `mine`, unless an operator gives it away, or that an agent may not create.

    Raises `PathTaken`, `NotPermitted`. Whether a session has the path now is looked at before.
    """
    lead = old_path(tx, scope, path)
    if lead is not None and lead[0] != mine and by is not By.OPERATOR:
        raise PathTaken(f"{path} leads to {lead[2]} since that was renamed; an operator may give it away", path="path")
    if by is By.AGENT:
        rules_of(tx, scope).check_agent(path, AgentsMay.CREATE)


def old_path(tx: Tx, scope: int, path: str) -> Row | None:
    """(session, agent, its path now) of the living session that had this path and gave it up within 30 days."""
    return tx.one("redirect_at", (scope, path, tx.now))


def take_path(tx: Tx, scope: int, path: str) -> None:
    """A path that a session gets leads nowhere else."""
    tx.put("redirect_drop", (scope, path))


def move(tx: Tx, scope: int, session: str, old: str | None, path: str, by: By) -> None:
    """Give a session another path. Raises `Conflict` for the root, `PathTaken`, `NotPermitted`; then nothing is written."""
    if ROOT in (old, path):
        raise Conflict("the root session keeps its path, and no other can have it", path="path")
    if tx.one("session_at_path", (scope, path)) is not None:
        raise PathTaken(f"{path} names another session", path="path")
    check_free(tx, scope, path, by, mine=session)
    if by is By.AGENT and old is not None:
        rules = rules_of(tx, scope)
        for either in (old, path):
            rules.check_agent(either, AgentsMay.RENAME)
    tx.put("redirects_forget", (tx.now,))
    take_path(tx, scope, path)
    if old is not None:
        tx.put("redirect_put", (scope, old, session, tx.now + REDIRECT_SECONDS))
    tx.put("session_move", (path, session))


def rules_of(tx: Tx, scope: int) -> Rules:
    """The rules of a project as they stand in this transaction."""
    found = tx.rules.get(scope)
    if found is None:
        found = tx.rules[scope] = Rules(tuple(map(rule_from, tx.all("policy_rules", (scope,)))))
    return found


def set_policy(tx: Tx, op: SetPolicy) -> Rules:
    """Carry out `SetPolicy`."""
    scope, rule = tx.scope(op.scope, create=True), op.rule
    if rule.empty:
        tx.put("policy_drop", (scope, rule.prefix))
    else:
        values = (rule.edge, rule.agents, _number(rule.handoff), _number(rule.confirm))
        tx.put("policy_put", (scope, rule.prefix, *values))
    tx.rules.pop(scope, None)
    return rules_of(tx, scope)


def navigate(tx: Tx, op: Navigate) -> Navigated:
    """Carry out `Navigate`; forgets clients that have not come back on the way, so their number follows those that do."""
    scope = tx.scope(op.scope)
    wanted = [(session, scope) for session in dict.fromkeys((op.session, *op.also))]
    named: dict[str, int] = dict(tx.each("frontiers_of", wanted))
    if op.session not in named:
        raise UnknownTarget("there is no such session here", path="session")
    current = {**dict(tx.all("frontiers", (scope, FRONTIERS_MOST))), **named}
    # What was noted before stays noted: a session that is not followed any more may have handed over all the same.
    noted = tx.one("navigation_frontiers", (scope, op.principal, op.client))
    before: dict[str, int] = {} if noted is None else json.loads(noted[0])
    older = [item for item in before.items() if item[0] not in current][-FRONTIERS_MOST:]
    frontiers = {**dict(older), **current}
    tx.put("navigations_forget", (tx.now - NAVIGATION_KEEP_SECONDS,))
    tx.put("navigation_put", (scope, op.principal, op.client, op.session, encode(frontiers), tx.now))
    tx.put("navigations_limit", (scope, op.principal, CLIENTS_MOST))
    return Navigated(op.session, frontiers, tx.now)


def check_edge(tx: Tx, scope: int, source: str, target: str, default: Edge) -> None:
    """Refuse what one session would send to another that the project's rules keep it from: the one place that does (NS-4).

    A session and its own children may write to each other. Raises `NotPermitted`, `UnknownTarget`.
    """
    rules = rules_of(tx, scope)
    if rules.all_collaborate(default):
        return
    (own, parent), (other, over) = (_place(tx, scope, session) for session in (source, target))
    if target != parent and source != over:
        rules.check_send(_path(tx, scope, own, parent), _path(tx, scope, other, over), default)


def _path(tx: Tx, scope: int, path: str | None, parent: str | None) -> str | None:
    """The path whose rules a session has: its own, or, for a child without one, that of the session it was started for."""
    while path is None and parent is not None:
        path, parent = _place(tx, scope, parent)
    return path


def _place(tx: Tx, scope: int, session: str) -> tuple[str | None, str | None]:
    found = tx.one("session_place", (session, scope))
    if found is None:
        raise UnknownTarget("there is no such session here", path="session")
    return found[0], found[1]


def hand_over(tx: Tx, scope: int, asked: HandOver) -> dict[str, Any]:
    """Where a turn hands its user over to, by the rows of this moment: {path, channel_id, confirm?}. Raises `UnknownTarget`, `NotPermitted`."""
    found = tx.one("session_at_path", (scope, asked.path))
    if found is None or found[0] != asked.channel_id or found[2] == SessionKind.INTERNAL:
        raise UnknownTarget("no session has this path", path="path")
    rules = rules_of(tx, scope)
    rules.check_handoff(asked.path)
    target = {"path": asked.path, "channel_id": asked.channel_id}
    return {**target, "confirm": True} if rules.confirm(asked.path) else target


def note_handoff(tx: Tx, mailbox: int, turn: str, handoff: Handoff) -> None:
    """Remember what the running turn has handed over to: the last one is its result."""
    tx.put("mailbox_handoff", (encode({"turn": turn, **handoff_data(handoff)}), mailbox))


def noted_handoff(text: str | None, turn: str) -> Handoff | None:
    """What was remembered for a mailbox, if it is of this turn."""
    if text is None:
        return None
    noted: dict[str, Any] = json.loads(text)
    return Handoff(**noted) if noted.pop("turn") == turn else None


def handoff_data(handoff: Handoff) -> dict[str, Any]:
    """{path, channel_id, event_id, confirm?}"""
    return {name: value for name, value in attrs.asdict(handoff).items() if name != "confirm" or value}


def _number(flag: bool | None) -> int | None:
    return None if flag is None else int(flag)
