"""Traces by OpenTelemetry (extra `otel`): one for each chain of messages, from the send over the turn to the answer.

Lives here: spans, how they find each other, and the provider of a server. An embedding program brings its own.

The context crosses the mailbox without a column: trace ids are derived from chains, span ids from messages and attempts. So a turn knows its
parent, the send of its message, whatever process wrote it and however long ago. What the store itself sends (a child's result, a notice)
has its send written by the turn that takes it, as nobody else tells of it.

Invariant: spans have ids, names and figures, never what anybody wrote.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import attrs
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ..actors.ports import TurnEnd, TurnFacts, TurnWatch
from ..storage.model.messages import NOTICES
from ..storage.model.turns import Lease
from ..storage.ops import CommitTurn, Enqueue, Op, RecordStep

T = TypeVar("T")
SEND, TURN, ANSWER = "callboard.send", "callboard.turn", "callboard.answer"
FAILED: Final = frozenset({"failed", "retried", "lost", "unknown"})
"""Ends that are an error of the attempt's span."""


def exporting() -> TracerProvider:
    """A provider that sends spans by OTLP over HTTP, set by OpenTelemetry's own variables; shut it down at the end, which blocks.

    Raises `ImportError` if the exporter is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "callboard"}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traces:
    """A `Meter` that writes spans. `committed` is for the store, which tells it of sends and answers."""

    def __init__(self, provider: TracerProvider) -> None:
        """Raises `TypeError` for a provider that is not the SDK's: only its tracers take ids that were chosen."""
        tracer = provider.get_tracer("callboard")
        if not isinstance(tracer, Tracer):
            raise TypeError(f"a TracerProvider of opentelemetry-sdk is needed, not {type(provider).__name__}")
        self._tracer = tracer
        self._ids = tracer.id_generator = _Ids(tracer.id_generator)
        self._live: dict[tuple[int, int], _Turn] = {}

    def turn(self, facts: TurnFacts) -> TurnWatch:
        """Begin the span of an attempt."""
        chosen = _chosen(facts)
        if facts.kind in NOTICES and facts.attempt == 1:
            at = int(facts.created_at * 1e9)
            self._write(SEND, SpanKind.PRODUCER, facts.chain, facts.message, self._origin(facts), chosen, at, at)
        parent = _span_id(SEND, facts.message)
        span = self._begin(TURN, SpanKind.CONSUMER, facts.chain, _attempt_id(facts), parent, chosen)
        watch = _Turn(self, facts, span)
        self._live[facts.mailbox, facts.epoch] = watch
        return watch

    def answered(self, route: str, method: str, status: int) -> None:
        return

    def committed(self, op: Op[Any], result: Any, seconds: float) -> None:
        """Write the spans of what `op` has sent or answered."""
        match op:
            case Enqueue():
                self._sent((op,), None, seconds, created=result.created, message=result.id)
            case RecordStep(sends=sends) if sends:
                self._sent(sends, self._live.get(_key(op.lease)), seconds)
            case CommitTurn(answer=str()):
                watch = self._live.get(_key(op.lease))
                if watch is not None:
                    facts, end = watch.facts, time.time_ns()
                    chosen = {**_chosen(facts), "callboard.seq": result.seq}
                    name, parent = f"{facts.turn}.{facts.attempt}", _attempt_id(facts)
                    self._write(ANSWER, SpanKind.INTERNAL, facts.chain, name, parent, chosen, end - _ns(seconds), end)
            case _:
                pass

    def over(self, facts: TurnFacts) -> None:
        """An attempt has ended."""
        self._live.pop((facts.mailbox, facts.epoch), None)

    def _sent(self, sends: Iterable[Enqueue], by: _Turn | None, seconds: float, **more: Any) -> None:
        end = time.time_ns()
        for send in sends:
            chosen: dict[str, Any] = {
                "callboard.project": send.scope.project,
                "callboard.session": send.recipient.removeprefix("session:"),
                "callboard.message.id": more.get("message", send.id),
                "callboard.message.kind": str(send.kind),
                "callboard.message.created": more.get("created", True),
            }
            origin = _span_id(SEND, send.chain) if send.chain != send.id else None
            parent = origin if by is None else _attempt_id(by.facts)
            self._write(SEND, SpanKind.PRODUCER, send.chain, send.id, parent, chosen, end - _ns(seconds), end)

    def _origin(self, facts: TurnFacts) -> int | None:
        return _span_id(SEND, facts.chain) if facts.chain != facts.message else None

    def _write(
        self,
        name: str,
        kind: SpanKind,
        chain: str,
        own: str,
        parent: int | None,
        chosen: dict[str, Any],
        start: int,
        end: int,
    ) -> None:
        self._begin(name, kind, chain, _span_id(name, own), parent, chosen, start).end(end)

    def _begin(
        self,
        name: str,
        kind: SpanKind,
        chain: str,
        own: int,
        parent: int | None,
        chosen: dict[str, Any],
        start: int | None = None,
    ) -> Span:
        """A span under its derived ids. A span of the program that calls us is linked: it has another trace."""
        trace_id, here = _trace_id(chain), trace.get_current_span().get_span_context()
        links = [Link(here)] if here.is_valid and here.trace_id != trace_id else []
        context = Context()
        if parent is not None:
            sampled = self._tracer.sampler.should_sample(Context(), trace_id, SEND).decision.is_sampled()
            flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
            remote = SpanContext(trace_id, parent, is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(NonRecordingSpan(remote), context)
        with self._ids.chosen(trace_id, own):
            return self._tracer.start_span(name, context, kind, chosen, links, start)


@attrs.frozen
class _Turn:
    """The span of one attempt."""

    traces: Traces
    facts: TurnFacts
    span: Span

    async def running(self, run: Awaitable[T]) -> T:
        """What the agent's own libraries trace belongs to its turn."""
        with trace.use_span(self.span, record_exception=False, set_status_on_exception=False):
            return await run

    def ended(self, end: TurnEnd) -> None:
        self.span.set_attribute("callboard.turn.end", end.end)
        if end.seq is not None:
            self.span.set_attribute("callboard.seq", end.seq)
        if end.end in FAILED:
            self.span.set_status(Status(StatusCode.ERROR, end.end))
        self.span.end()
        self.traces.over(self.facts)


class _Ids(IdGenerator):
    """Gives the ids that were chosen for the span that is being started."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others
        self._chosen: tuple[int, int] | None = None

    @contextmanager
    def chosen(self, trace_id: int, span_id: int) -> Iterator[None]:
        self._chosen = trace_id, span_id
        try:
            yield
        finally:
            self._chosen = None

    def generate_trace_id(self) -> int:
        return self._others.generate_trace_id() if self._chosen is None else self._chosen[0]

    def generate_span_id(self) -> int:
        return self._others.generate_span_id() if self._chosen is None else self._chosen[1]

    def is_trace_id_random(self) -> bool:
        return True  # a digest is spread as evenly


def _chosen(facts: TurnFacts) -> dict[str, Any]:
    return {
        "callboard.project": facts.project,
        "callboard.session": facts.session,
        "callboard.agent": facts.agent,
        "callboard.turn.id": facts.turn,
        "callboard.attempt": facts.attempt,
        "callboard.message.id": facts.message,
        "callboard.message.kind": facts.kind,
    }


def _key(lease: Lease) -> tuple[int, int]:
    return lease.mailbox, lease.epoch


def _attempt_id(facts: TurnFacts) -> int:
    return _span_id(TURN, f"{facts.turn}.{facts.attempt}")


def _trace_id(chain: str) -> int:
    return _digest("trace", chain, 16)


def _span_id(name: str, own: str) -> int:
    return _digest(name, own, 8)


def _digest(kind: str, text: str, size: int) -> int:
    # Zero is no id.
    return int.from_bytes(hashlib.blake2b(f"{kind}:{text}".encode(), digest_size=size).digest(), "big") or 1


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
