"""Traces, as a collector receives them: a real one, on a socket, that speaks OTLP over HTTP."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from tests.support import ServerProcess
from topics.http.tracing import Tracing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.bytes = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        self.bytes += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for attribute in resource.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "") for a in span.attributes}


def test_a_write_within_the_callers_trace(tmp_path: Path, collector: Collector) -> None:
    server = ServerProcess(
        tmp_path,
        TOPICS_TRACING="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        TOPICS_API_KEYS="Sesame-open",
    ).start()
    key = {"Authorization": "Bearer Sesame-open"}
    sent = {**key, "traceparent": f"00-{TRACE}-{CALLER}-01", "X-Request-Id": "mine"}
    write = {"records": [{"data": 1}]}
    assert server.request("POST", "/v0/topics/a", write, sent).status == 201
    assert server.request("POST", "/v0/topics/a", write, key).status == 200
    assert server.request("POST", "/v0/topics/a/diff", {}, key).status == 200
    assert server.request("POST", "/v0/topics/a", {"records": 0}, key).status == 400
    assert (
        server.request("GET", "/nowhere?token=Sesame-open", None, {"traceparent": "nonsense"}).status == 401
    )
    server.stop()

    assert collector.services == {"topics"}
    first, second, refused = collector.named("POST /v0/topics/:topic")
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, CALLER)
    assert first.kind == Span.SPAN_KIND_SERVER
    assert attributes(first) == {
        "http.request.method": "POST",
        "http.route": "/v0/topics/:topic",
        "http.response.status_code": 201,
        "topics.name": "a",
        "topics.request_id": "mine",
    }
    commit, other = collector.named("commit")
    assert other.parent_span_id == second.span_id
    assert (commit.trace_id, commit.parent_span_id) == (first.trace_id, first.span_id)
    assert first.start_time_unix_nano <= commit.start_time_unix_nano <= commit.end_time_unix_nano
    assert commit.end_time_unix_nano <= first.end_time_unix_nano
    assert attributes(refused)["http.response.status_code"] == 400
    (read,) = collector.named("POST /v0/topics/:topic/diff")
    assert read.trace_id != first.trace_id
    assert not read.parent_span_id
    assert collector.named("recovery")
    (unknown,) = collector.named("GET none")
    assert not unknown.parent_span_id
    assert b"Sesame" not in collector.bytes


def test_a_caller_that_is_not_sampled_is_not_traced(tmp_path: Path, collector: Collector) -> None:
    server = ServerProcess(
        tmp_path, TOPICS_TRACING="1", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, OTEL_SERVICE_NAME="log-7"
    ).start()
    server.request("GET", "/v0/topics", None, {"traceparent": f"00-{TRACE}-{CALLER}-00"})
    server.stop()
    assert collector.services == {"log-7"}
    assert not collector.named("GET /v0/topics")


def test_a_collector_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.http.tracing._LAST_WORDS_S", 0.01)
    given_up = threading.Event()

    class Exporter(SpanExporter):
        def shutdown(self) -> None:
            given_up.set()

    class Provider(TracerProvider):
        def shutdown(self) -> None:
            assert given_up.wait(20)

    Tracing(Provider(shutdown_on_exit=False), Exporter()).stop()


def test_without_tracing_nothing_of_it_is_loaded() -> None:
    code = "import sys, topics.http.app; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_without_the_packages_it_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from topics.cli.main import main; sys.exit(main(['serve', '--data-dir', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={"TOPICS_TRACING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == "topics: TOPICS_TRACING needs `pip install topics-log[otel]`\n"
