"""Metrics in the formats of Prometheus and OpenMetrics: names, types, and what they are read from. The names are in README.

Not here: counting (`figures`, the store). Invariant: one registry of its own for each runtime, and nothing is read from the store while
the metrics are rendered: a slow store gives metrics that say so, not none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ..actors.edges.server import Counts
from ..storage.model.errors import CallboardError
from ..storage.store import Store
from .figures import BUCKETS, Figures
from .tree import Node

if TYPE_CHECKING:
    from prometheus_client import Metric

    from .runtime import Runtime

READ_SECONDS: Final = 2.0
PREFIX: Final = "callboard_"


def installed(package: str = "callboard") -> str:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@attrs.frozen
class Load:
    """What waits in the store: `lag` is how long the mailbox has waited that has waited longest (seconds)."""

    due: int
    held: int
    lag: float


async def load_of(store: Store) -> Load:
    """Read the load. Raises the store's errors."""
    now = store.now()
    due, held = await store.reads.counts(now)
    oldest = await store.reads.oldest_due(now)
    return Load(due, held, 0.0 if oldest is None else max(0.0, now - oldest))


class Metrics:
    """The metrics of one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._registry: Any = None
        self._load: Load | None = None
        self._connections: Counts | None = None

    async def scrape(self, accept: str = "", connections: Counts | None = None) -> tuple[bytes, str]:
        """All metrics in the format that `accept` asks for (text 0.0.4 unless it takes OpenMetrics), and its content type.

        `connections` are the counts of its front, if it has one.
        """
        # In a thread: this library takes a third of a second to load, which would stop everybody.
        await trio.to_thread.run_sync(import_module, "prometheus_client")
        from prometheus_client import CollectorRegistry, ProcessCollector
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            ProcessCollector(registry=self._registry)
            self._registry.register(self)
        load: Load | None = None
        with trio.move_on_after(READ_SECONDS), suppress(CallboardError):  # told by callboard_store_up
            load = await load_of(self._runtime.store)
        # Together with the rendering, which does not wait: two may ask at once.
        self._load, self._connections = load, connections
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        runtime = self._runtime
        yield _gauge("build_info", "The version that runs.", {"version": installed()}, 1)
        yield from _of_messages(runtime.store.tallies)
        yield from _of_turns(runtime.figures)
        live, stuck = runtime.dispatcher.live, runtime.dispatcher.stuck
        yield _gauge("turns_live", "Turns that run now.", {}, len(live) - len(stuck))
        yield _gauge("turns_stuck", "Turns whose agent survived its cancel.", {}, len(stuck))
        yield from _of_store(runtime.store, self._load)
        followers, tails = runtime.desk.tails.followers, runtime.desk.tails.followed
        yield _gauge("followers", "Readers that follow a session's events live.", {}, followers)
        yield _gauge("tails", "Sessions that are followed live.", {}, tails)
        yield _counter(
            "requests", "Requests by route, method and status.", ("route", "method", "status"), runtime.figures.requests
        )
        yield from _of_connections(self._connections)
        yield _restarts(runtime.snapshot())


def _of_messages(tallies: Mapping[tuple[str, str], int]) -> Iterable[Metric]:
    accepted = {(which,): count for (what, which), count in tallies.items() if what == "accepted"}
    yield _counter("messages_accepted", "Messages accepted by this process, by kind.", ("kind",), accepted)
    final = {
        (which if what == "delivered" else "failed", which if what == "failed" else ""): count
        for (what, which), count in tallies.items()
        if what in ("delivered", "failed")
    }
    text = "Messages that reached their final state, by outcome, and by reason if they failed."
    yield _counter("messages_final", text, ("outcome", "reason"), final)
    yield _counter(
        "takeovers", "Turns taken over from a worker that was lost.", (), {(): tallies.get(("takeover", ""), 0)}
    )


def _of_turns(figures: Figures) -> Iterable[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    ends = {(end,): count for end, count in figures.turns.items()}
    yield _counter("turns", "Attempts of turns, by how they ended.", ("end",), ends)
    total, buckets = 0, list[tuple[str, float]]()
    for limit, count in zip((*BUCKETS, math.inf), figures.durations, strict=True):
        total += count
        buckets.append(("+Inf" if limit == math.inf else f"{limit}", total))
    name, text = f"{PREFIX}turn_seconds", "From the claim of a turn to its end."
    yield HistogramMetricFamily(name, text, buckets=buckets, sum_value=figures.seconds)


def _of_store(store: Store, load: Load | None) -> Iterable[Metric]:
    yield _gauge("store_up", "Whether the store answered in time.", {}, load is not None)
    if load is not None:
        yield _gauge("mailboxes_due", "Mailboxes of the store that wait for a turn.", {}, load.due)
        yield _gauge("leases", "Mailboxes of the store that are held, by whichever process.", {}, load.held)
        yield _gauge(
            "lag_seconds", "How long the mailbox of the store has waited that has waited longest.", {}, load.lag
        )
    figures = store.statistics()
    yield _counter("commit_batches", "Transactions of the group commit.", (), {(): figures["batches"]})
    yield _counter("commit_ops", "Writes in them.", (), {(): figures["committed"]})
    yield _gauge("commit_queue", "Writes that wait for a transaction.", {}, figures["depth"])


def _of_connections(counts: Counts | None) -> Iterable[Metric]:
    if counts is None:
        return
    yield _gauge("connections", "Open connections.", {}, counts.connections)
    yield _gauge("websockets", "Those of them that are websockets.", {}, counts.websockets)
    yield _counter("connections_accepted", "Connections accepted.", (), {(): counts.accepted})
    yield _counter("connections_refused", "Connections refused because there were too many.", (), {(): counts.refused})
    yield _counter("connection_failures", "Connections that ended in a fault of ours.", (), {(): counts.failures})


def _restarts(root: Node) -> Metric:
    # The children of the root alone: below them a child for each connection and turn comes and goes.
    restarts = {(child.name,): child.restarts for child in root.children}
    return _gauge_family("restarts", "How often a part of the tree was started anew.", ("child",), restarts)


def _gauge(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    return _gauge_family(name, text, tuple(labels), {tuple(labels.values()): value})


def _gauge_family(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[Any, ...], float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
