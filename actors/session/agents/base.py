"""What an agent is, and how anything that a user hands over becomes one. Not here: what a turn offers.

Invariant: what is not an agent is refused when the runtime opens, and named; never at the first message.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import trio

from ....storage.model.errors import InvalidField
from ....storage.model.limits import AGENT_NAME_CHARS
from ..turn import Turn
from .blocking import BlockingTurn

Behaviour = Callable[[Turn], Awaitable[str | None]]


@runtime_checkable
class Runs(Protocol):
    """Anything with a `run` that takes a turn."""

    def run(self, turn: Any, /) -> Any: ...


class Agent:
    """Base for agents; deriving from it is a convenience, not a need.

    `purpose` is one sentence for people and other agents. An agent with a store of its own may define
    `async has_committed(message_id) -> bool`, which is asked before a message is run again (INB-8).
    """

    purpose: str = ""

    async def run(self, turn: Turn) -> str | None:
        """Run one turn; what is returned is the answer. None: what was streamed, or no visible reply."""
        raise NotImplementedError


def as_agent(name: str, value: object) -> Runs:
    """Return an object with an async `run(turn)` for whatever is called `name` in `agents`. Raises `InvalidField` naming it."""
    path = f"agents.{name}"
    if not name or len(name) > AGENT_NAME_CHARS or not name.isprintable():
        raise InvalidField(f"an agent's name must be 1 to {AGENT_NAME_CHARS} printable characters", path=path)
    if inspect.isclass(value):
        raise InvalidField("is a class: give an instance of it", path=path)
    run = getattr(value, "run", None)
    if callable(run):
        return _from_callable(path, run, value)
    if callable(value):
        return _from_callable(path, value, value)
    raise InvalidField("must be an object with run(turn), or a function (turn) -> str | None", path=path)


def agents_from(agents: Mapping[str, object]) -> dict[str, Runs]:
    """All agents of a runtime by name. Raises `InvalidField` naming the first that is none."""
    if not agents:
        raise InvalidField("names no agent", path="agents")
    return {name: as_agent(name, value) for name, value in agents.items()}


def purposes_of(agents: Mapping[str, Runs]) -> dict[str, str]:
    """What each agent says that it is for; "" for one that does not."""
    return {name: str(getattr(agent, "purpose", "")) for name, agent in agents.items()}


def _from_callable(path: str, run: Callable[..., Any], owner: object) -> Runs:
    try:
        inspect.signature(run).bind(None)
    except TypeError:
        raise InvalidField("must take exactly one argument, the turn", path=path) from None
    except ValueError:
        pass  # a callable of C has no signature to look at
    kinds = _functions(run)
    if any(inspect.isasyncgenfunction(kind) or inspect.isgeneratorfunction(kind) for kind in kinds):
        raise InvalidField("is a generator: stream with turn.emit instead", path=path)
    if any(inspect.iscoroutinefunction(kind) for kind in kinds):
        return _Bound(run, owner)
    return _Bound(_in_thread(run), owner)


def _functions(run: Callable[..., Any]) -> tuple[object, object]:
    """What a call of `run` comes down to, partials taken off: itself if it is a function, and the `__call__` of its class if it is an object."""
    while isinstance(run, functools.partial):
        run = cast("functools.partial[Any]", run).func
    return run, type(run).__call__


class _Bound:
    """An agent as the delivery runs it, with what it says about itself. `owner` is what the user gave."""

    def __init__(self, run: Behaviour, owner: object) -> None:
        self.run = run
        self.owner = owner
        self.purpose = str(getattr(owner, "purpose", "") or "")
        self.has_committed = getattr(owner, "has_committed", None)


def _in_thread(run: Callable[[Any], Any]) -> Behaviour:
    # No limit of its own: a thread that never ends must not keep other sessions' turns waiting; `live_turns` bounds them all.
    limiter = trio.CapacityLimiter(math.inf)

    def boxed(turn: BlockingTurn) -> tuple[Any]:
        return (run(turn),)  # Trio refuses a function that returns a coroutine

    async def threaded(turn: Turn) -> str | None:
        # Not abandoned on cancel: while the thread lives its session must run nothing more, which is what `stuck` is for (RT-6).
        (result,) = await trio.to_thread.run_sync(boxed, BlockingTurn(turn), limiter=limiter)
        # A plain function may hand an async one on, as `lambda turn: answer(turn)` does: that runs here, where its calls are awaited.
        return cast("str | None", await result if inspect.isawaitable(result) else result)

    return threaded
