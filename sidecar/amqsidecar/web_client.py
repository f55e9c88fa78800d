"""One request over HTTP, bounded in time and bytes; no redirect is followed."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from amqsidecar import __version__
from amqsidecar.errors import SidecarError

_PIECE_BYTES: Final = 65_536
_MAX_HEAD_BYTES: Final = 32_768
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is neither of a private network, nor of this machine or link.

    An IPv4 address within an IPv6 address counts as itself.
    """
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def permits(
    networks: Sequence[IPv4Network | IPv6Network],
) -> Callable[[IPv4Address | IPv6Address], bool]:
    """Return a test of addresses: only public addresses and these networks are permitted."""

    def is_permitted(address: IPv4Address | IPv6Address) -> bool:
        address = _inner(address) or address
        return is_public(address) or any(address in one for one in networks)

    return is_permitted


class Unreachable(SidecarError):
    """There is no answer, or not within the bounds; the text says why."""


class RawAnswer(NamedTuple):
    """An answer as it came, with its header `Retry-After`."""

    status: int
    body: bytes
    retry_after: str = ""


class Client:
    """Sends requests, each on a connection of its own.

    Args:
        tls: returns that of `https`, as it is now.
        timeout_s: of a whole request, from the name's lookup to the last byte.
        permits: whether an address may be connected to; None = each may.
        needs_body: False = an answer whose body is too large, late or cut counts, without it.
    """

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        timeout_s: float,
        max_bytes: int,
        *,
        permits: Callable[[IPv4Address | IPv6Address], bool] | None = None,
        needs_body: bool = True,
    ) -> None:
        self._permits = permits
        self._needs_body = needs_body
        self._tls = tls
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    async def ask(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> RawAnswer:
        """Return the answer to a GET, or to a POST of a body in JSON.

        Raises:
            Unreachable: see there. A POST may have been carried out all the same.
        """
        answer = RawAnswer(0, b"")
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._sent(url, headers, body) as next_event,
            ):
                while not isinstance(event := await next_event(), h11.EndOfMessage):
                    if isinstance(event, h11.Response):
                        pause = dict(event.headers).get(b"retry-after", b"").decode("latin-1")
                        answer = RawAnswer(event.status_code, b"", pause)
                    elif isinstance(event, h11.Data):
                        content += event.data
                        if len(content) > self._max_bytes:
                            raise ValueError(f"the answer has more than {self._max_bytes:,} bytes")
                    elif not isinstance(event, h11.InformationalResponse):
                        raise ConnectionError("the connection ended before the answer did")
                return answer._replace(body=bytes(content))
        except (OSError, ValueError, h11.ProtocolError) as error:
            if answer.status and not self._needs_body:
                return answer
            reason = str(error) or repr(error)
            if isinstance(error, TimeoutError):
                reason = f"no answer within {self._timeout_s:g} s"
            elif isinstance(error, ConnectionError) and error.errno:
                # Why: asyncio's text of a refused connection says only that it failed.
                reason = os.strerror(error.errno)
            raise Unreachable(reason) from error

    @asynccontextmanager
    async def _sent(
        self, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        """Send a request; return what reads the next event of its answer."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        tls = self._tls() if is_tls else None
        port = parts.port or (443 if is_tls else 80)
        sent = {
            "Host": parts.netloc,
            "User-Agent": f"amqsidecar/{__version__}",
            "Connection": "close",
            **headers,
        }
        if body is not None:
            sent = {"Content-Type": "application/json", **sent, "Content-Length": str(len(body))}
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        method = "GET" if body is None else "POST"
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        head = h11.Request(method=method, target=target, headers=[*sent.items()])
        data = [connection.send(head), connection.send(h11.Data(data=body or b""))]
        data.append(connection.send(h11.EndOfMessage()))
        reader, writer = await self._open(parts.hostname or "", port, tls)
        try:
            writer.write(b"".join(one or b"" for one in data))
            yield partial(_next_event, connection, reader)
        finally:
            # Why not awaited: a hung sidecar does not end a TLS connection.
            writer.transport.abort()

    async def _open(
        self, host: str, port: int, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._permits is None:
            return await asyncio.open_connection(host, port, ssl=tls)
        # Why by address: a name that is looked up once more may lead elsewhere.
        places = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in places))
        problem: OSError = PermissionError(f"{host} has only addresses that are not allowed")
        for address in addresses:
            if self._permits(ip_address(address)):
                try:
                    return await asyncio.open_connection(
                        address, port, ssl=tls, server_hostname=host if tls else None
                    )
                except OSError as error:
                    problem = error
        raise problem


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_PIECE_BYTES))
    return event
