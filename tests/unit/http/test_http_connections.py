"""Connections that strangers hold: none of them keeps metrics and health out."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypedDict, Unpack

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar.http import serving
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.serving import MAX_CONNECTIONS, PROBE_PLACES, HttpServer
from support.waiting import PATIENCE_S, eventually
from support.web.in_process import OPEN_ACCESS, make_queries

Address = tuple[str, int]


async def large(_request: Request) -> Response:
    """Send more than any buffer of the system holds."""

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)

    return StreamingResponse(pieces())


async def steady(_request: Request) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    return StreamingResponse(lines())


class Bounds(TypedDict, total=False):
    timeout_s: float
    max_connections: int
    max_per_address: int
    is_shared: Callable[[str], bool]


@contextmanager
def serving_on(
    host: str = "127.0.0.1", **bounds: Unpack[Bounds]
) -> Iterator[tuple[Address, HttpServer]]:
    app = make_app(
        probes_of(make_queries()), OPEN_ACCESS, [Route("/large", large), Route("/steady", steady)]
    )
    server = HttpServer(app, **bounds)
    address = server.start(host, 0)
    try:
        yield address, server
    finally:
        server.stop()


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def ask(address: Address, path: str, source: str = "127.0.0.1") -> bytes:
    """Return all that comes until the connection ends, or the first answer."""
    with socket.create_connection(
        address, timeout=PATIENCE_S, source_address=(source, 0)
    ) as client:
        client.sendall(request(path))
        return client.recv(4096)


def attackers(
    stack: ExitStack, address: Address, count: int, paths: Sequence[str], source: str = "127.0.0.1"
) -> list[socket.socket]:
    """Return connections that ask and never read."""
    found = []
    for _ in range(count):
        client = socket.socket()
        stack.enter_context(closing(client))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_S)
        client.bind((source, 0))
        client.connect(address)
        client.sendall(b"".join(map(request, paths)))
        found.append(client)
    return found


def test_a_client_that_pipelines_and_never_reads_keeps_no_probe_out() -> None:
    with serving_on() as (address, _), ExitStack() as stack:
        attackers(stack, address, MAX_CONNECTIONS + 16, ["/large"] * 20)
        for _ in range(3):
            attackers(stack, address, 10, ["/large"] * 20)
            for path in ("/healthz", "/readyz", "/metrics"):
                assert ask(address, path).startswith(b"HTTP/1.1 ")


def test_a_busy_connection_keeps_no_probe_out() -> None:
    with (
        serving_on(max_connections=8, max_per_address=8) as (address, _),
        ExitStack() as stack,
    ):
        busy = attackers(stack, address, 8, ["/steady"])
        for client in busy:
            assert client.recv(12).endswith(b" 200")
        silent = attackers(stack, address, PROBE_PLACES, [])
        for path in ("/healthz", "/metrics"):
            assert b" 200 " in ask(address, path)
        assert b" 503 " in ask(address, "/large")
        assert b"connection: close" in ask(address, "/healthz").lower()
        for client in busy:
            assert client.recv(1)
        assert len(silent) == PROBE_PLACES


def test_unread_answers_count_as_idle() -> None:
    with (
        serving_on(max_connections=4, max_per_address=4, timeout_s=60) as (address, _),
        ExitStack() as stack,
    ):
        attackers(stack, address, 4, ["/large"])
        eventually(lambda: b" 200 " in ask(address, "/large"))


def test_an_unread_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is smaller than what a connection holds back by itself."""
    with serving_on(timeout_s=0.3) as (address, server), ExitStack() as stack:
        attackers(stack, address, 3, ["/large"])
        state = server._server.server_state
        eventually(lambda: not state.connections)


def test_no_address_takes_all_places_but_a_proxys() -> None:
    def places(address: Address, count: int) -> int:
        with ExitStack() as stack:
            answers = [
                client.recv(12)
                for _ in range(count)
                for client in attackers(stack, address, 1, ["/steady"], "127.0.0.2")
            ]
            assert b" 200 " in ask(address, "/steady")
        return sum(answer.endswith(b" 200") for answer in answers)

    with serving_on(max_connections=8, max_per_address=4) as (address, _):
        assert places(address, 6) == 4
    shared = "127.0.0.2".__eq__
    with serving_on(max_connections=8, max_per_address=4, is_shared=shared) as (address, _):
        assert places(address, 6) == 6


def test_of_pipelined_requests_the_first_is_answered() -> None:
    with (
        serving_on() as (address, _),
        socket.create_connection(address, timeout=PATIENCE_S) as client,
    ):
        client.sendall(request("/healthz") * 5)
        answers = b""
        while part := client.recv(4096):
            answers += part
    assert answers.count(b"HTTP/1.1 ") == 1


def test_requests_one_after_the_other_share_a_connection() -> None:
    with (
        serving_on() as (address, _),
        socket.create_connection(address, timeout=PATIENCE_S) as client,
    ):
        for _ in range(5):
            client.sendall(request("/healthz"))
            answer = b""
            while not answer.endswith(b"}\n"):
                answer += client.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")


def test_the_places_of_probes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PROBE_PLACES", 2)
    with (
        serving_on(max_connections=1, max_per_address=1) as (address, server),
        ExitStack() as stack,
    ):
        attackers(stack, address, 1, ["/steady"])[0].recv(12)
        attackers(stack, address, 20, [])
        state = server._server.server_state
        eventually(lambda: len(state.connections) <= 3)
        assert b" 200 " in ask(address, "/healthz")
