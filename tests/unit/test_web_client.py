"""Requests to sidecars end within their bounds, whatever answers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from amqsidecar.web_client import Client, RawAnswer, Unreachable

MAX_BYTES: Final = 1_000
TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@asynccontextmanager
async def answering(*pieces: bytes, ends: bool = True) -> AsyncIterator[str]:
    """RawAnswer each connection with these bytes; gives the URL."""

    writers = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.writelines(pieces)
        if ends:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            # Why several turns: a connection may have been accepted just now.
            for _ in range(10):
                for writer in writers:
                    writer.transport.abort()
                await asyncio.sleep(0)


def asked(*pieces: bytes, ends: bool = True, timeout_s: float = 10.0) -> RawAnswer:
    async def ask() -> RawAnswer:
        async with answering(*pieces, ends=ends) as url:
            return await Client(lambda: TLS, timeout_s, MAX_BYTES).ask(f"{url}/x", {"X-One": "1"})

    return asyncio.run(ask())


def test_an_answer_is_read_with_and_without_a_length() -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    assert asked(head, b"Content-Length: 2\r\n\r\n{}") == RawAnswer(200, b"{}")
    assert asked(head, b"\r\n{}") == RawAnswer(200, b"{}")
    chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert asked(head, chunked) == RawAnswer(200, b"{}")


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    found = asked(b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n")
    assert found == RawAnswer(302, b"")


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (MAX_BYTES + 1)], "more than 1,000 bytes"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000], "."),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "."),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"], "."),
        ([], "."),
    ],
    ids=["large body", "large head", "no HTTP", "cut", "nothing"],
)
def test_what_is_too_large_or_no_answer_is_said_to_be(pieces: list[bytes], why: str) -> None:
    with pytest.raises(Unreachable, match=why):
        asked(*pieces)


@pytest.mark.parametrize(
    "pieces", [[], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]], ids=["silent", "stuck"]
)
def test_the_whole_request_has_one_time_limit(pieces: list[bytes]) -> None:
    with pytest.raises(Unreachable, match=r"no answer within 0\.05 s"):
        asked(*pieces, ends=False, timeout_s=0.05)


def test_a_refused_connection_is_named() -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        asyncio.run(Client(lambda: TLS, 5.0, MAX_BYTES).ask("http://127.0.0.1:1/", {}))
