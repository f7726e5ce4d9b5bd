"""Mistakes that a type checker must find: each line is wrong, and saying so where it is right is an error itself."""

from __future__ import annotations

from callboard import Rule, Runtime, Scripted, Tuning, Turn, open_runtime, tool


async def wrong_turn(turn: Turn) -> None:
    """Calls that a turn does not have."""
    await turn.emit(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await turn.tools.agent_send("/other")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await turn.tools.agent_list(limit="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await turn.tools.agent_delete("/other")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    turn.stop_requested = True  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


async def wrong_runtime(runtime: Runtime) -> None:
    """Arguments that a runtime does not take."""
    await runtime.open_session("front-desk")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await runtime.send(b"id", "hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await runtime.send("id", "hello", sender="me")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    receipt = await runtime.send("id", "hello")
    receipt.status = "delivered"  # type: ignore[misc, assignment]  # pyright: ignore[reportAttributeAccessIssue]


async def wrong_options() -> None:
    """Options that do not exist."""
    async with open_runtime("sqlite:///x.db", agents={}, executor="process"):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass
    Tuning(lease_minutes=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Scripted([Rule("x", 5)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@tool("external")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_async(amount: int) -> int:
    """A tool must be an async function."""
    return amount
