"""The step log of one turn as its agent's calls see it (RT-10).

A call is looked up by its action id before it runs: a recorded result is given back, a call without one goes by its tool's class. An
external call is recorded as begun before it runs, so that a later attempt can tell that it may have run. A model round is looked up by
its number: its response is recorded before anybody acts on it.

Invariant: a tool's effects on our own store are committed with its step, before the tool returns.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from ...storage.model.addresses import Scope
from ...storage.model.errors import (
    Busy,
    CallboardError,
    InvalidField,
    LeaseLost,
    OutcomeUnknown,
    StoreDown,
    StoreError,
    error_named,
)
from ...storage.model.turns import Lease, Step, StepKind, Summary, ToolClass, TurnMessage
from ...storage.ops import Absorb, RecordStep
from ...storage.ops.deliveries import HandOver, StepEvent
from ...storage.ops.inbox import Enqueue
from ...storage.ops.sessions import OpenSession
from ...storage.ops.upkeep import RequestStop
from ...storage.store import Store
from ...storage.wire import structure
from .approvals import approved

INTERRUPTED = "interrupted"
PASSING = (LeaseLost, Busy, StoreDown, StoreError, OutcomeUnknown)
"""Not a verdict about the call: recorded as its result, it would be repeated for ever."""


@attrs.frozen
class Interrupted:
    """The result of an external call that a crash cut off: it may have run, and it is not run again."""

    tool: str
    action_id: str

    def __str__(self) -> str:
        return f"{INTERRUPTED}: {self.tool} may have run; it was not repeated"


@attrs.frozen
class Effects:
    """What a call does to our own store, in the transaction that records its result."""

    result: Any
    sends: tuple[Enqueue, ...] = ()
    opens: tuple[OpenSession, ...] = ()
    stops: tuple[RequestStop, ...] = ()
    handoff: HandOver | None = None


class StepLog:
    """The steps of one turn. `committed` are those that an earlier attempt has left, by key."""

    __slots__ = ("_known", "_lease", "_ordinal", "_place", "_round", "_scope", "_seen", "_steers", "_store", "_turn")

    def __init__(self, store: Store, scope: Scope, lease: Lease, turn: str, committed: Iterable[Step]) -> None:
        self._store = store
        self._scope = scope
        self._lease = lease
        self._turn = turn
        self._known = {step.key: step for step in committed}
        self._seen: Counter[str] = Counter()
        self._ordinal = 0
        self._round = 0
        self._steers = 0
        self._place: str | None = None

    def action_id(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The id of the next call of `tool` with `arguments`: the same in every attempt of the same turn."""
        text = _dump(arguments, f"{tool}.arguments", sort_keys=True, separators=(",", ":"))
        if self._place is not None:
            text = f"{tool} {text}"
        call = f"{self._turn}:{self._place or tool}:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        self._seen[call] += 1
        return f"{call}:{self._seen[call]}"

    @contextmanager
    def asked_by_model(self, index: int) -> Iterator[None]:
        """What is called inside is call `index` of the last round: its action id goes by that place instead of by its tool's name."""
        before, self._place = self._place, f"{self._round}.{index}"
        try:
            yield
        finally:
            self._place = before

    async def round(self, model: str, request_hash: str, ask: Callable[[], Awaitable[dict[str, Any]]]) -> Any:
        """The response of the next model round: the recorded one, else what `ask` returns, once that is recorded (JSON).

        The request is on record, with the hash of its prompt, before `ask` is awaited; each attempt that asks adds its own event.
        """
        self._round += 1
        asked = {"round": self._round, "model": model, "request_hash": request_hash}
        return await self._ask_model(f"round:{self._round}", asked, ask)

    async def summary(self, model: str, request_hash: str, upto: int, ask: Callable[[], Awaitable[str]]) -> str:
        """What a model makes of the entries up to `upto`: the recorded text, else what `ask` returns, recorded and kept for the session.

        It is no round of the turn: a later attempt, which finds the text with the session, does not come here.
        """

        async def clean() -> str:
            return (await ask()).replace("\0", "\ufffd")

        asked = {"summary_upto": upto, "model": model, "request_hash": request_hash}
        return await self._ask_model(f"summary:{upto}", asked, clean, lambda text: Summary(upto, text))

    async def _ask_model(
        self,
        key: str,
        asked: dict[str, Any],
        ask: Callable[[], Awaitable[Any]],
        summary: Callable[[Any], Summary] | None = None,
    ) -> Any:
        ordinal, known = self._next(), self._known.get(key)
        if known is not None and known.done:
            return known.result
        data = {**asked, "attempt": self._lease.attempt}
        request = StepEvent("model.request", asked)
        begun = RecordStep(self._lease, key, StepKind.ROUND, ordinal, done=False, data=data, events=(request,))
        await self._store.apply(begun)
        result = _storable(await ask(), key)
        kept = None if summary is None else summary(result)
        done = RecordStep(self._lease, key, StepKind.ROUND, ordinal, done=True, data=data, result=result, summary=kept)
        recorded = await self._store.apply(done)
        self._known[key] = recorded
        return recorded.result

    async def call(
        self,
        tool: str,
        kind: ToolClass,
        arguments: Mapping[str, Any],
        run: Callable[[str], Awaitable[Any]],
        *,
        approval_seconds: float | None = None,
    ) -> Any:
        """Run a call once: `run(action_id)` gives a JSON result, or `Effects` to commit with it.

        With `approval_seconds` a person must allow it first; `Denied` after that time. A refusal (`CallboardError`) is recorded as the
        call's result and raised, also when it is fed back later. An agent's own exception is not recorded: the attempt fails, and the
        call goes by its class in the next one.
        """
        action = self.action_id(tool, arguments)
        ordinal = self._next()
        known = self._known.get(action)
        shown = _storable(dict(arguments), f"{tool}.arguments")
        data = {"tool": tool, "arguments": shown}
        if known is not None and known.done:
            return _unpack(tool, action, known.result)
        call = StepEvent("tool.call", {"tool": tool, "action_id": action, "arguments": shown})
        events: tuple[StepEvent, ...] = () if known is not None else (call,)
        if known is not None and kind is ToolClass.EXTERNAL:
            await self._done(action, ordinal, data, {INTERRUPTED: True}, tool, ())
            return Interrupted(tool, action)
        try:
            if approval_seconds is not None and known is None:
                await approved(self._store, self._scope, self._lease, action, tool, shown, approval_seconds)
            if known is None and kind is ToolClass.EXTERNAL:
                await self._store.apply(
                    RecordStep(self._lease, action, StepKind.CALL, ordinal, done=False, data=data, events=events)
                )
                events = ()
            value = await run(action)
            effects = value if isinstance(value, Effects) else Effects(value)
            recorded = await self._done(action, ordinal, data, {"ok": effects.result}, tool, events, effects)
        except PASSING:
            raise
        except CallboardError as error:
            refusal = {"refused": {"code": error.code, "message": error.message, "path": error.path}}
            await self._done(action, ordinal, data, refusal, tool, events)
            raise
        return _unpack(tool, action, recorded.result)

    async def steer(self) -> tuple[TurnMessage, ...]:
        """Take waiting messages that may steer into the turn; the n-th call of every attempt gives the same ones."""
        ordinal = self._next()
        self._steers += 1
        key = f"steer:{self._steers}"
        step = self._known.get(key) or await self._store.apply(Absorb(self._lease, key, ordinal))
        self._known[key] = step
        return tuple(structure(item, TurnMessage) for item in step.result or ())

    async def _done(
        self,
        action: str,
        ordinal: int,
        data: dict[str, Any],
        result: dict[str, Any],
        tool: str,
        events: tuple[StepEvent, ...],
        effects: Effects | None = None,
    ) -> Step:
        # What a later attempt is given comes from a row: the first one is given the same, so a tuple is a list in both.
        result = _storable(result, f"{tool}.result")
        done = StepEvent("tool.result", {"tool": tool, "action_id": action, "result": result})
        step = RecordStep(
            self._lease,
            action,
            StepKind.CALL,
            ordinal,
            done=True,
            data=data,
            result=result,
            sends=effects.sends if effects else (),
            opens=effects.opens if effects else (),
            stops=effects.stops if effects else (),
            handoff=effects.handoff if effects else None,
            events=(*events, done),
        )
        recorded = await self._store.apply(step)
        self._known[action] = recorded
        return recorded

    def _next(self) -> int:
        self._ordinal += 1
        return self._ordinal


def _dump(value: Any, path: str, **options: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, **options)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidField(f"is not JSON: {error}", path=path) from None


def _storable(value: Any, path: str) -> Any:
    """The value as a row gives it back; half a surrogate pair, which no database takes, becomes a question mark."""
    return json.loads(_dump(value, path, ensure_ascii=False).encode("utf-8", "replace"))


def _unpack(tool: str, action: str, result: Any) -> Any:
    if "ok" in result:
        return result["ok"]
    if INTERRUPTED in result:
        return Interrupted(tool, action)
    refused = result["refused"]
    raise error_named(refused["code"], refused["message"], refused["path"])
