"""The HTTP server serves metrics and health and can't be kept busy by strangers."""

import asyncio
import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Event, Semaphore
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar import __version__
from amqsidecar.errors import ConfigError, Problem, StoreUnavailable
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.guard import MAX_BODY_BYTES
from amqsidecar.http.serving import HttpServer, _listen
from amqsidecar.http.store_queries import MAX_QUESTIONS, THREADS
from amqsidecar.runtime.worker import LEFT, STOP_S
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.health import Health
from support.waiting import PATIENCE_S
from support.web.in_process import OPEN_ACCESS, app_of, caller_as, make_queries


@pytest.fixture
def health() -> Health:
    return Health()


StartServer = Callable[..., tuple[str, int]]


@pytest.fixture
def start(health: Health) -> Iterator[StartServer]:
    servers = []

    def run(**options: Any) -> tuple[str, int]:
        server = HttpServer(app_of(health), **options)
        servers.append(server)
        return server.start("127.0.0.1", 0)

    yield run
    for server in servers:
        server.stop()


def ask(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
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
    connection = http.client.HTTPConnection(*start(), timeout=PATIENCE_S)
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
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    status, body, _ = ask(address, "/readyz")
    assert status == 200
    assert json.loads(body) == {
        "status": "ready",
        "link": {"up": True, "reason": ""},
        "store": {"ok": True, "reason": ""},
        "token": {"state": "ours", "reason": ""},
        "intake": {"read": 0, "refused": {}, "reason": ""},
        "other_schedules": [],
        "clock": {"behind_s": 0.0},
        "taking": {"ok": True, "reason": ""},
    }
    health.link_down("the broker is away")
    status, body, _ = ask(address, "/readyz")
    assert status == 503
    assert json.loads(body)["link"] == {"up": False, "reason": "the broker is away"}


def test_a_full_disk_is_not_ready(start: StartServer, health: Health) -> None:
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    health.store_failed("disk full")
    status, body, _ = ask(start(), "/readyz")
    assert status == 503
    assert json.loads(body)["store"] == {"ok": False, "reason": "disk full"}


def test_a_sidecar_that_can_read_nothing_is_not_ready(start: StartServer, health: Health) -> None:
    """One refused queue of several is reported, and no reason to take the others away."""
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
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


@pytest.mark.parametrize("health", [Health(needs_token=False)])
def test_an_observer_is_ready_without_a_token_and_a_store(
    start: StartServer, health: Health
) -> None:
    health.link_up("ActiveMQ Classic 6.3.2 at tcp://broker:61616")
    status, body, _ = ask(start(), "/readyz")
    assert status == 200
    assert json.loads(body)["token"] == {"state": "not needed", "reason": ""}


def test_an_awaited_token_is_reported(start: StartServer, health: Health) -> None:
    health.token_awaited("another process holds it")
    answer = json.loads(ask(start(), "/readyz")[1])
    assert answer["token"] == {"state": "awaited", "reason": "another process holds it"}


@pytest.mark.parametrize("path", ["/", "/api/v1/messages", "/metrics/x", "/healthz/"])
def test_nothing_else_is_served(start: StartServer, path: str) -> None:
    assert ask(start(), path)[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
def test_head_has_the_length_without_the_body(start: StartServer, path: str) -> None:
    status, body, _ = ask(start(), path, "HEAD")
    assert (status, body) == (200, b"")


def test_what_is_not_read_only_is_refused(start: StartServer) -> None:
    assert ask(start(), "/metrics", "POST")[0] == 405


@pytest.mark.parametrize(
    "said",
    [b"G", b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"],
    ids=["head", "body"],
)
def test_a_client_that_falls_silent_is_cut_off(start: StartServer, said: bytes) -> None:
    with (
        socket.create_connection(start(timeout_s=0.3), timeout=PATIENCE_S) as client,
        suppress(ConnectionError),  # A busy machine sends for the first time after the cut.
    ):
        client.sendall(said)
        assert client.recv(1) == b""


def test_silent_clients_leave_room_for_probes(start: StartServer) -> None:
    """Or anyone who reaches the port could make the kubelet believe that the sidecar is dead."""
    address = start(timeout_s=60, max_connections=2)
    with (
        socket.create_connection(address, timeout=PATIENCE_S) as slow,
        socket.create_connection(address, timeout=PATIENCE_S) as kept_alive,
    ):
        slow.sendall(b"GET /hea")
        kept_alive.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept_alive.recv(12).endswith(b" 200")
        assert ask(address, "/healthz")[0] == 200
        while kept_alive.recv(4096):
            pass
        with socket.create_connection(address, timeout=PATIENCE_S):
            assert ask(address, "/healthz")[0] == 200
            assert slow.recv(1) == b""


def test_a_connection_that_is_answered_is_not_cut_for_others() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async def page(_request: Request) -> Response:
        return StreamingResponse(endless())

    app = make_app(probes_of(make_queries()), OPEN_ACCESS, [Route("/page", page)])
    server = HttpServer(app, timeout_s=60, max_connections=1)
    address = server.start("127.0.0.1", 0)
    with socket.create_connection(address, timeout=PATIENCE_S) as reader:
        reader.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(12).endswith(b" 200")
        with socket.create_connection(address, timeout=PATIENCE_S) as refused:
            assert refused.recv(1) == b""
        for _ in range(3):
            assert reader.recv(100)
    server.stop()


def test_stop_cuts_open_connections(health: Health) -> None:
    server = HttpServer(app_of(health))
    address = server.start("127.0.0.1", 0)
    with socket.create_connection(address, timeout=PATIENCE_S) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(12).endswith(b" 200")
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE_S)


def test_an_address_in_use_is_a_wrong_configuration(start: StartServer, health: Health) -> None:
    host, port = start()
    with pytest.raises(ConfigError, match=r"http\.listen: .* can't be listened on"):
        HttpServer(app_of(health)).start(host, port)


# --- bounds -----------------------------------------------------------------------------------


def test_ipv6_is_served(health: Health) -> None:
    server = HttpServer(app_of(health))
    address = server.start("::1", 0)
    assert ask(address, "/healthz")[0] == 200
    server.stop()


def test_a_body_that_says_it_is_too_large_is_refused_at_once(start: StartServer) -> None:
    with socket.create_connection(start(), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
        assert b" 413 " in client.recv(1000)


def test_a_body_without_an_end_is_not_read_for_ever(start: StartServer) -> None:
    with socket.create_connection(start(), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with suppress(ConnectionError):
            while sent < 10 * MAX_BODY_BYTES:
                sent += client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert sent < 10 * MAX_BODY_BYTES


def test_no_answer_waits_for_its_head_to_be_acknowledged() -> None:
    """So asyncio decides about Nagle's algorithm, which costs 40 ms an answer."""
    with _listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_store_whose_password_is_just_replaced_is_away_for_a_moment(health: Health) -> None:
    """The file of a mounted secret is gone then; that is no fault of the program."""

    def open_schedule() -> Schedule:
        raise ConfigError([Problem("store.password_file", "/run/secret can't be read")])

    queries = make_queries(health, open_schedule=open_schedule)

    async def page(_request: Request) -> Response:
        return Response(str(await queries.ask(caller_as(), lambda at: at.now_ms)))

    server = HttpServer(make_app(probes_of(queries), OPEN_ACCESS, [Route("/page", page)]))
    address = server.start("127.0.0.1", 0)
    status, body, _ = ask(address, "/page")
    server.stop()
    queries.close()
    assert (status, b"store.password_file" in body) == (503, True)


def test_probes_are_answered_while_every_question_waits_for_a_store(health: Health) -> None:
    """A store that is locked holds up pages, never a probe."""
    locked, begun = Event(), Semaphore(0)

    def open_schedule() -> Schedule:
        begun.release()
        locked.wait(PATIENCE_S)
        raise StoreUnavailable("locked for too long")

    queries = make_queries(health, open_schedule=open_schedule)

    async def page(_request: Request) -> Response:
        return Response(str(await queries.ask(caller_as(), lambda at: at.now_ms)))

    app = make_app(probes_of(queries), OPEN_ACCESS, [Route("/page", page)])
    server = HttpServer(app, max_connections=200, max_per_address=200)
    address = server.start("127.0.0.1", 0)
    waiting = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(THREADS + 5)]
    for client in waiting:
        client.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(THREADS):
        assert begun.acquire(timeout=PATIENCE_S)
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/metrics", 200)):
        assert ask(address, path)[0] == status
    more = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(MAX_QUESTIONS + 5)]
    for client in more:
        client.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 503 " in more[-1].recv(20)
    locked.set()
    for client in waiting:
        assert b" 503 " in client.recv(20)
    for client in (*waiting, *more):
        client.close()
    server.stop()
    queries.close()


def test_a_stop_leaves_queries_of_a_store_that_hangs() -> None:
    """They shared no limit, and a queue full of others held it up for ever."""
    hung, begun = Event(), Semaphore(0)

    def open_schedule() -> Schedule:
        begun.release()
        hung.wait()
        raise StoreUnavailable("gone")

    queries = make_queries(open_schedule=open_schedule)

    async def ask_all() -> list[object]:
        def ask(count: int) -> list[asyncio.Task[int]]:
            question = partial(queries.ask, caller_as(), lambda at: at.now_ms)
            return [asyncio.create_task(question()) for _ in range(count)]

        asked = ask(MAX_QUESTIONS)
        await asyncio.to_thread(lambda: [begun.acquire() for _ in range(THREADS)])
        asked += ask(THREADS)
        await asyncio.sleep(0)
        began_s = time.monotonic()
        await asyncio.to_thread(queries.close)
        assert time.monotonic() - began_s < 2 * STOP_S
        left = {f"queries-{number}" for number in range(THREADS)}
        assert left <= LEFT
        LEFT.difference_update(left)
        hung.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    ends = Counter(type(one) for one in asyncio.run(ask_all()))
    assert ends.keys() == {StoreUnavailable, asyncio.CancelledError}


def test_without_a_log_in_only_names_of_this_machine_are_answered(start: StartServer) -> None:
    """Another name may be a site's that wants the browser to take us for its own."""
    address = start()
    for host, status in (
        ("localhost:1", 404),
        ("127.0.0.1", 404),
        ("[::1]:9464", 404),
        ("evil.example", 421),
        ("localhost.evil.example:9464", 421),
        ("", 421),
    ):
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
        connection.request("GET", "/x", headers={"Host": host})
        assert connection.getresponse().status == status, host
        connection.close()
