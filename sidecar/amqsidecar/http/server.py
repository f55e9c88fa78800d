"""The HTTP server: `/metrics`, `/healthz`, `/readyz`, and nothing else.

Each request has a thread of its own, out of few; a client that is slow, or keeps its connection, is
cut off after a while, so that strangers can't keep a probe waiting.
"""

import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Final

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.telemetry.health import Health, HealthAnswer

MAX_CONNECTIONS: Final = 16
"""So many requests are answered at a time; more are refused."""

TIMEOUT_S: Final = 10.0
"""So long a connection may last altogether."""

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"

RenderMetrics = Callable[[str], tuple[bytes, str]]
"""The `Accept` header to the body and its content type."""


class HttpServer:
    """Serves metrics and health in threads of its own."""

    def __init__(
        self,
        health: Health,
        render_metrics: RenderMetrics,
        *,
        timeout_s: float = TIMEOUT_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._health = health
        self._render_metrics = render_metrics
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Begin to serve; returns address and port, which matters for port 0.

        Raises:
            ConfigError: the address can't be listened on.
        """
        try:
            server = _Server(
                host,
                port,
                self._health,
                self._render_metrics,
                timeout_s=self._timeout_s,
                max_connections=self._max_connections,
            )
        except OSError as error:
            what = f"{host}:{port} can't be listened on: {error.strerror or error}"
            raise ConfigError([Problem("http.listen", what)]) from error
        self._server = server
        self._thread = Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": min(0.1, self._timeout_s / 4)},
            name="http",
            daemon=True,
        )
        self._thread.start()
        address = server.socket.getsockname()
        return address[0], address[1]

    def stop(self) -> None:
        """Stop to serve and cut what is open; safe to call twice, and without `start`."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.cut_off(older_than_s=0)
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Why: `server_close` would wait for clients that are cut off anyway.
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        render_metrics: RenderMetrics,
        *,
        timeout_s: float,
        max_connections: int,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.health = health
        self.render_metrics = render_metrics
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._lock = Lock()
        self._open: dict[socket.socket, float] = {}
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Why: the one of http.server looks the address up in the DNS, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def process_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)  # noqa: S101 - TCP has no other
        request.settimeout(self._timeout_s)
        with self._lock:
            has_room = len(self._open) < self._max_connections
            if has_room:
                self._open[request] = time.monotonic()
        if not has_room:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: object) -> None:
        assert isinstance(request, socket.socket)  # noqa: S101 - TCP has no other
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off what is open for too long; called again and again by `serve_forever`."""
        self.cut_off(older_than_s=self._timeout_s)

    def cut_off(self, *, older_than_s: float) -> None:
        """End connections of a certain age; their threads then end by themselves."""
        now_s = time.monotonic()
        with self._lock:
            for request, since_s in self._open.items():
                if now_s - since_s >= older_than_s:
                    _cut(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that went away is no news."""


def _cut(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "amqsidecar"
    sys_version = ""
    error_content_type = _TEXT
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            body, content_type = self.server.render_metrics(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, body, content_type)
        elif path == "/healthz":
            self._answer_health(self.server.health.healthz())
        elif path == "/readyz":
            self._answer_health(self.server.health.readyz())
        else:
            text = b"404 not found; here are /metrics, /healthz and /readyz\n"
            self._answer(HTTPStatus.NOT_FOUND, text, _TEXT)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _answer_health(self, answer: HealthAnswer) -> None:
        status = HTTPStatus.OK if answer.is_good else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, answer.body, _JSON)

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing: a scrape every few seconds is no news."""
