"""The turn as a plain (synchronous) agent sees it, from its thread. Every call waits in the Trio loop and returns here."""

from __future__ import annotations

from typing import Any

import trio

from ....storage.model.turns import TurnMessage
from ..turn import SessionInfo, Tool, Turn


class BlockingTools:
    """The five tools, blocking. See `AgentTools`."""

    def __init__(self, turn: Turn) -> None:
        self._tools = turn.tools

    def agent(
        self, task: str, agent: str | None = None, title: str | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return trio.from_thread.run(self._tools.agent, task, agent, title, timeout_s)

    def agent_list(self, status: str = "active", limit: int = 20) -> dict[str, Any]:
        return trio.from_thread.run(self._tools.agent_list, status, limit)

    def agent_read(self, agent_id: str) -> dict[str, Any]:
        return trio.from_thread.run(self._tools.agent_read, agent_id)

    def agent_send(self, agent_id: str, message: str) -> dict[str, Any]:
        return trio.from_thread.run(self._tools.agent_send, agent_id, message)

    def agent_stop(self, agent_id: str) -> dict[str, Any]:
        return trio.from_thread.run(self._tools.agent_stop, agent_id)


class BlockingTurn:
    """`Turn` for a thread: the same names, blocking. A cancelled turn raises `trio.Cancelled` from its next call."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.id = turn.id
        self.session: SessionInfo = turn.session
        self.message: TurnMessage = turn.message
        self.attempt = turn.attempt
        self.tools = BlockingTools(turn)

    @property
    def text(self) -> str:
        return self._turn.text

    @property
    def messages(self) -> list[TurnMessage]:
        return list(self._turn.messages)

    @property
    def stop_requested(self) -> bool:
        return self._turn.stop_requested

    def emit(self, text: str) -> None:
        trio.from_thread.run(self._turn.emit, text)

    def sleep(self, seconds: float) -> bool:
        return trio.from_thread.run(self._turn.sleep, seconds)

    def steered(self) -> tuple[TurnMessage, ...]:
        return trio.from_thread.run(self._turn.steered)

    def step(self, tool: Tool, /, **arguments: Any) -> Any:
        async def run() -> Any:
            return await self._turn.step(tool, **arguments)

        return trio.from_thread.run(run)
