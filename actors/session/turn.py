"""What an agent is given for one turn: its messages, its tools, streaming, stopping. Not here: claiming and committing (`dispatch`).

Invariant: whatever an agent does through its turn is fenced by the turn's lease; after the turn has ended it can do nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ...storage.model.addresses import Scope, Sender
from ...storage.model.errors import LeaseLost
from ...storage.model.ids import turn_id
from ...storage.model.sessions import SessionKind
from ...storage.model.turns import Claimed, Step, ToolClass, TurnMessage
from .attribution import Attributed, attribute
from .steps import StepLog
from .tokens import Pulse, TokenStream
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
    """One attempt of one turn."""

    # Most turns wait for something outside and use little of this: what they do not use is not made.
    __slots__ = ("_claimed", "_ended", "_messages", "_pulse", "_steps", "_stop", "desk", "stream")

    def __init__(self, claimed: Claimed, desk: Desk, pulse: Pulse, committed: Iterable[Step] = ()) -> None:
        """`committed`: the steps that earlier attempts have left."""
        self.desk = desk
        self.stream: TokenStream | None = None
        """What it streams, once it does. For the delivery."""
        self._claimed = claimed
        self._pulse = pulse
        self._steps = self._step_log(committed) if committed else None
        self._messages: list[TurnMessage] | None = None
        self._stop: trio.Event | None = None
        self._ended = False

    @property
    def id(self) -> str:
        """The turn's id: the same in every attempt."""
        return turn_id(self._claimed.head.id)

    @property
    def scope(self) -> Scope:
        """The tenant and project that it runs in."""
        return self._claimed.scope

    @property
    def session(self) -> SessionInfo:
        """The session that it belongs to."""
        claimed = self._claimed
        return SessionInfo(claimed.session, claimed.agent, claimed.path, claimed.kind, claimed.parent)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claimed.lease.attempt

    @property
    def message(self) -> TurnMessage:
        """The head: the message that this turn answers."""
        return self._claimed.head

    @property
    def messages(self) -> list[TurnMessage]:
        """The head, what came along, and what has been steered in, in order of acceptance."""
        if self._messages is None:
            self._messages = [self._claimed.head]
            if self._claimed.carried:
                self._messages.extend(message for message in self._claimed.carried if not message.steered)
                self._messages.sort(key=lambda message: message.row)
        return self._messages

    @property
    def steps(self) -> StepLog:
        """The turn's step log (RT-10)."""
        if self._steps is None:
            self._steps = self._step_log(())
        return self._steps

    @property
    def tools(self) -> AgentTools:
        """The agent tools."""
        return AgentTools(self)

    @property
    def text(self) -> str:
        """The content of the head message, without any header."""
        return self.message.content

    @property
    def sender(self) -> Sender:
        """How this session signs what it sends."""
        return Sender(self._claimed.session, "session", self._claimed.path or self._claimed.agent)

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked this turn to stop, or the runtime shuts down: it has its grace to end by itself."""
        return self._stop is not None and self._stop.is_set()

    def attributed(self) -> list[Attributed]:
        """The turn's messages, each with the header that says who it is from."""
        return [attribute(message) for message in self.messages]

    async def emit(self, text: str) -> None:
        """Stream text to whoever follows the session; it is committed in blocks before anybody sees it (EVT-4)."""
        self._check()
        if self.stream is None:
            self.stream = TokenStream(self.desk.store, self._claimed.lease, self._pulse)
        await self.stream.write(text)

    async def flush(self) -> None:
        """Commit what was streamed so far, so that it stands before whatever is recorded next."""
        self._check()
        if self.stream is None:
            await trio.lowlevel.checkpoint()
        else:
            await self.stream.flush()

    async def sleep(self, seconds: float) -> bool:
        """Wait; False as soon as the turn is asked to stop."""
        with trio.move_on_after(seconds):
            await self._stopping().wait()
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
        self._stopping().set()

    def end(self) -> None:
        """Nothing that the agent still does through this turn counts any more. For the delivery."""
        self._ended = True

    def _stopping(self) -> trio.Event:
        if self._stop is None:
            self._stop = trio.Event()
        return self._stop

    def _step_log(self, committed: Iterable[Step]) -> StepLog:
        claimed = self._claimed
        return StepLog(self.desk.store, claimed.scope, claimed.lease, self.id, committed)

    def _check(self) -> None:
        if self._ended:
            raise LeaseLost("this turn has ended")
