"""The turn as a plain (synchronous) agent sees it, from its thread. Every call waits in the Trio loop and returns here.

A plain function may hand its turn on to an async one and return what that gives (`lambda turn: answer(turn)`). That runs in the Trio
loop, where the same calls return what is to be awaited, as those of `Turn` do.

Invariant: an agent finds here whatever `Turn` has, under the same names and with the same parameters; a test compares them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from ....storage.model.addresses import Scope, Sender
from ....storage.model.turns import TurnMessage
from ..attribution import Attributed
from ..turn import SessionInfo, Tool, Turn


def _wait(call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return call(*args) if trio.lowlevel.in_trio_run() else trio.from_thread.run(call, *args)


class BlockingTools:
    """The agent tools, blocking. See `AgentTools`."""

    def __init__(self, turn: Turn) -> None:
        self._tools = turn.tools

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return _wait(self._tools.call, name, arguments)

    def agent(
        self, task: str, agent: str | None = None, title: str | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return _wait(self._tools.agent, task, agent, title, timeout_s)

    def agent_list(self, status: str = "active", limit: int = 20) -> dict[str, Any]:
        return _wait(self._tools.agent_list, status, limit)

    def agent_read(self, agent_id: str) -> dict[str, Any]:
        return _wait(self._tools.agent_read, agent_id)

    def agent_send(self, agent_id: str | Sender, message: str) -> dict[str, Any]:
        return _wait(self._tools.agent_send, agent_id, message)

    def agent_stop(self, agent_id: str) -> dict[str, Any]:
        return _wait(self._tools.agent_stop, agent_id)

    def connect_user(self, path: str) -> dict[str, Any]:
        return _wait(self._tools.connect_user, path)


class BlockingTurn:
    """`Turn` for a thread: the same names, blocking. A cancelled turn raises `trio.Cancelled` from its next call.

    `desk` and `steps` are those of the turn, whose calls are async: `trio.from_thread.run(turn.desk.find, turn.scope, "/billing")`.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.id = turn.id
        self.scope: Scope = turn.scope
        self.session: SessionInfo = turn.session
        self.message: TurnMessage = turn.message
        self.attempt = turn.attempt
        self.desk = turn.desk
        self.steps = turn.steps
        self.tools = BlockingTools(turn)

    @property
    def text(self) -> str:
        return self._turn.text

    @property
    def sender(self) -> Sender:
        return self._turn.sender

    @property
    def messages(self) -> list[TurnMessage]:
        return list(self._turn.messages)

    @property
    def stop_requested(self) -> bool:
        return self._turn.stop_requested

    def attributed(self) -> list[Attributed]:
        return self._turn.attributed()

    def emit(self, text: str) -> None:
        return _wait(self._turn.emit, text)

    def flush(self) -> None:
        return _wait(self._turn.flush)

    def sleep(self, seconds: float) -> bool:
        return _wait(self._turn.sleep, seconds)

    def steered(self) -> tuple[TurnMessage, ...]:
        return _wait(self._turn.steered)

    def step(self, tool: Tool, /, **arguments: Any) -> Any:
        return _wait(partial(self._turn.step, tool, **arguments))
