"""The shapes of bodies, as JSON Schema (2020-12, as OpenAPI 3.1 has it). Not here: addresses.

Invariant: what the server refuses because of its form does not fit its schema, and what it answers does; the fuzz run holds both.
"""

from __future__ import annotations

from typing import Any, Final

from ....storage.model.events import EventKind
from ....storage.model.limits import AGENT_NAME_CHARS, CONTENT_CHARS, LABEL_CHARS, PAGE_LIMIT, TITLE_CHARS
from ....storage.model.messages import TRANSPORTS, Kind
from ....storage.model.policies import AgentsMay, Edge
from ....storage.model.sessions import SessionKind
from ....storage.model.states import Outcome, Reason, Status
from ..edge import CURSOR_MOST

Schema = dict[str, Any]
SEGMENT: Final = "[a-z0-9][a-z0-9._-]{0,62}"
TEXT: Final = r"^[^\u0000]*\S[^\u0000]*$"
"""With something to read in it, and without NUL."""
NAME: Final[Schema] = {"type": "string", "pattern": f"^{SEGMENT}$"}
MESSAGE_ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}
PATH: Final[Schema] = {"type": "string", "pattern": f"^/({SEGMENT}(/{SEGMENT}){{0,3}})?$"}
"""Up to eight levels and 256 characters; the pattern has four, which always fit."""
TITLE: Final[Schema] = {"type": "string", "maxLength": TITLE_CHARS, "pattern": rf"^$|{TEXT}"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
STRING: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
EVENT_ID: Final[Schema] = {"type": "integer", "minimum": 1}
CURSOR: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": CURSOR_MOST}
SESSION_CURSOR: Final[Schema] = {"type": "string", "pattern": r"^[0-9]{1,10}\.[0-9]{1,6}~[0-9]{1,18}$"}
ROW_CURSOR: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,18}$"}
LIMIT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT}
BOOLEAN: Final[Schema] = {"type": "boolean"}


def ref(name: str) -> Schema:
    """A shape by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def enum(*values: str) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": sorted(values)}


def array(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def null_or(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object of an answer: `required` are always there. Fields may be added in later versions."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def body(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object of a request: a field that is not named here is refused."""
    return {**record(optional, **required), "additionalProperties": False}


def page(name: str, item: str) -> Schema:
    """A part of a listing; `next` is the cursor of what follows."""
    return record(**{name: array(ref(item)), "has_more": BOOLEAN, "next": null_or(STRING)})


SENDER: Final = record(id=STRING, label=STRING, kind=enum("member", "session", "system", "peer"))
_MESSAGE: Final[dict[str, Schema]] = {
    "id": STRING,
    "message_id": STRING,
    "session": STRING,
    "status": enum(*Status),
    "turn_id": STRING,
    "stages": {"type": "object", "additionalProperties": TIME},
    "attempt": NUMBER,
    "attempts": NUMBER,
    "max_attempts": NUMBER,
    "takeovers": NUMBER,
    "kind": enum(*Kind),
    "sender": ref("Sender"),
    "seq": NUMBER,
    "chain": STRING,
    "hops": NUMBER,
    "transport": enum(*TRANSPORTS),
    "created_at": TIME,
    "updated_at": TIME,
}
_MESSAGE_MORE: Final[dict[str, Schema]] = {
    "outcome": enum(*Outcome, "failed"),
    "reason": enum(*Reason),
    "last_error": STRING,
    "destination_peer": STRING,
    "reply_to": STRING,
    "requeued_from": STRING,
    "lease": record(holder=STRING, until=null_or(TIME), epoch=NUMBER),
    "pruned_at": TIME,
}
_ATTEMPT: Final = record({"detail": STRING, "due": TIME}, attempt=NUMBER, ending=STRING, status=enum(*Status), at=TIME)
_CREDENTIAL: Final[dict[str, Schema]] = {
    "id": STRING,
    "carrier": enum("bearer", "cookie"),
    "kind": enum("operator", "project", "member"),
    "label": STRING,
    "created": TIME,
}
_CREDENTIAL_MORE: Final[dict[str, Schema]] = {
    "member": STRING,
    "project": STRING,
    "used": TIME,
    "expires": TIME,
    "revoked": TIME,
}
_RULE: Final[dict[str, Schema]] = {
    "edge": enum(*Edge),
    "agents": enum(*AgentsMay),
    "handoff": BOOLEAN,
    "confirm": BOOLEAN,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": record(error=record({"path": STRING}, code=STRING, message=STRING)),
    "Health": record(status=enum("ok", "failing"), failing=array(STRING), stuck=array(STRING)),
    "Ready": record(status=enum("ready", "not_ready")),
    "Sender": SENDER,
    "Session": record(
        {"moved_from": STRING},
        id=STRING,
        path=null_or(STRING),
        agent=STRING,
        title=STRING,
        kind=enum(*SessionKind),
        status=enum("active", "idle"),
        parent=null_or(STRING),
        updated=TIME,
    ),
    "Sessions": page("sessions", "Session"),
    "NewSession": body(
        {"path": null_or(PATH), "title": TITLE},
        agent={"type": "string", "minLength": 1, "maxLength": AGENT_NAME_CHARS},
    ),
    "SessionChanges": {
        "anyOf": [body({"path": null_or(PATH)}, title=TITLE), body({"title": null_or(TITLE)}, path=PATH)]
    },
    "NewMessage": body(
        {"message_id": null_or(MESSAGE_ID)},
        content={"type": "string", "minLength": 1, "maxLength": CONTENT_CHARS, "pattern": TEXT},
    ),
    "Receipt": record(message_id=STRING, created=BOOLEAN, status=enum(*Status), seq=NUMBER),
    "Entry": record(
        {"message_id": STRING, "in_reply_to": STRING, "handoff": ref("Handoff")},
        seq=NUMBER,
        role=enum("user", "assistant", "notice"),
        content=STRING,
        sender=ref("Sender"),
        state=enum(*Status),
        at=TIME,
    ),
    "Handoff": record({"confirm": BOOLEAN}, path=STRING, channel_id=STRING, event_id=EVENT_ID),
    "Transcript": record(entries=array(ref("Entry"))),
    "Prompt": record(
        session=STRING,
        agent=STRING,
        turn=enum("running", "next", "none"),
        request_hash=STRING,
        bytes=NUMBER,
        parts=array(record(name=STRING, bytes=NUMBER, text=STRING)),
        diff=null_or(
            record(
                bytes=NUMBER,
                common=NUMBER,
                percent={"type": "number"},
                changed=array(record(part=STRING, at=NUMBER, removed=STRING, added=STRING)),
            )
        ),
    ),
    "Directory": record(
        entries=array(record(path=STRING, session=STRING, agent=STRING, purpose=STRING, title=STRING, confirm=BOOLEAN)),
        has_more=BOOLEAN,
        next=null_or(STRING),
    ),
    "Navigation": record(
        client=STRING, session=STRING, frontiers={"type": "object", "additionalProperties": NUMBER}, at=TIME
    ),
    "NewRule": body({name: null_or(schema) for name, schema in _RULE.items()}, prefix=PATH),
    "Rules": record(rules=array(record(_RULE, prefix=STRING)), project=record(**_RULE)),
    "Stop": body({"drop_queued": BOOLEAN}),
    "Stopping": record(status=enum("stopping")),
    "Message": record(_MESSAGE_MORE, **_MESSAGE),
    "MessageWithHistory": record({**_MESSAGE_MORE, "steered_round": NUMBER}, **_MESSAGE, history=array(_ATTEMPT)),
    "InboxMessage": record(_MESSAGE_MORE, **_MESSAGE, content=STRING, available_at=null_or(TIME)),
    "Inbox": page("messages", "InboxMessage"),
    "Nothing": body(),
    "Retention": body(older_than_seconds={"type": "number", "minimum": 0}),
    "Pruned": record(blanked=NUMBER, deleted=NUMBER, more=BOOLEAN),
    "Answer": body(approve=BOOLEAN),
    "Approval": record(id=STRING, session=STRING, state=enum("waiting", "approved", "denied", "expired")),
    "Node": record(name=STRING, kind=STRING, state=STRING, restarts=NUMBER, since=TIME, children=array(ref("Node"))),
    "Report": record(
        state=enum("ok", "warn", "fail"),
        checks=array(record({"advice": STRING}, name=STRING, state=enum("ok", "warn", "fail"), detail=STRING)),
        processes=array(record(name=STRING, seen_seconds={"type": "number"}, leases=NUMBER, turns=NUMBER)),
        settings={"type": "object"},
    ),
    "Whoami": record(
        kind=enum("operator", "project", "member"),
        name=STRING,
        projects=null_or(array(STRING)),
        project=null_or(STRING),
    ),
    "NewTicket": {
        "anyOf": [body({"kind": enum("ws")}), body({"member": null_or(NAME)}, kind={"const": "console"})],
    },
    "Ticket": record(ticket=STRING, expires=TIME),
    "NewMember": body({"project": null_or(NAME)}, name=NAME),
    "Member": record(name=STRING, projects=array(STRING), created=TIME, suspended=null_or(TIME)),
    "Members": page("members", "Member"),
    "NewToken": body(
        {
            "member": null_or(NAME),
            "project": null_or(NAME),
            "label": {"type": "string", "maxLength": LABEL_CHARS, "pattern": "^([!-Z^-~]+( [!-Z^-~]+)*)?$"},
        }
    ),
    "Token": record(_CREDENTIAL_MORE, **_CREDENTIAL),
    "MadeToken": record(_CREDENTIAL_MORE, token=STRING, **_CREDENTIAL),
    "Tokens": page("tokens", "Token"),
    "EventData": {
        "type": "object",
        "description": "The data of an event; every turn.* event has turn_id, message_id and attempt.",
        "x-event-kinds": sorted(EventKind),
    },
}
