"""Values of the model as the JSON that the contract promises.

Lives here: one function a shape, shared by HTTP, websocket and events. Not here: who may see what, what is asked for.

Invariant: these shapes are fixed from outside. An optional field that does not apply is left out; times are RFC 3339 UTC with milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from starlette.responses import Response

from ...storage.model.access import Credential, Member
from ...storage.model.addresses import Sender
from ...storage.model.events import Event
from ...storage.model.messages import MessageView, Receipt
from ...storage.model.policies import ROOT, Edge, Rules
from ...storage.model.sessions import Entry, Handoff, Session
from ...storage.model.states import Status
from ...storage.ops.upkeep import Pruned
from ...storage.reads import AttemptView
from ...storage.wire import rfc3339
from ..namespace.directory import Place
from ..ports import TreeNode
from ..tail import Resync

_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class JsonResponse(Response):
    """A response whose body is JSON. Credentials and messages must not stay in caches."""

    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(dump(value), status, {"Cache-Control": "no-store", **(headers or {})})


def dump(value: Any) -> bytes:
    """JSON as UTF-8. Half a surrogate pair, which UTF-8 can't say, stays the JSON escape that it came as."""
    return _text(value).encode("utf-8", "backslashreplace")


def sse(event: Event | Resync) -> bytes:
    """An event of a stream. ASCII, as several clients take U+2028 and its like for ends of lines."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), _ascii(event.data).encode())


def session_view(session: Session, *, asked: str | None = None) -> dict[str, Any]:
    """{id, path, agent, title, kind, status, parent, updated, moved_from?}; `asked` is the path by which it was found."""
    moved = {} if asked in (None, session.path) else {"moved_from": asked}
    return {
        **moved,
        "id": session.id,
        "path": session.path,
        "agent": session.agent,
        "title": session.title,
        "kind": session.kind,
        "status": session.status,
        "parent": session.parent,
        "updated": rfc3339(session.updated),
    }


def receipt_view(receipt: Receipt) -> dict[str, Any]:
    """{message_id, created, status, seq}"""
    return {
        "message_id": receipt.message_id,
        "created": receipt.created,
        "status": receipt.status,
        "seq": receipt.seq,
    }


def sender_view(sender: Sender) -> dict[str, Any]:
    """{id, label, kind}"""
    return {"id": sender.id, "label": sender.label, "kind": sender.kind}


def entry_view(entry: Entry) -> dict[str, Any]:
    """{seq, role, content, sender, message_id?, in_reply_to?, state, at, handoff?: {path, channel_id, event_id, confirm?}}"""
    view = {
        "seq": entry.seq,
        "role": entry.role,
        "content": entry.content,
        "sender": sender_view(entry.sender),
        "message_id": entry.message_id,
        "in_reply_to": entry.in_reply_to,
        "state": entry.state,
        "at": rfc3339(entry.at),
        "handoff": None if entry.handoff is None else handoff_view(entry.handoff),
    }
    return _without_absent(view)


def handoff_view(handoff: Handoff) -> dict[str, Any]:
    """{path, channel_id, event_id, confirm?}; `event_id`: its event `turn.handoff`; `confirm` true: the user is to be asked first"""
    view: dict[str, Any] = {"path": handoff.path, "channel_id": handoff.channel_id, "event_id": handoff.event_id}
    return {**view, "confirm": True} if handoff.confirm else view


def place_view(place: Place) -> dict[str, Any]:
    """{path, session, agent, purpose, title, confirm}"""
    return attrs.asdict(place)


def rules_view(rules: Rules, default: Edge) -> dict[str, Any]:
    """{rules: [{prefix, edge?, agents?, handoff?, confirm?}], project: {edge, agents, handoff, confirm}}; `project`: what holds at `/`"""
    return {
        "rules": [_without_absent(attrs.asdict(rule)) for rule in rules.rules],
        "project": {
            "edge": rules.edge(None, default),
            "agents": rules.agents_may(ROOT),
            "handoff": rules.handoff(ROOT),
            "confirm": rules.confirm(ROOT),
        },
    }


def message_view(message: MessageView) -> dict[str, Any]:
    """{id, message_id, session, status, outcome?, turn_id, stages, attempts, takeovers, last_error?} and the rest of the row (INB-3).

    `outcome` is answered, stopped, no_visible_reply or failed, with `reason`; `attempt` counts claims, `attempts` failures of the agent.
    """
    failed = message.status is Status.FAILED
    view = {
        "id": message.id,
        "message_id": message.message_id,
        "session": message.session,
        "status": message.status,
        "outcome": "failed" if failed else message.outcome,
        "reason": message.reason,
        "turn_id": message.turn_id,
        "stages": {name: rfc3339(at) for name, at in message.stages.items()},
        "attempt": message.attempt,
        "attempts": message.attempts,
        "max_attempts": message.max_attempts,
        "takeovers": message.takeovers,
        "last_error": message.last_error,
        "kind": message.kind,
        "sender": sender_view(message.sender),
        "seq": message.seq,
        "chain": message.chain,
        "hops": message.hops,
        "transport": message.transport,
        "destination_peer": message.destination_peer,
        "reply_to": message.reply_to,
        "requeued_from": message.requeued_from,
        "lease": _lease(message),
        "created_at": rfc3339(message.created_at),
        "updated_at": rfc3339(message.updated_at),
        "pruned_at": None if message.pruned_at is None else rfc3339(message.pruned_at),
    }
    return _without_absent(view)


def inbox_view(message: MessageView) -> dict[str, Any]:
    """As `message_view`, and content and available_at (null: no wait is set)."""
    return {
        **message_view(message),
        "content": message.content,
        "available_at": None if message.available_at is None else rfc3339(message.available_at),
    }


def history_view(attempts: Iterable[AttemptView]) -> list[dict[str, Any]]:
    """[{attempt, ending, detail?, status, due?, at}], oldest first: attempts that did not commit."""
    return [
        _without_absent(
            {
                "attempt": attempt.attempt,
                "ending": attempt.ending,
                "detail": attempt.detail,
                "status": attempt.status,
                "due": None if attempt.due is None else rfc3339(attempt.due),
                "at": rfc3339(attempt.at),
            }
        )
        for attempt in attempts
    ]


def steered_view(after: int | None) -> dict[str, Any]:
    """{steered_round?}: a message was taken into a turn that ran, after so many of its model rounds"""
    return {} if after is None else {"steered_round": after}


def tree_view(node: TreeNode) -> dict[str, Any]:
    """{name, kind, state, restarts, since, children}"""
    return {
        "name": node.name,
        "kind": node.kind,
        "state": node.state,
        "restarts": node.restarts,
        "since": rfc3339(node.since),
        "children": [tree_view(child) for child in node.children],
    }


def member_view(member: Member) -> dict[str, Any]:
    """{name, projects, created, suspended}; `suspended` is since when, or null"""
    return {
        "name": member.name,
        "projects": list(member.projects),
        "created": rfc3339(member.created),
        "suspended": None if member.suspended is None else rfc3339(member.suspended),
    }


def credential_view(credential: Credential) -> dict[str, Any]:
    """{id, carrier, kind, member?, project?, label, created, used?, expires?, revoked?}; without project it is good for all of its holder's"""
    times = {"used": credential.used, "expires": credential.expires, "revoked": credential.revoked}
    return _without_absent(
        {
            "id": credential.id,
            "carrier": credential.carrier,
            "kind": credential.grant.kind,
            "member": credential.grant.member,
            "project": credential.home.project if credential.grant.bound else None,
            "label": credential.label,
            "created": rfc3339(credential.created),
            **{name: None if at is None else rfc3339(at) for name, at in times.items()},
        }
    )


def pruned_view(pruned: Pruned) -> dict[str, Any]:
    """{blanked, deleted, more}"""
    return {"blanked": pruned.blanked, "deleted": pruned.deleted, "more": pruned.more}


def event_frame(event: Event) -> dict[str, Any]:
    """{type: event, session, id, kind, data}"""
    return {"type": "event", "session": event.session, "id": event.id, "kind": event.kind, "data": event.data}


def resync_frame(resync: Resync) -> dict[str, Any]:
    """{type: resync, session, after, oldest}"""
    return {"type": "resync", "session": resync.session, **resync.data}


def _lease(message: MessageView) -> dict[str, Any] | None:
    if message.lease_holder is None:
        return None
    until = None if message.lease_until is None else rfc3339(message.lease_until)
    return {"holder": message.lease_holder, "until": until, "epoch": message.lease_epoch}


def _without_absent(view: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in view.items() if value is not None}
