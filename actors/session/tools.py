"""The agent tools: the five on other sessions, and connect_user: exact schemas, and what each does inside a turn (SES-3 to SES-8, HND-1).

Invariant: a tool acts in its turn's project as its turn's session; what it changes is committed with its step before it returns.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...storage.model.addresses import Sender, check_path, session_address
from ...storage.model.errors import InvalidField, NotPermitted, SelfTarget, UnknownTarget
from ...storage.model.limits import CONTENT_CHARS, READ_CHARS
from ...storage.model.messages import Kind, check_text
from ...storage.model.sessions import Session, SessionKind
from ...storage.model.turns import ToolClass
from ...storage.ops.deliveries import HandOver
from ...storage.ops.inbox import enqueue
from ...storage.ops.sessions import open_session
from ...storage.ops.upkeep import RequestStop
from ...storage.wire import rfc3339, structure
from .steps import Effects

if TYPE_CHECKING:
    from .turn import Turn

LIST_DEFAULT: Final = 20
LIST_MOST: Final = 50
TIMEOUT_MOST: Final = 86_400.0
READ_ENTRIES: Final = 200
"""How many of the newest entries agent_read looks at: more never fit into its characters unless they are tiny."""


def _within(value: Any, least: float, most: float, path: str) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidField(f"must be {least:g} to {most:g}", path=path)


@attrs.frozen
class AgentCall:
    """`agent`: start a child for a task."""

    task: str
    agent: str | None = None
    title: str | None = None
    timeout_s: float | None = None

    def __attrs_post_init__(self) -> None:
        check_text(self.task, "task")
        _within(self.timeout_s, 0.001, TIMEOUT_MOST, "timeout_s")


@attrs.frozen
class ListCall:
    """`agent_list`: sessions of this project."""

    status: str = "active"
    limit: int = LIST_DEFAULT

    def __attrs_post_init__(self) -> None:
        if self.status not in {"active", "recent"}:
            raise InvalidField("must be active or recent", path="status")
        _within(self.limit, 1, LIST_MOST, "limit")


@attrs.frozen
class TargetCall:
    """`agent_read` and `agent_stop`: one session."""

    agent_id: str


@attrs.frozen
class SendCall:
    """`agent_send`: a message to one session."""

    agent_id: str
    message: str


@attrs.frozen
class ConnectCall:
    """`connect_user`: hand the user over to one session."""

    path: str


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TARGET: Final = {"type": "string", "description": "A session id, a path such as /ops/deploy, or peer:<id>."}
_TASK: Final = {"type": "string", "minLength": 1, "maxLength": CONTENT_CHARS}

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "agent": {
        "description": "Start a subagent for a task. Its result comes back as a message.",
        "parameters": _schema(
            ["task"],
            task=_TASK,
            agent={"type": "string"},
            title={"type": "string", "maxLength": 200},
            timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": TIMEOUT_MOST},
        ),
    },
    "agent_list": {
        "description": "List the sessions of this project.",
        "parameters": _schema(
            [],
            status={"type": "string", "enum": ["active", "recent"], "default": "active"},
            limit={"type": "integer", "minimum": 1, "maximum": LIST_MOST, "default": LIST_DEFAULT},
        ),
    },
    "agent_read": {
        "description": "Read the visible transcript of a session.",
        "parameters": _schema(["agent_id"], agent_id=_TARGET),
    },
    "agent_send": {
        "description": "Queue a durable message for a session and wake it. Returns without waiting for an answer.",
        "parameters": _schema(["agent_id", "message"], agent_id=_TARGET, message=_TASK),
    },
    "agent_stop": {
        "description": "Ask a session to stop its running turn.",
        "parameters": _schema(["agent_id"], agent_id=_TARGET),
    },
    "connect_user": {
        "description": (
            "Offer to take the user to another session; they talk to its agent from then on. It only records that, so end your"
            " turn with a short line such as: Taking you to deploy."
        ),
        "parameters": _schema(
            ["path"], path={"type": "string", "description": "The path of that session, such as /ops/deploy."}
        ),
    },
}


class AgentTools:
    """The tools of one turn. Each returns JSON; a refusal is raised as a `CallboardError` after it was recorded."""

    __slots__ = ("_turn",)

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool as a model does: by name, with undecoded arguments. Raises `InvalidField` naming what is wrong."""
        checked = check_call(name, arguments)
        return await getattr(self, name)(**checked)

    async def agent(
        self, task: str, agent: str | None = None, title: str | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Start a child of this session. Returns {agent_id, status}. Raises `TooManyChildren`, `UnknownAgent`."""
        turn, arguments = self._turn, _given(task=task, agent=agent, title=title, timeout_s=timeout_s)

        async def run(action: str) -> Effects:
            structure(arguments, AgentCall, "agent")
            name = turn.desk.check_agent(agent or turn.session.agent)
            child = open_session(
                turn.scope,
                name,
                kind=SessionKind.SUBAGENT,
                parent=turn.session.id,
                title=title or task.strip()[:60],
                deadline_seconds=timeout_s,
            )
            # The same call of a later attempt must find the same child: its id comes from the action id.
            child = attrs.evolve(child, id=f"ses_{hashlib.blake2b(action.encode(), digest_size=16).hexdigest()}")
            first = enqueue(
                turn.scope,
                session_address(child.id),
                turn.sender,
                task,
                kind=Kind.AGENT_MESSAGE,
                message_id=action,
                chain=turn.message.chain,
                hops=turn.message.hops + 1,
                max_hops=turn.desk.tuning.max_hops,
            )
            return Effects({"agent_id": child.id, "status": "running"}, sends=(first,), opens=(child,))

        return await turn.steps.call("agent", ToolClass.DURABLE, arguments, run)

    async def agent_list(self, status: str = "active", limit: int = LIST_DEFAULT) -> dict[str, Any]:
        """Sessions of this project: {agents: [{agent_id, title, kind, status, …}], has_more}."""
        turn, arguments = self._turn, {"status": status, "limit": limit}

        async def run(_: str) -> dict[str, Any]:
            wanted = structure(arguments, ListCall, "agent_list")
            page = await turn.desk.store.reads.sessions(
                turn.scope, active=wanted.status == "active", limit=wanted.limit
            )
            return {"agents": [_record(session) for session in page.items], "has_more": page.has_more}

        return await turn.steps.call("agent_list", ToolClass.PURE, arguments, run)

    async def agent_read(self, agent_id: str) -> dict[str, Any]:
        """Visible text of a session, newest kept within 20,000 characters: {agent_id, messages, omitted, truncated}."""
        turn, arguments = self._turn, {"agent_id": agent_id}

        async def run(_: str) -> dict[str, Any]:
            target = await self._target(structure(arguments, TargetCall, "agent_read").agent_id)
            entries, count = await turn.desk.store.reads.transcript_tail(turn.scope, target.id, READ_ENTRIES)
            return {"agent_id": target.id, **visible([(entry.role, entry.content) for entry in entries], count)}

        return await turn.steps.call("agent_read", ToolClass.PURE, arguments, run)

    async def agent_send(self, agent_id: str | Sender, message: str) -> dict[str, Any]:
        """Queue a message, without waiting: {message_id, agent_id, status}.

        Raises `SelfTarget`, `UnknownTarget`, `MailboxFull`, `LimitReached`; `NotPermitted` where sessions don't write to each other (NS-4).
        """
        turn = self._turn
        target_id = agent_id.id if isinstance(agent_id, Sender) else agent_id
        arguments = {"agent_id": target_id, "message": message}

        async def run(action: str) -> Effects:
            call = structure(arguments, SendCall, "agent_send")
            text = check_text(call.message.strip(), "message")
            target = await self._target(call.agent_id)
            answering = turn.message.sender.kind == "session" and turn.message.sender.id == target.id
            op = enqueue(
                turn.scope,
                session_address(target.id),
                turn.sender,
                text,
                kind=Kind.AGENT_MESSAGE,
                message_id=action,
                chain=turn.message.chain,
                hops=turn.message.hops + 1,
                reply_to=turn.message.message_id if answering else None,
                depth_limit=turn.desk.tuning.mailbox_depth,
                pair_limit=turn.desk.tuning.pair_per_minute,
                max_hops=turn.desk.tuning.max_hops,
                edge=turn.desk.tuning.edge,
            )
            return Effects({"message_id": action, "agent_id": target.id, "status": "pending"}, sends=(op,))

        return await turn.steps.call("agent_send", ToolClass.DURABLE, arguments, run)

    async def agent_stop(self, agent_id: str) -> dict[str, Any]:
        """Stop the target's running turn: {agent_id, status: stopping}. Raises `SelfTarget`, `UnknownTarget`, `Inactive`."""
        turn, arguments = self._turn, {"agent_id": agent_id}

        async def run(_: str) -> Effects:
            target = await self._target(structure(arguments, TargetCall, "agent_stop").agent_id)
            stop = RequestStop(turn.scope, session_address(target.id), turn.desk.tuning.stop_grace_seconds)
            return Effects({"agent_id": target.id, "status": "stopping"}, stops=(stop,))

        return await turn.steps.call("agent_stop", ToolClass.DURABLE, arguments, run)

    async def connect_user(self, path: str) -> dict[str, Any]:
        """Hand the user over to the session at `path`: {status: recorded, path, channel_id}. Moves nobody: clients act on its event (HND-1).

        Raises `SelfTarget`, `UnknownTarget`, `NotPermitted`, `InvalidField` for a path that is not canonical.
        """
        turn, arguments = self._turn, {"path": path}

        async def run(_: str) -> Effects:
            asked = check_path(structure(arguments, ConnectCall, "connect_user").path)
            if turn.session.parent is not None:
                message = "nobody talks to a subagent: say in your answer where the user should go, and why"
                raise NotPermitted(message, path="path")
            target = await turn.desk.find(turn.scope, asked)
            if target.id == turn.session.id:
                raise SelfTarget("the user is in this session already", path="path")
            if target.path is None:
                raise UnknownTarget("no session has this path", path="path")
            result = {"status": "recorded", "path": target.path, "channel_id": target.id}
            return Effects(result, handoff=HandOver(target.path, target.id))

        return await turn.steps.call("connect_user", ToolClass.DURABLE, arguments, run)

    async def _target(self, address: str) -> Session:
        """The session of this project that `address` names; this session itself is refused in every spelling."""
        if not address:
            raise InvalidField("must not be empty", path="agent_id")
        target = await self._turn.desk.find(self._turn.scope, address)
        if target.id == self._turn.session.id:
            raise SelfTarget("this is your own session", path="agent_id")
        return target


_CALLS: Final[dict[str, type[Any]]] = {
    "agent": AgentCall,
    "agent_list": ListCall,
    "agent_read": TargetCall,
    "agent_send": SendCall,
    "agent_stop": TargetCall,
    "connect_user": ConnectCall,
}


def check_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of one of the agent tools, complete. Raises `InvalidField` naming what is wrong."""
    if name not in _CALLS:
        raise InvalidField(f"there is no tool {name!r}", path="tool")
    return attrs.asdict(structure(arguments, _CALLS[name], name))


def visible(entries: list[tuple[str, str]], count: int) -> dict[str, Any]:
    """The newest text within 20,000 characters, oldest first; an over-long newest message is cut from its front (SES-5)."""
    kept: list[dict[str, str]] = []
    room, truncated = READ_CHARS, False
    for role, content in reversed(entries):
        if len(content) > room:
            if kept:
                break
            content, truncated = _cut(content, room), True
        kept.append({"role": role, "content": content})
        room -= len(content)
    return {"messages": kept[::-1], "count": count, "omitted": count - len(kept), "truncated": truncated}


def _cut(content: str, room: int) -> str:
    """The end of a text behind a mark that says how much is missing: the mark takes room itself, so its figure grows with it."""
    mark = ""
    while True:
        missing = len(content) - room + len(mark)
        before, mark = mark, f"[… {missing} characters cut]"
        if mark == before:
            return mark + content[missing:]


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _record(session: Session) -> dict[str, Any]:
    return {
        "agent_id": session.id,
        "title": session.title,
        "kind": str(session.kind),
        "status": session.status,
        "project": session.scope.project,
        "parent": session.parent,
        "path": session.path,
        "updated": rfc3339(session.updated),
    }
