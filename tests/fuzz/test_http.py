"""Any bytes as a request: an answer or a hang-up, and the next one is served all the same."""

import http.client
import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.http.serving import HttpServer
from support.waiting import PATIENCE_S
from support.web.in_process import app_of
from support.wires.fuzz import damaged, fuzz

Address = tuple[str, int]
REQUESTS = tuple(
    f"{method} {path} HTTP/{version}\r\nHost: h\r\n{header}\r\n\r\n".encode()
    for method, path, version, header in (
        ("GET", "/metrics", "1.1", "Accept: application/openmetrics-text;version=1.0.0"),
        ("GET", "/healthz", "1.0", "Connection: keep-alive"),
        ("HEAD", "/readyz", "1.1", "Range: bytes=0-1"),
        ("POST", "/metrics", "1.1", "Content-Length: 99999999999"),
        ("GET", "/../../etc/passwd", "1.1", "Transfer-Encoding: chunked"),
        ("GET", "//metrics?name[]=\x7f", "9.9", "Accept: */*;q=x"),
    )
)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    server = HttpServer(app_of(), timeout_s=5)
    yield server.start("127.0.0.1", 0)
    server.stop()


def is_healthy(address: Address) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def answer_to(address: Address, request: bytes) -> bytes:
    with socket.create_connection(address, 10) as peer:
        answer = b""
        try:
            peer.sendall(request)
            peer.shutdown(socket.SHUT_WR)
            while data := peer.recv(65536):
                answer += data
        except OSError:
            return answer
        return answer


@fuzz
@given(damaged(st.sampled_from(REQUESTS)) | st.binary(max_size=60))
@example(b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n")
@example(b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 5_000 + b"\r\n")
@example(b"GET /metrics HTTP/1.1\r\na: " + b"b" * 100_000 + b"\r\n\r\n")
@example(b"GET /metrics HTTP/" + b"9" * 5_000 + b".1\r\n\r\n")
@example(b"GET /healthz HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00")
@example(b"GET /healthz\r\n")
@example(b"\0" * 70_000)
def test_any_request_is_answered_or_cut_off(address: Address, request: bytes) -> None:
    answer = answer_to(address, request)
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    assert is_healthy(address)
