"""Accepts clients, makes a relay for each, and drains them at the end."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import msgspec
import structlog

from amqsidecar.formats.interception_seal import CopyKeysOf
from amqsidecar.listener.amqp.notes import NoteSettings
from amqsidecar.listener.amqp.session import AmqpSession
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.proxy_header import proxy_header
from amqsidecar.listener.relay import Relay, abort
from amqsidecar.listener.session import (
    ClientSession,
    GiveUp,
    NackOutcome,
    OnFailure,
    Settled,
)
from amqsidecar.listener.stomp.session import StompSession

log = structlog.get_logger("amqsidecar.listener")

_TLS_S = 30.0
# Why one byte: no command of STOMP begins with it.
_AMQP = b"A"


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a listener.

    Attributes:
        host, port: to listen on; port 0 = a free one.
        tls: for clients; None = plain TCP.
        broker_host, broker_port: of the acceptor behind.
        broker_tls: None = plain TCP.
        sends_proxy_header: the acceptor expects the client's address by PROXY protocol.
        on_failure: what happens to a NACK whose message can't be saved.
        prefixes: that the acceptor cuts off the names of destinations.
        notes: None = the sidecar reads no notes.
        keys: that seal copies; None = they have no seal.
        connections_max: at a time.
        connect_timeout_s: for TCP and TLS to the broker.
        drain_s: time limit for open interceptions at the end.
        memory_bytes_max, spool_bytes_max, spool_folder: for messages that clients have in hand.
    """

    host: str
    port: int
    broker_host: str
    broker_port: int
    on_failure: OnFailure
    prefixes: tuple[str, ...] = ()
    notes: NoteSettings | None = None
    keys: CopyKeysOf | None = None
    connections_max: int
    connect_timeout_s: float
    drain_s: float
    memory_bytes_max: int
    spool_bytes_max: int
    spool_folder: Path
    sends_proxy_header: bool = False
    tls: ssl.SSLContext | None = None
    broker_tls: ssl.SSLContext | None = None


class ListenerCounts(Protocol):
    """Where a listener counts."""

    def connections(self, count: int) -> None:
        """Note how many connections are open."""
        ...

    def refused(self) -> None:
        """Count a client that got no place."""
        ...

    def unreached(self) -> None:
        """Count a client for which the broker could not be reached."""
        ...

    def relayed(self, from_client: int, from_broker: int, duration_s: float) -> None:
        """Count bytes, and the seconds they took."""
        ...

    def settled(self, how: GiveUp, outcome: NackOutcome, messages: int) -> None:
        """Count outcomes of messages that were given up."""
        ...

    def watch(self, memory_bytes: Callable[[], int], spooled_bytes: Callable[[], int]) -> None:
        """Set the source of the number of bytes in hand."""
        ...


class Listener:
    """The listening socket and its connections; for one event loop."""

    def __init__(self, settings: ListenerSettings, counts: ListenerCounts) -> None:
        self._settings = settings
        self._counts = counts
        self._budget = BodyBudget(
            settings.memory_bytes_max, settings.spool_bytes_max, settings.spool_folder
        )
        counts.watch(lambda: self._budget.memory_bytes, lambda: self._budget.spooled_bytes)
        self._relays: set[Relay] = set()
        self._all_ended = asyncio.Event()

    async def serve(self, stop: asyncio.Event, started: Callable[[str, int], None]) -> None:
        """Serve until `stop` is set, then drain.

        Args:
            stop: ends it.
            started: called with the address once clients may come.

        Raises:
            OSError: the address can't be listened on.
        """
        settings = self._settings
        server = await asyncio.get_running_loop().create_server(
            self._accept,
            settings.host,
            settings.port,
            ssl=settings.tls,
            ssl_handshake_timeout=_TLS_S if settings.tls is not None else None,
            backlog=1024,
        )
        host, port = server.sockets[0].getsockname()[:2]
        started(host, port)
        await stop.wait()
        server.close()
        await self._drain()

    async def _drain(self) -> None:
        for relay in list(self._relays):
            relay.drain()
        try:
            async with asyncio.timeout(self._settings.drain_s):
                while self._relays:
                    self._all_ended.clear()
                    await self._all_ended.wait()
        except TimeoutError:
            log.warning("not_drained", connections=len(self._relays))
        for relay in list(self._relays):
            relay.end("the listener stops")

    def _accept(self) -> asyncio.Protocol:
        if len(self._relays) >= self._settings.connections_max:
            self._counts.refused()
            return _Refused()
        return Relay(self._session, self, self._connect).client

    def _session(self, first: bytes) -> ClientSession:
        """Return the session of a client that begins with these bytes."""
        settings = self._settings
        if first.startswith(_AMQP):
            return AmqpSession(
                self._budget,
                settings.on_failure,
                settings.prefixes,
                settings.notes,
                settings.keys,
            )
        key = f"amqsidecar-{secrets.token_hex(8)}"
        return StompSession(
            self._budget, key, settings.on_failure, settings.prefixes, settings.keys
        )

    def _connect(
        self, side: asyncio.Protocol, client: asyncio.BaseTransport
    ) -> "asyncio.Future[object]":
        return asyncio.ensure_future(self._connected(side, client))

    async def _connected(self, side: asyncio.Protocol, client: asyncio.BaseTransport) -> object:
        settings = self._settings
        tls = settings.broker_tls
        name = settings.broker_host if tls is not None else None
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(settings.connect_timeout_s):
            if not settings.sends_proxy_header:
                return await loop.create_connection(
                    lambda: side,
                    settings.broker_host,
                    settings.broker_port,
                    ssl=tls,
                    server_hostname=name,
                )
            connected = await _dial(settings.broker_host, settings.broker_port)
            try:
                # Why here: it goes before TLS, unencrypted.
                await loop.sock_sendall(
                    connected,
                    proxy_header(
                        client.get_extra_info("peername"), client.get_extra_info("sockname")
                    ),
                )
                return await loop.create_connection(
                    lambda: side, sock=connected, ssl=tls, server_hostname=name
                )
            except BaseException:
                connected.close()
                raise

    # Reports of the relays

    def began(self, relay: Relay) -> None:
        """Note a connection whose client is there, TLS included."""
        self._relays.add(relay)
        self._counts.connections(len(self._relays))

    def relayed(self, from_client: int, from_broker: int, duration_s: float) -> None:
        """Count bytes, and the seconds they took."""
        self._counts.relayed(from_client, from_broker, duration_s)

    def settled(self, settled: Settled, login: str) -> None:
        """Count and log the outcomes of messages that were given up."""
        self._counts.settled(settled.how, settled.outcome, settled.messages)
        if settled.outcome in (NackOutcome.PASSED, NackOutcome.REFUSED):
            log.warning(
                "not_intercepted",
                how=settled.how.value,
                outcome=settled.outcome.value,
                messages=settled.messages,
                user=login,
                reason=settled.why,
            )

    def unreached(self, why: str) -> None:
        """Count and log a client for which the broker could not be reached."""
        self._counts.unreached()
        log.warning("broker_unreachable", reason=why)

    def ended(self, relay: Relay, why: str) -> None:
        """Forget a connection."""
        self._relays.discard(relay)
        self._counts.connections(len(self._relays))
        if why:
            log.info("connection_ended", reason=why)
        self._all_ended.set()


async def _dial(host: str, port: int) -> socket.socket:
    """Return a connected socket that does not block.

    Raises:
        OSError: no address of the host can be reached; the error is that of the last one.
    """
    loop = asyncio.get_running_loop()
    error = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        connected = socket.socket(family, kind, protocol)
        connected.setblocking(False)
        try:
            await loop.sock_connect(connected, address)
        except OSError as failure:
            connected.close()
            error = failure
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise error


class _Refused(asyncio.Protocol):
    """A client for which there is no place."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        abort(cast("asyncio.Transport", transport))
