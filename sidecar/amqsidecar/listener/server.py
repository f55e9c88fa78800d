"""Accepts clients, makes a relay for each, and drains them at the end."""

import asyncio
import gc
import secrets
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from amqsidecar.formats.interception_seal import CopyKeysOf
from amqsidecar.listener.amqp.notes import NoteSettings
from amqsidecar.listener.amqp.session import AmqpSession
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.doorway import Doorway, IpNetwork
from amqsidecar.listener.relay import TLS_BUFFER_BYTES, Relay, reset
from amqsidecar.listener.session import (
    ClientSession,
    NackOutcome,
    OnFailure,
    Settled,
)
from amqsidecar.listener.stomp.session import StompSession
from amqsidecar.telemetry.listener_metrics import ListenerMetrics

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_PROXY: Final = b"\x21"
_TCP4, _TCP6 = b"\x11", b"\x21"


def proxy_header(client: Sequence[Any], listener: Sequence[Any]) -> bytes:
    """Return the header of the PROXY protocol, version 2, that names both ends of a connection."""
    ends = [ip_address(str(end[0]).partition("%")[0]) for end in (client, listener)]
    ports = int(client[1]).to_bytes(2) + int(listener[1]).to_bytes(2)
    if all(isinstance(end, IPv4Address) for end in ends):
        addresses = b"".join(end.packed for end in ends)
        kind = _TCP4
    else:
        addresses = b"".join(_as_ipv6(end).packed for end in ends)
        kind = _TCP6
    content = addresses + ports
    return _SIGNATURE + _PROXY + kind + len(content).to_bytes(2) + content


def _as_ipv6(address: IPv4Address | IPv6Address) -> IPv6Address:
    is_short = isinstance(address, IPv4Address)
    return IPv6Address(f"::ffff:{address}") if is_short else IPv6Address(address)


log = structlog.get_logger("amqsidecar.listener")

HELD_BYTES_MAX: Final = 32 << 20
"""Bytes held for all clients besides messages: unfinished frames, names of links and the like."""

_HELD_FREE_BYTES: Final = 1 << 14
"""Bytes that each client may hold even if others hold the rest."""

_HELD_BYTES_MAX_OF_ONE: Final = 1 << 21

_ACCEPTS_AGAIN_S: Final = 1.0
_SHORT_SHARE: Final = 0.8
"""As the alert AmqsidecarListenerPlacesShort."""
_BACKLOG: Final = 1024
_ENDED_MAX: Final = 16
"""Ended connections after which the collector of cycles runs, where few are open."""
# Why one byte: no command of STOMP begins with it.
_AMQP = b"A"


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a listener.

    Attributes:
        host, port: to listen on; port 0 = any free port.
        tls: for clients, as it is now; None = plain TCP.
        broker_host, broker_port: of the broker's acceptor.
        broker_tls: as it is now; None = plain TCP.
        sends_proxy_header: the acceptor expects the client's address by PROXY protocol.
        on_failure: treatment of a NACK whose message can't be saved.
        prefixes: prefixes of destination names that the acceptor removes.
        notes: None = the sidecar reads no notes.
        keys: keys that seal copies; None = copies have no seal.
        logins_max: maximum clients that have not logged in.
        login_s: time limit from the acceptance to the log-in.
        trusted: networks where an address may exceed its share of `logins_max`.
        drain_s: time limit for open interceptions at the end.
        memory_bytes_max, spool_bytes_max, spool_folder: for messages that clients hold.
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
    logins_max: int
    login_s: float
    trusted: tuple[IpNetwork, ...] = ()
    connect_timeout_s: float
    drain_s: float
    memory_bytes_max: int
    spool_bytes_max: int
    spool_folder: Path
    sends_proxy_header: bool = False
    tls: Callable[[], ssl.SSLContext] | None = None
    broker_tls: Callable[[], ssl.SSLContext] | None = None


class Listener:
    """The listening socket and its connections; for one event loop."""

    def __init__(self, settings: ListenerSettings, counts: ListenerMetrics) -> None:
        self._settings = settings
        self._counts = counts
        budget = self._budget = BodyBudget(
            settings.memory_bytes_max,
            settings.spool_bytes_max,
            settings.spool_folder,
            counts.unkept,
        )
        counts.watch(lambda: budget.memory_bytes, lambda: budget.spooled_bytes)
        self._doorway = Doorway(
            settings.logins_max, settings.trusted, max(1, settings.connections_max // 2)
        )
        self._held_bytes = self._ended = 0
        self._relays: dict[int, Relay] = {}
        self._numbers = count(1)
        self._all_ended = asyncio.Event()

    @property
    def problem(self) -> str:
        """Why no client can be accepted; "" = some can. For any thread."""
        places = self._settings.connections_max
        is_full = len(self._relays) >= places and not len(self._doorway)
        return f"all {places} connections are taken" if is_full else ""

    @property
    def shortage(self) -> str:
        """Which places are short; "" = none. For any thread."""
        settings, doorway = self._settings, len(self._doorway)
        of = (
            ("connections", len(self._relays), settings.connections_max),
            ("connections without a log-in", doorway, settings.logins_max),
        )
        return "; ".join(
            f"{taken} of {places} {what} are taken"
            for what, taken, places in of
            if taken > _SHORT_SHARE * places
        )

    async def serve(self, stop: asyncio.Event, started: Callable[[str, int], None]) -> None:
        """Serve until `stop` is set, then drain.

        Raises:
            OSError: the address can't be listened on.
        """
        settings = self._settings
        # Why: asyncio's 256 KiB are there from the first byte of a connection on.
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        sockets = await _listen(settings.host, settings.port)
        accepting = [asyncio.create_task(self._accept_all(one)) for one in sockets]
        host, port = sockets[0].getsockname()[:2]
        started(host, port)
        await stop.wait()
        for task in accepting:
            task.cancel()
        for one in sockets:
            one.close()
        await self._drain()

    async def _drain(self) -> None:
        for relay in list(self._relays.values()):
            relay.drain()
        try:
            async with asyncio.timeout(self._settings.drain_s):
                while self._relays:
                    self._all_ended.clear()
                    await self._all_ended.wait()
        except TimeoutError:
            log.warning("not_drained", connections=len(self._relays))
        for relay in list(self._relays.values()):
            relay.end("the listener stops")

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, peer = await loop.sock_accept(listening)
            except OSError as error:
                # Why a pause: without descriptors it would fail again at once.
                log.warning("not_accepted", reason=str(error))
                await asyncio.sleep(_ACCEPTS_AGAIN_S)
                continue
            self._admit(connected, str(peer[0]))

    def _admit(self, connected: socket.socket, address: str) -> None:
        settings = self._settings
        number = next(self._numbers)
        evicted: int | None = number
        is_full = len(self._relays) >= settings.connections_max
        if not is_full or len(self._doorway):
            evicted = self._doorway.enter(
                number, address, asyncio.get_running_loop().time(), is_full=is_full
            )
        if evicted is not None:
            self._counts.refused()
        if evicted == number:
            reset(connected)
            return
        relay = self._relays[number] = Relay(number, self._session, self, self._connect)
        if evicted is not None:
            self._relays[evicted].end("", True)
        self._count()
        connected.setblocking(False)
        tls = None if settings.tls is None else settings.tls()
        relay.admit(connected, tls, settings.login_s)

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
        tls = None if settings.broker_tls is None else settings.broker_tls()
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

    def logged_in(self, relay: Relay, is_unread: bool) -> None:
        """Note an accepted log-in, or a protocol in which log-ins are not visible."""
        if not is_unread:
            self._doorway.leave(relay.number)
        elif not self._doorway.pass_unread(relay.number):
            self._counts.refused()
            relay.end("", True)
        self._count()

    def held(self, relay: Relay, change: int) -> None:
        """Note how many more bytes are held for a client; end it where that is too much."""
        self._held_bytes += change
        is_free = change <= 0 or relay.held_bytes <= _HELD_FREE_BYTES
        if is_free:
            return
        if relay.held_bytes > _HELD_BYTES_MAX_OF_ONE or self._held_bytes > HELD_BYTES_MAX:
            relay.end(f"its unfinished frames and names take {relay.held_bytes} bytes", True)

    def _count(self) -> None:
        self._counts.connections(len(self._relays), len(self._doorway))

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
        self._relays.pop(relay.number, None)
        self._doorway.leave(relay.number)
        self._ended += 1
        if self._ended > max(_ENDED_MAX, len(self._relays) // 8):
            # Why: a connection leaves cycles, with TLS of some 300 KiB, which Python finds late.
            self._ended = 0
            gc.collect()
        self._count()
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


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets, one for each address of a host.

    Raises:
        OSError: an address can't be listened on.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            made = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(_BACKLOG)
            made.setblocking(False)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets
