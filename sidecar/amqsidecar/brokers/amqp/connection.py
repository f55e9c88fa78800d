"""One AMQP 1.0 connection with one session, driven by the thread that calls it.

Proton's engine does the protocol; the socket, its waiting and its time-outs are ours, so that
nothing runs behind the caller's back: events are handled inside `pump` and nowhere else. Proton is
called by its C functions and not by its Python classes, which cost several times as much.

Pointers into the engine die with the connection: check `is_open` before each use.
"""

import os
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import cproton
from cproton import ffi, lib

from amqsidecar.brokers.amqp.sasl import (
    SaslExchange,
    log_in,
)
from amqsidecar.brokers.connection.broker_socket import connect
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.waiting import wait_until
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost

FRAME_BYTES_MAX = 256 * 1024
BEGUN_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of messages that have not come whole, over all receivers of a connection."""

_READ_BYTES = 256 * 1024
_RECEIVE_BUFFER_BYTES = 64 * 1024
# Why: Classic leaves Nagle's algorithm on, so that the second of two short answers waits until the
# first is acknowledged, which the kernel puts off by 40 ms. It forgets the option; Linux only.
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
# Bound: maximum reads of one turn, so that a fast broker can't starve other work.
_READS_PER_TURN = 16
_CLOSE_TIMEOUT_S = 2.0

_READ = select.POLLIN | select.POLLERR | select.POLLHUP
_READ_WRITE = _READ | select.POLLOUT


class LinkEndpoint(Protocol):
    """The events that a connection reports to a link."""

    def on_delivery(self, delivery: Any) -> None:
        """Note that a delivery arrived or was answered."""

    def on_remote_open(self) -> None:
        """Note that the peer answered the attach."""

    def on_remote_close(self, reason: str) -> None:
        """Note that the peer closed the link; `reason` holds its words, "" = none."""


class AmqpPart(Protocol):
    """Links of one purpose."""

    def close(self) -> None:
        """Begin to close them."""

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed them."""


class AmqpConnection:
    """A connection, from TCP to the session, and its one loop.

    Attributes:
        parts: receivers and senders; `close` closes them first, the newest before the others.
        clock: where the time comes from.
        timeout_s: maximum wait for an answer, unless a wait names another one.
        no_answer: in words that none came.
        is_open: the engine exists and pointers into it are valid.
        session: pointer into the engine.
        was_woken: `wake` ended a wait; the waiting caller clears it.
        beside: descriptors of other connections, for which `rest_until` waits, too.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, container: str) -> None:
        """Connect, log in, and open a session.

        Raises:
            LinkLost: the peer can't be reached or does not answer.
            BrokerRefused: credentials, certificate, or the peer closes at once.
        """
        self.place = endpoint.place
        self.timeout_s = endpoint.connect_timeout_s
        self.no_answer = f"no answer in {self.timeout_s:g} s"
        self.clock = clock
        self.parts: list[AmqpPart] = []
        self.was_woken = False
        self.beside: tuple[int, ...] = ()
        # Why one per connection: there may be thousands of receivers.
        self.receive_buffer = ffi.new("char[]", _RECEIVE_BUFFER_BYTES)
        self._links: dict[Any, LinkEndpoint] = {}
        self._failure: BrokerError | None = None
        self._is_remote_open = False
        self._is_session_open = False
        self._is_remote_closed = False
        self._wants_write = False
        self._tick_at_ms = 0
        self._begun_bytes = 0
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._socket, arrived_early = _logged_in(endpoint, clock)
        self._poll.register(self._socket.fileno(), _READ)
        # Why Any: they are engine pointers while the connection is open, then None.
        connection = self._connection = cproton.pn_connection()
        self._collector: Any = cproton.pn_collector()
        transport = self._transport = cproton.pn_transport()
        cproton.pn_connection_collect(connection, self._collector)
        cproton.pn_connection_set_container(connection, container)
        cproton.pn_connection_set_hostname(connection, endpoint.host)
        cproton.pn_transport_set_max_frame(transport, FRAME_BYTES_MAX)
        cproton.pn_transport_set_idle_timeout(transport, int(endpoint.idle_timeout_s * 1000))
        cproton.pn_transport_bind(transport, connection)
        cproton.pn_connection_open(connection)
        self.session: Any = cproton.pn_session(connection)
        cproton.pn_session_open(self.session)
        self.is_open = True
        if arrived_early:
            lib.pn_transport_push(transport, ffi.from_buffer(arrived_early), len(arrived_early))
        try:
            self._await_answer()
        except BaseException:
            self.close()
            raise

    def _await_answer(self) -> None:
        if not self.run_until(lambda: self._is_remote_open and self._is_session_open):
            raise LinkLost(f"{self.place} did not answer in {self.timeout_s:g} s")

    def remote_properties(self) -> dict[str, str]:
        """Return the text properties of the peer's open frame."""
        data = cproton.pn_connection_remote_properties(self._connection)
        found: dict[str, str] = {}
        cproton.pn_data_rewind(data)
        if not cproton.pn_data_next(data) or cproton.pn_data_type(data) != cproton.PN_MAP:
            return found
        cproton.pn_data_enter(data)
        while cproton.pn_data_next(data):
            key = _text(data)
            if not cproton.pn_data_next(data):
                break
            found[key] = _text(data)
        return found

    def add_link(self, link: Any, endpoint: LinkEndpoint) -> None:
        """Report the events of a link to this endpoint from now on."""
        self._links[link] = endpoint

    def forget_link(self, link: Any) -> None:
        """Drop the events of a link from now on."""
        self._links.pop(link, None)

    def run_until(self, is_done: Callable[[], Any], timeout_s: float | None = None) -> bool:
        """Pump until something is true, at least once; return whether it is.

        Raises:
            LinkLost, BrokerRefused: the connection ended.
        """
        self.pump(0)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return wait_until(is_done, self.pump, self.clock, limit_s)

    def rest_until(self, is_done: Callable[[], Any], timeout_s: float) -> bool:
        """Do the same, but end also when `wake` was called, or `beside` is readable.

        Raises:
            LinkLost, BrokerRefused: the connection ended.
        """
        # Why not always: a wait for an answer would spin while the other one is readable.
        for descriptor in self.beside:
            self._poll.register(descriptor, select.POLLIN)
        try:
            return self.run_until(lambda: is_done() or self.was_woken, timeout_s)
        finally:
            self.was_woken = False
            for descriptor in self.beside:
                self._poll.unregister(descriptor)

    def descriptor(self) -> int:
        """Return the file descriptor of the socket.

        Raises:
            LinkLost: the connection ended.
        """
        self.check()
        return self._socket.fileno()

    def pump(self, timeout_s: float) -> None:
        """Write pending bytes, wait for the peer, read and handle; return early after input.

        Raises:
            LinkLost, BrokerRefused: the connection ended.
        """
        self.check()
        self._tick()
        self._write()
        if self._wait(timeout_s):
            self._read()
        self._handle_events()
        if lib.pn_transport_pending(self._transport) > 0:
            self._write()
        if self._failure is not None:
            raise self._failure

    def check(self) -> None:
        """Raise the error that ended the connection, if it ended.

        Raises:
            LinkLost, BrokerRefused: the connection ended.
        """
        if self._failure is not None:
            raise self._failure
        if not self.is_open:
            raise LinkLost(f"the link to {self.place} is closed")

    def _tick(self) -> None:
        now_ms = int(self.clock.monotonic_s() * 1000)
        if now_ms >= self._tick_at_ms:
            next_ms = lib.pn_transport_tick(self._transport, now_ms)
            # Bound: the peer's own time-out is not known before it opened; look twice a second.
            self._tick_at_ms = min(next_ms, now_ms + 500) if next_ms else now_ms + 500

    def _write(self) -> None:
        transport, peer = self._transport, self._socket
        while True:
            pending = lib.pn_transport_pending(transport)
            if pending <= 0:
                self._expect_write(False)
                return
            _, output = cproton.pn_transport_peek(transport, pending)
            try:
                sent = peer.send(output)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._expect_write(True)
                return
            except OSError as error:
                self._fail(LinkLost(f"the connection to {self.place} broke: {error}"))
                return
            lib.pn_transport_pop(transport, sent)

    def _expect_write(self, wanted: bool) -> None:
        if wanted != self._wants_write:
            self._poll.modify(self._socket.fileno(), _READ_WRITE if wanted else _READ)
            self._wants_write = wanted

    def _wait(self, timeout_s: float) -> bool:
        """Wait until there is something to read, the tick is due, or the time is over."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        now_ms = int(self.clock.monotonic_s() * 1000)
        timeout_ms = 0
        if timeout_s > 0:
            timeout_ms = max(1, min(int(timeout_s * 1000) + 1, self._tick_at_ms - now_ms))
        readable = False
        for descriptor, _ in self._poll.poll(timeout_ms):
            if descriptor == self._wake_reader:
                with suppress(BlockingIOError):
                    os.read(self._wake_reader, 4096)
                self.was_woken = True
            elif descriptor in self.beside:
                self.was_woken = True
            else:
                readable = True
        return readable

    def _read(self) -> None:
        transport, peer = self._transport, self._socket
        if _QUICK_ACK is not None:
            with suppress(OSError):
                peer.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        for _ in range(_READS_PER_TURN):
            capacity = lib.pn_transport_capacity(transport)
            if capacity <= 0:
                if capacity < 0 and self._failure is None:
                    # Why: the engine closed its input; the events hold the reason.
                    self._handle_events()
                    self._fail(LinkLost(f"{self.place} ended the connection"))
                return
            try:
                received = peer.recv(min(capacity, _READ_BYTES))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._fail(LinkLost(f"the connection to {self.place} broke: {error}"))
                return
            if not received:
                lib.pn_transport_close_tail(transport)
                self._handle_events()
                self._fail(LinkLost(f"{self.place} closed the connection"))
                return
            lib.pn_transport_push(transport, ffi.from_buffer(received), len(received))
            # Why: the engine processes one frame at a time; its waiting events must be drained.
            self._handle_events()

    def _handle_events(self) -> None:
        collector = self._collector
        links = self._links
        peek, pop, kind_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        while event := peek(collector):
            kind = kind_of(event)
            if kind == lib.PN_DELIVERY:
                endpoint = links.get(lib.pn_event_link(event))
                if endpoint is not None:
                    endpoint.on_delivery(lib.pn_event_delivery(event))
            elif kind in _LINK_EVENTS:
                self._handle_link_event(kind, lib.pn_event_link(event))
            elif kind in _STATE_EVENTS:
                self._handle_state_event(kind)
            pop(collector)

    def _handle_link_event(self, kind: int, link: Any) -> None:
        endpoint = self._links.get(link)
        if endpoint is None:
            if lib.pn_link_state(link) & lib.PN_LOCAL_UNINIT:
                self._fail(LinkLost(f"{self.place} attached a link that was not requested"))
            return
        if kind == lib.PN_LINK_REMOTE_OPEN:
            endpoint.on_remote_open()
        else:
            endpoint.on_remote_close(_condition(cproton.pn_link_remote_condition(link)))

    def _handle_state_event(self, kind: int) -> None:
        if kind == lib.PN_CONNECTION_REMOTE_OPEN:
            self._is_remote_open = True
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            self._is_session_open = True
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            self._is_remote_closed = True
            words = _condition(cproton.pn_connection_remote_condition(self._connection))
            self._fail(_ended(f"{self.place} closed the connection", words))
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            words = _condition(cproton.pn_session_remote_condition(self.session))
            self._fail(_ended(f"{self.place} ended the session", words))
        elif kind == lib.PN_TRANSPORT_ERROR:
            words = _condition(cproton.pn_transport_condition(self._transport))
            self._fail(_ended(f"the connection to {self.place} ended", words))

    def has_room_for(self, count: int) -> bool:
        """Return whether this many more bytes of incomplete messages may be kept."""
        return self._begun_bytes + count <= BEGUN_BYTES_MAX

    def add_begun_bytes(self, count: int) -> None:
        """Count bytes of incomplete messages; a negative number subtracts."""
        self._begun_bytes += count
        if self._begun_bytes > BEGUN_BYTES_MAX:
            what = f"messages that are not whole have more than {BEGUN_BYTES_MAX} bytes"
            self.poison(LinkLost(f"{self.place}: {what}"))

    def poison(self, failure: BrokerError) -> None:
        """Make every later use but `close` fail with this."""
        self._fail(failure)

    def _fail(self, failure: BrokerError) -> None:
        if self._failure is None:
            # Why: a connection that worked once is worth another try, for any later reason.
            self._failure = LinkLost(str(failure)) if self._is_session_open else failure

    def wake(self) -> None:
        """End a running or the next wait; may be called from any thread, also after `close`."""
        with suppress(OSError):
            os.write(self._wake_writer, b"\0")

    def close(self) -> None:
        """Close in order as far as the peer plays along, within some seconds; never raises."""
        if not self.is_open:
            return
        try:
            for part in reversed(self.parts):
                part.close()
            with suppress(BrokerError):
                if self.parts and self._failure is None:
                    self.run_until(self._are_parts_closed, _CLOSE_TIMEOUT_S)
                if self._failure is None:
                    cproton.pn_connection_close(self._connection)
                    self.run_until(lambda: self._is_remote_closed, _CLOSE_TIMEOUT_S)
        finally:
            self._release()

    def _are_parts_closed(self) -> bool:
        return all(part.is_closed for part in self.parts)

    def _release(self) -> None:
        self.is_open = False
        with suppress(OSError, KeyError, ValueError):
            self._poll.unregister(self._socket.fileno())
        with suppress(OSError):
            self._socket.close()
        self._links.clear()
        transport, connection, collector = self._transport, self._connection, self._collector
        # Why: a use of a freed pointer then fails in Python, and not in the engine.
        self.session = self._transport = self._connection = self._collector = None
        cproton.pn_transport_unbind(transport)
        cproton.pn_connection_release(connection)
        cproton.pn_collector_release(collector)
        cproton.pn_decref(transport)
        cproton.pn_decref(connection)
        cproton.pn_collector_free(collector)

    def __del__(self) -> None:
        for descriptor in (self._wake_reader, self._wake_writer):
            with suppress(OSError):
                os.close(descriptor)


def _logged_in(endpoint: Endpoint, clock: Clock) -> tuple[socket.socket, bytes]:
    """Connect and log in; return the socket and AMQP bytes that the peer has already sent."""
    connected = connect(endpoint)
    exchange = SaslExchange(endpoint)
    try:
        log_in(connected, exchange, clock, endpoint.connect_timeout_s)
    except BaseException:
        connected.close()
        raise
    connected.setblocking(False)
    return connected, exchange.rest


_LINK_EVENTS = frozenset(
    (lib.PN_LINK_REMOTE_OPEN, lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH)
)
_STATE_EVENTS = frozenset(
    (
        lib.PN_CONNECTION_REMOTE_OPEN,
        lib.PN_SESSION_REMOTE_OPEN,
        lib.PN_CONNECTION_REMOTE_CLOSE,
        lib.PN_SESSION_REMOTE_CLOSE,
        lib.PN_TRANSPORT_ERROR,
    )
)
_REFUSALS = ("amqp:unauthorized-access", "amqp:not-allowed", "amqp:invalid-field")


def _ended(what: str, words: str) -> BrokerError:
    text = f"{what}: {words}" if words else what
    return BrokerRefused(text) if words.startswith(_REFUSALS) else LinkLost(text)


def _condition(condition: Any) -> str:
    """Return the words of an error condition; "" = none is set."""
    if not cproton.pn_condition_is_set(condition):
        return ""
    name = cproton.pn_condition_get_name(condition) or ""
    words = cproton.pn_condition_get_description(condition) or ""
    return f"{name}: {words}" if words else name


def _text(data: Any) -> str:
    kind = cproton.pn_data_type(data)
    if kind == cproton.PN_SYMBOL:
        return str(cproton.pn_data_get_symbol(data))
    if kind == cproton.PN_STRING:
        return str(cproton.pn_data_get_string(data))
    return ""


condition_words = _condition
