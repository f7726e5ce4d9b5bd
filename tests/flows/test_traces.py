"""Traces: one for each chain, from the send over the turn to the answer, across the mailbox and across restarts; without what was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, StatusCode
from trio.testing import wait_all_tasks_blocked

from callboard import Scripted, Turn, open_runtime
from callboard.actors.session.agents.scripted import Rule, calls
from callboard.supervisors.runtime import Runtime

DEADLINE = 30.0
SECRET = "the-secret-text"
DESK = Scripted(
    [
        Rule(r"ask (\S+) (.*)", calls("agent_send", agent_id=r"\1", message=r"\2")),
        Rule(r"child (.*)", calls("agent", task=r"\1")),
    ],
    otherwise=f"heard {SECRET}",
)


async def traced(turn: Turn) -> str | None:
    """Does what an instrumented library does in an agent's turn."""
    with trace.get_tracer("theirs", tracer_provider=PROVIDERS[-1]).start_as_current_span("theirs"):
        return None


async def broken(turn: Turn) -> None:
    raise RuntimeError(SECRET)


AGENTS: dict[str, Any] = {"desk": DESK, "traced": traced, "broken": broken}
PROVIDERS: list[TracerProvider] = []


class Spans:
    """What was exported, by name and by id."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        PROVIDERS.append(self.provider)

    def open(self, url: str = "sqlite:///:memory:") -> Any:
        return open_runtime(url, agents=AGENTS, executor="inline", tracer_provider=self.provider)

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str, **attributes: Any) -> list[ReadableSpan]:
        given = {"callboard." + key.replace("_", "."): value for key, value in attributes.items()}
        return [
            span
            for span in self.all
            if span.name == name and all((span.attributes or {}).get(key) == value for key, value in given.items())
        ]

    def one(self, name: str, **attributes: Any) -> ReadableSpan:
        (span,) = self.named(name, **attributes)
        return span


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def quiet(runtime: Runtime) -> None:
    """Wait until no message waits and nothing runs."""
    while await runtime.store.reads.counts(float("inf")) != (0, 0) or runtime.dispatcher.live:
        await wait_all_tasks_blocked()


@pytest.mark.spec("OPS-4")
async def test_a_trace_goes_from_the_send_over_the_turn_to_the_answer(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            session = await runtime.open_session(agent="desk", path="/")
            receipt = await runtime.send(session.id, SECRET, message_id="m-1")
            await runtime.wait("m-1")
            await quiet(runtime)
    send, turn, answer = spans.one("callboard.send"), spans.one("callboard.turn"), spans.one("callboard.answer")
    assert (parent(send), parent(turn), parent(answer)) == (None, own(send), own(turn))
    assert len({trace_of(span) for span in (send, turn, answer)}) == 1
    assert (send.kind, turn.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    chosen = dict(turn.attributes or {})
    assert chosen["callboard.session"] == session.id
    assert chosen["callboard.message.id"] == receipt.id
    assert (chosen["callboard.agent"], chosen["callboard.attempt"], chosen["callboard.turn.end"]) == (
        "desk",
        1,
        "answered",
    )
    assert chosen["callboard.seq"] == (answer.attributes or {})["callboard.seq"] == 2
    for span in (send, turn, answer):
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


@pytest.mark.spec("OPS-4")
async def test_what_agents_send_to_each_other_is_one_trace(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            first = await runtime.open_session(agent="desk", path="/")
            second = await runtime.open_session(agent="desk", path="/second")
            await runtime.send(first.id, "ask /second hello", message_id="m-1")
            await runtime.wait("m-1")
            await quiet(runtime)
    assert len({trace_of(span) for span in spans.all}) == 1
    asked = spans.one("callboard.turn", session=first.id)
    sent = spans.one("callboard.send", session=second.id)
    assert parent(sent) == own(asked)
    assert parent(spans.one("callboard.turn", session=second.id)) == own(sent)


async def test_a_childs_result_belongs_to_the_trace_that_started_it(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            desk = await runtime.open_session(agent="desk", path="/")
            await runtime.send(desk.id, "child work", message_id="m-1")
            await runtime.wait("m-1")
            await quiet(runtime)
    assert len({trace_of(span) for span in spans.all}) == 1
    known = {own(span) for span in spans.all}
    assert [parent(span) for span in spans.all if parent(span) not in known] == [None], "one root, no orphan"
    assert spans.one("callboard.send", message_kind="subagent_result")


@pytest.mark.spec("OPS-4")
async def test_the_context_crosses_the_mailbox_and_a_restart(tmp_path: Path) -> None:
    url, before, after = f"sqlite:///{tmp_path}/x.db", Spans(), Spans()
    with trio.fail_after(DEADLINE):
        async with before.open(url) as runtime:
            session = await runtime.open_session(agent="desk", path="/")
            await runtime.dispatcher.shut_down(0)
            await runtime.send(session.id, "later", message_id="m-1")
        async with after.open(url) as runtime:
            await runtime.wait("m-1")
            await quiet(runtime)
    (send,), turn = before.all, after.one("callboard.turn")
    assert (trace_of(turn), parent(turn)) == (trace_of(send), own(send))


async def test_no_span_holds_what_was_said(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            for agent in ("desk", "broken"):
                session = await runtime.open_session(agent=agent, title=SECRET, path=f"/{agent}")
                receipt = await runtime.send(session.id, SECRET)
                async with runtime.follow(session.id) as events:
                    async for event in events:
                        if event.kind in ("turn.completed", "attempt.relinquished"):
                            break
                assert receipt.created
    assert spans.named("callboard.turn", turn_end="retried")[0].status.status_code is StatusCode.ERROR
    assert SECRET not in "".join(span.to_json() for span in spans.all)


async def test_what_the_agent_traces_is_part_of_its_turn(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            session = await runtime.open_session(agent="traced", path="/")
            await runtime.send(session.id, "go", message_id="m-1")
            await runtime.wait("m-1")
            await quiet(runtime)
    assert parent(spans.one("theirs")) == own(spans.one("callboard.turn"))
    assert not spans.named("callboard.answer"), "it said nothing"


async def test_a_senders_own_span_is_linked(spans: Spans) -> None:
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            session = await runtime.open_session(agent="desk", path="/")
            with spans.provider.get_tracer("caller").start_as_current_span("caller") as caller:
                await runtime.send(session.id, "hello", message_id="m-1")
            await runtime.wait("m-1")
            await quiet(runtime)
    assert [link.context.span_id for link in spans.one("callboard.send").links] == [caller.get_span_context().span_id]
    assert trace_of(spans.one("caller")) != trace_of(spans.one("callboard.send"))


async def test_a_trace_is_sampled_as_a_whole() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    with trio.fail_after(DEADLINE):
        async with spans.open() as runtime:
            session = await runtime.open_session(agent="desk", path="/")
            await runtime.send(session.id, "hello", message_id="m-1")
            await runtime.wait("m-1")
    assert spans.all == []


async def test_a_provider_that_takes_no_ids_is_refused_at_open() -> None:
    with pytest.raises(TypeError, match="opentelemetry-sdk"):
        async with open_runtime("sqlite:///:memory:", agents=AGENTS, tracer_provider=NoOpTracerProvider()):  # type: ignore[arg-type]
            raise AssertionError("it must not open")
