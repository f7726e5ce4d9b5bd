"""Rows ↔ values. Lives here: how the columns of the reading statements become values of the model. No SQL, no decisions."""

from __future__ import annotations

import json
from typing import Any

from .model.access import Carrier, Credential, Grant, Kind, Member, Standing
from .model.addresses import Scope, Sender
from .model.events import Event
from .model.ids import turn_id
from .model.messages import MessageView
from .model.policies import AgentsMay, Edge, Rule
from .model.sessions import ACTIVE, IDLE, ChildState, Entry, Handoff, Session, SessionKind
from .model.states import Outcome, Reason, Status

Row = tuple[Any, ...]


def session_from(row: Row) -> Session:
    """A session from the columns that `session_by_id` and its kin select."""
    return Session(
        id=row[0],
        scope=Scope(row[1], row[2]),
        kind=SessionKind(row[3]),
        agent=row[4],
        path=row[5],
        title=row[6],
        parent=row[7],
        status=ACTIVE if row[11] or row[8] == ChildState.RUNNING else IDLE,
        updated=row[10],
        created=row[9],
        child_state=None if row[8] is None else ChildState(row[8]),
        newest_event=row[12],
        newest_seq=row[13],
    )


def message_from(row: Row) -> MessageView:
    """A message from the columns that `message_named` and `inbox_list` select."""
    stages = {"accepted": row[11], "leased": row[12], "surfaced": row[13], "committed": row[14]}
    return MessageView(
        id=row[0],
        message_id=row[1] or row[0],
        session=row[2],
        sender=Sender(row[3], row[4], row[5]),
        kind=row[6],
        status=Status(row[7]),
        outcome=None if row[8] is None else Outcome(row[8]),
        reason=None if row[9] is None else Reason(row[9]),
        turn_id=row[35] or turn_id(row[0]),
        seq=row[10],
        stages={name: at for name, at in stages.items() if at is not None},
        attempt=row[15],
        attempts=row[16],
        max_attempts=row[17],
        takeovers=row[18],
        available_at=row[19],
        created_at=row[11],
        updated_at=row[20],
        content=row[21] or "",
        chain=row[22],
        hops=row[23],
        transport=row[24],
        destination_peer=row[25],
        payload=decoded_payload(row[26]),
        last_error=row[27],
        reply_to=row[28],
        requeued_from=row[29],
        lease_holder=row[31],
        lease_until=row[32],
        lease_epoch=row[33],
        pruned_at=row[36],
    )


def entry_from(row: Row) -> Entry:
    """An entry from the columns that `transcript` selects; an answer's sender is its session's agent."""
    if row[4] is None and row[12] is not None:
        # Its message is gone for good: what it showed was written down beside the text (`pruning`).
        row = (*row[:4], *json.loads(row[12]), *row[10:])
    named = row[5] or row[4]
    if row[1] == "assistant":
        sender = Sender(row[10], "session", row[11])
        handoff = None if row[13] is None else Handoff(**json.loads(row[13]))
        return Entry(row[0], row[1], row[2], sender, row[3], Status.DELIVERED, in_reply_to=named, handoff=handoff)
    return Entry(
        row[0], row[1], row[2], Sender(row[7], row[8], row[9]), row[3], row[6] or Status.DELIVERED, message_id=named
    )


def event_from(session: str, row: Row) -> Event:
    """An event from the columns that `events_after` selects; the text of its entry joins its data."""
    data = json.loads(row[3])
    if row[5] is not None:
        data["content"] = row[5]
    return Event(session, row[0], row[1], data, row[4], row[2])


def decoded_payload(text: str | None) -> dict[str, Any] | None:
    """The payload of a row as readers see it; None if there is none or it can't be decoded."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def rule_from(row: Row) -> Rule:
    """A rule from the columns that `policy_of` and `policy_rules` select."""
    prefix, edge, agents, handoff, confirm = row
    return Rule(
        prefix,
        None if edge is None else Edge(edge),
        None if agents is None else AgentsMay(agents),
        None if handoff is None else bool(handoff),
        None if confirm is None else bool(confirm),
    )


def member_from(row: Row) -> Member:
    """A member from the columns that `members_list` selects."""
    return Member(row[0], _projects(row[1]), row[2], row[3])


def credential_from(row: Row) -> Credential:
    """A credential from the columns that `token_row` and `tokens_list` select."""
    grant = Grant(Kind(row[2]), row[3], bool(row[4]))
    return Credential(row[0], Carrier(row[1]), grant, Scope(row[5], row[6]), *row[7:12])


def standing_from(row: Row) -> Standing:
    """What a valid credential may do, from the columns that `standing_by_digest` selects."""
    grant, home = Grant(Kind(row[2]), row[3], bool(row[4])), Scope(row[5], row[6])
    projects = None if grant.member is None else _projects(row[10])
    if grant.bound:
        projects = tuple(name for name in (home.project,) if projects is None or name in projects)
    return Standing(row[0], Carrier(row[1]), grant, home, row[7], row[8], row[9], projects)


def _projects(names: str | None) -> tuple[str, ...]:
    # No project's name has a comma.
    return tuple(sorted(names.split(","))) if names else ()
