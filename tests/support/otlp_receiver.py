"""A receiver of OTLP over HTTP that decodes by the protocol's own classes, hangs or refuses."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Behaviour(Enum):
    """What the receiver does with requests."""

    TAKE = 200
    UNAVAILABLE = 503
    REFUSE = 400
    HANG = 0


class OtlpReceiver(ThreadingHTTPServer):
    """Keeps what it is sent; `behaviour` may change at any time.

    Attributes:
        pause_s: before each answer.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.behaviour = Behaviour.TAKE
        self.released = Event()
        self.pause_s = 0.0
        self.requests = 0
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []
        self.metrics: list[Metric] = []
        self.scopes: dict[str, str] = {}
        self.resource: dict[str, Any] = {}
        self.headers: list[Mapping[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = attributes_of(traces.resource.attributes)
                self.spans += [span for scope in traces.scope_spans for span in scope.spans]
        elif path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for scope in logs.scope_logs:
                    self.logs += scope.log_records
                    bodies = [one.body.string_value for one in scope.log_records]
                    self.scopes |= dict.fromkeys(bodies, scope.scope.name)
        else:
            assert path == "/v1/metrics", path
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [one for scope in metrics.scope_metrics for one in scope.metrics]


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        receiver = self.server
        receiver.requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        behaviour = receiver.behaviour
        if behaviour is Behaviour.HANG:
            receiver.released.wait()
            return
        receiver.released.wait(receiver.pause_s)
        if behaviour is Behaviour.TAKE:
            receiver.headers.append(dict(self.headers))
            receiver.take(self.path, body)
        self.send_response(behaviour.value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[OtlpReceiver]:
    """Run a receiver while the block runs."""
    receiver = OtlpReceiver(port)
    thread = Thread(target=receiver.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        receiver.shutdown()
        receiver.server_close()
        thread.join()


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return attributes as plain values."""

    def plain(pair: KeyValue) -> Any:
        return getattr(pair.value, str(pair.value.WhichOneof("value")))

    return {pair.key: plain(pair) for pair in pairs}
