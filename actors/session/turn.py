"""What an agent is given for one turn: its messages, its tools, streaming, stopping. Not here: claiming and committing (`dispatch`).

Invariant: whatever an agent does through its turn is fenced by the turn's lease; after the turn has ended it can do nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ...storage.model.addresses import Scope, Sender
from ...storage.model.errors import LeaseLost
from ...storage.model.ids import turn_id
from ...storage.model.sessions import SessionKind
from ...storage.model.turns import Claimed, ToolClass, TurnMessage
from .attribution import Attributed, attribute
from .steps import StepLog
from .tokens import TokenStream
from .tools import AgentTools

if TYPE_CHECKING:
    from ..desk import Desk


@attrs.frozen
class SessionInfo:
    """The session that a turn belongs to."""

    id: str
    agent: str
    path: str | None
    kind: SessionKind
    parent: str | None


@attrs.frozen
class Call:
    """What a tool is told about its call. A durable tool must do the same thing once per `action_id`, however often it is run."""

    action_id: str
    turn_id: str


@attrs.frozen
class Tool:
    """A tool of an agent's own: an async function, and what may be done with a call that a crash cut off (RT-10)."""

    name: str
    fn: Callable[..., Awaitable[Any]]
    kind: ToolClass
    wants_call: bool = False
    needs_approval: bool = False


def tool(
    kind: str, *, name: str | None = None, needs_approval: bool = False
) -> Callable[[Callable[..., Awaitable[Any]]], Tool]:
    """Make an async function a tool of class `durable`, `pure` or `external`. One that names a parameter `call` is given its `Call`.

    With `needs_approval` a call waits until a person allows it; `Denied` is raised if nobody does (EVT-6).
    """

    def wrap(fn: Callable[..., Awaitable[Any]]) -> Tool:
        wants = "call" in fn.__code__.co_varnames[: fn.__code__.co_argcount + fn.__code__.co_kwonlyargcount]
        return Tool(name or fn.__name__, fn, ToolClass(kind), wants, needs_approval)

    return wrap


class Turn:
    """One attempt of one turn. `messages` are the head, what came along, and what has been steered in, in order of acceptance."""

    def __init__(self, claimed: Claimed, desk: Desk, steps: StepLog, tokens: TokenStream) -> None:
        self.id = turn_id(claimed.head.id)
        self.scope: Scope = claimed.scope
        self.session = SessionInfo(claimed.session, claimed.agent, claimed.path, claimed.kind, claimed.parent)
        self.message: TurnMessage = claimed.head
        self.messages: list[TurnMessage] = sorted(
            [claimed.head, *(m for m in claimed.carried if not m.steered)], key=lambda message: message.row
        )
        self.attempt = claimed.lease.attempt
        self.desk = desk
        self.steps = steps
        self.tools = AgentTools(self)
        self._tokens = tokens
        self._stop = trio.Event()
        self._ended = False

    @property
    def text(self) -> str:
        """The content of the head message, without any header."""
        return self.message.content

    @property
    def sender(self) -> Sender:
        """How this session signs what it sends."""
        return Sender(self.session.id, "session", self.session.path or self.session.agent)

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked this turn to stop, or the runtime shuts down: it has its grace to end by itself."""
        return self._stop.is_set()

    def attributed(self) -> list[Attributed]:
        """The turn's messages, each with the header that says who it is from."""
        return [attribute(message) for message in self.messages]

    async def emit(self, text: str) -> None:
        """Stream text to whoever follows the session; it is committed in blocks before anybody sees it (EVT-4)."""
        self._check()
        await self._tokens.write(text)

    async def flush(self) -> None:
        """Commit what was streamed so far, so that it stands before whatever is recorded next."""
        self._check()
        await self._tokens.flush()

    async def sleep(self, seconds: float) -> bool:
        """Wait; False as soon as the turn is asked to stop."""
        with trio.move_on_after(seconds):
            await self._stop.wait()
            return False
        return not self.stop_requested

    async def steered(self) -> tuple[TurnMessage, ...]:
        """Take posts that came while the turn ran into it (INB-10); call it between steps."""
        self._check()
        found = await self.steps.steer()
        self.messages.extend(found)
        return found

    async def step(self, tool: Tool, /, **arguments: Any) -> Any:
        """Run a tool of your own through the step log: a recorded result is given back instead of running it again (RT-10)."""
        self._check()

        async def run(action: str) -> Any:
            extra: Mapping[str, Any] = {"call": Call(action, self.id)} if tool.wants_call else {}
            return await tool.fn(**arguments, **extra)

        seconds = self.desk.tuning.approval_seconds if tool.needs_approval else None
        return await self.steps.call(tool.name, tool.kind, arguments, run, approval_seconds=seconds)

    def ask_to_stop(self) -> None:
        """Let the agent see at its next look that it should stop. For the delivery."""
        self._stop.set()

    def end(self) -> None:
        """Nothing that the agent still does through this turn counts any more. For the delivery."""
        self._ended = True

    def _check(self) -> None:
        if self._ended:
            raise LeaseLost("this turn has ended")
