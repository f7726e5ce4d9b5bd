"""`callboard serve` with traces: they arrive where OpenTelemetry's own variables say, and are all there after a clean stop."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from callboard.tests.flows.cli_kit import run, running, serving

SECRET = "a-secret-text"


class Collector:
    """A collector of traces: keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        keep = self.bodies.append

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                keep(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.mark.spec("OPS-4")
async def test_a_served_message_is_a_trace_at_the_collector(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "callboard.toml").write_text("traces = true\n")
    async with serving(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as server:
        await server.post("/", f"echo {SECRET}")
        await server.until("/", lambda kind, _: kind == "turn.completed")
    found = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies]
    resources = [spans for request in found for spans in request.resource_spans]
    assert "callboard" in {pair.value.string_value for item in resources for pair in item.resource.attributes}
    spans = [span for item in resources for scope in item.scope_spans for span in scope.spans]
    assert sorted(span.name for span in spans) == ["callboard.answer", "callboard.send", "callboard.turn"]
    assert len({span.trace_id for span in spans}) == 1
    assert SECRET.encode() not in b"".join(collector.bodies)


async def test_without_the_extra_it_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("traces = true\n")
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\nfrom callboard.supervisors.cli import run\n"
        "sys.exit(run(['serve', '--port', '0']))"
    )
    async with running(folder=tmp_path, prelude=("-c", code)) as command:
        done = await command.end()
    assert done.code == 1
    assert done.refusal == "traces: needs the extra otel: pip install 'callboard[otel]'"


async def test_nothing_is_sent_unless_it_is_wanted(tmp_path: Path, collector: Collector) -> None:
    async with serving(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as server:
        await server.post("/", "echo hi")
        await server.until("/", lambda kind, _: kind == "turn.completed")
    assert collector.bodies == []
    assert (await run("doctor", folder=tmp_path)).code == 0
