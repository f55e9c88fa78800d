"""The HTTP server serves metrics and health and can't be kept busy by strangers."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator

import pytest

from amqsidecar import __version__
from amqsidecar.errors import ConfigError
from amqsidecar.http.serving import HttpServer
from amqsidecar.telemetry.health import Health
from support.web import app_of


@pytest.fixture
def health() -> Health:
    return Health()


StartServer = Callable[..., tuple[str, int]]


@pytest.fixture
def start(health: Health) -> Iterator[StartServer]:
    servers = []

    def run(**options: object) -> tuple[str, int]:
        server = HttpServer(app_of(health), **options)
        servers.append(server)
        return server.start("127.0.0.1", 0)

    yield run
    for server in servers:
        server.stop()


def ask(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection(*address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Content-Type"]
    finally:
        connection.close()


def test_metrics_are_served_as_prometheus_text(start: StartServer) -> None:
    status, body, content_type = ask(start(), "/metrics?x=1")
    assert status == 200
    assert b"amqsidecar_link_up 0.0" in body
    assert content_type.startswith("text/plain")


def test_a_scraper_may_ask_for_openmetrics(start: StartServer) -> None:
    connection = http.client.HTTPConnection(*start(), timeout=10)
    connection.request(
        "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.read().endswith(b"# EOF\n")
    connection.close()


def test_the_process_is_healthy_while_it_answers(start: StartServer) -> None:
    status, body, content_type = ask(start(), "/healthz")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "version": __version__}


def test_readiness_needs_link_and_store(start: StartServer, health: Health) -> None:
    address = start()
    assert ask(address, "/readyz")[0] == 503
    health.store_ok()
    health.link_up()
    status, body, _ = ask(address, "/readyz")
    assert status == 200
    assert json.loads(body) == {
        "status": "ready",
        "link": {"up": True, "reason": ""},
        "store": {"ok": True, "reason": ""},
        "token": {"state": "ours", "reason": ""},
        "intake": {"read": 0, "refused": {}, "reason": ""},
    }
    health.link_down("the broker is away")
    status, body, _ = ask(address, "/readyz")
    assert status == 503
    assert json.loads(body)["link"] == {"up": False, "reason": "the broker is away"}


def test_a_full_disk_is_not_ready(start: StartServer, health: Health) -> None:
    health.link_up()
    health.store_failed("disk full")
    status, body, _ = ask(start(), "/readyz")
    assert status == 503
    assert json.loads(body)["store"] == {"ok": False, "reason": "disk full"}


def test_who_can_read_nothing_at_all_is_not_ready(start: StartServer, health: Health) -> None:
    """One refused queue of several is told, and no reason to take the others away."""
    health.link_up()
    health.store_ok()
    health.intake(1, {"B.DLQ": "no permission"}, "")
    status, body, _ = ask(start(), "/readyz")
    assert status == 200
    assert json.loads(body)["intake"] == {
        "read": 1,
        "refused": {"B.DLQ": "no permission"},
        "reason": "",
    }
    health.intake(0, {}, "grant manage")
    status, body, _ = ask(start(), "/readyz")
    assert status == 503
    assert json.loads(body)["intake"]["reason"] == "grant manage"


def test_an_observer_is_ready_without_a_token_and_a_store(
    start: StartServer, health: Health
) -> None:
    health.looking()
    status, body, _ = ask(start(), "/readyz")
    assert status == 200
    assert json.loads(body)["token"] == {"state": "not needed", "reason": ""}


def test_an_awaited_token_is_told(start: StartServer, health: Health) -> None:
    health.token_awaited("another process holds it")
    answer = json.loads(ask(start(), "/readyz")[1])
    assert answer["token"] == {"state": "awaited", "reason": "another process holds it"}


@pytest.mark.parametrize("path", ["/", "/api/v1/messages", "/metrics/x", "/healthz/"])
def test_nothing_else_is_served(start: StartServer, path: str) -> None:
    assert ask(start(), path)[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_head_tells_the_length_without_the_body(start: StartServer, path: str) -> None:
    status, body, _ = ask(start(), path, "HEAD")
    assert (status, body) == (200, b"")


def test_what_is_not_read_only_is_refused(start: StartServer) -> None:
    assert ask(start(), "/metrics", "POST")[0] == 405


def test_a_silent_client_is_cut_off(start: StartServer) -> None:
    address = start(timeout_s=0.2)
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(b"GET /metrics HT")
        assert client.recv(1000) in (b"", b"408 request timeout\n")


def test_silent_clients_leave_room_for_probes_in_time(start: StartServer) -> None:
    address = start(timeout_s=0.3, max_connections=1)
    with socket.create_connection(address, timeout=10) as silent:
        silent.sendall(b"G")
        with socket.create_connection(address, timeout=10) as refused:
            assert refused.recv(1) == b""
        assert silent.recv(1) == b""
    assert ask(address, "/healthz")[0] == 200


def test_stop_cuts_open_connections(health: Health) -> None:
    server = HttpServer(app_of(health))
    address = server.start("127.0.0.1", 0)
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(12).endswith(b" 200")
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)


def test_an_address_in_use_is_a_wrong_configuration(start: StartServer, health: Health) -> None:
    host, port = start()
    with pytest.raises(ConfigError, match=r"http\.listen: .* can't be listened on"):
        HttpServer(app_of(health)).start(host, port)
