"""One connection through the listener: two sockets and the session between them.

The relay decides nothing: it moves bytes, and stops reading one side while the other is full.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Protocol, cast

from amqsidecar.listener.session import (
    BodyToBroker,
    ClientSession,
    Effect,
    Ended,
    Settled,
    ToBroker,
    ToClient,
)

BUFFER_BYTES: Final = 1 << 16
"""Maximum bytes that wait to be written on one side before the other is not read any more."""

TLS_BUFFER_BYTES: Final = 1 << 15
"""Encrypted bytes that one connection has read and not decrypted; a record of TLS has 16 KiB."""

_LINGERS_NOT: Final = struct.pack("ii", 1, 0)

RESCUE_S: Final = 10.0
"""Time limit for the receipts of messages that a client gave up before it left."""

_LEAVES_EVERY_S: Final = 0.5

_RECORD_HEAD_BYTES: Final = 5
_RECORD_BYTES_MAX: Final = 1 << 14

ConnectBroker = Callable[[asyncio.Protocol, asyncio.BaseTransport], "asyncio.Future[object]"]
"""Connects a protocol to the broker, for the client of a transport."""

ChooseSession = Callable[[bytes], ClientSession]
"""Returns the session of a client that begins with these bytes."""


class Listening(Protocol):
    """Receives the reports of relays."""

    def logged_in(self, relay: "Relay", is_unread: bool) -> None:
        """Note an accepted log-in, or a protocol in which log-ins are not visible."""

    def held(self, relay: "Relay", change: int) -> None:
        """Note how many more bytes are held for a client; may end the connection."""

    def relayed(self, from_client: int, from_broker: int, duration_s: float) -> None:
        """Count bytes, and the seconds they took."""

    def settled(self, settled: Settled, login: str) -> None:
        """Count outcomes of messages that were given up."""

    def unreached(self, why: str) -> None:
        """Count a client for which the broker could not be reached."""

    def ended(self, relay: "Relay", why: str) -> None:
        """Forget a connection; "" = one of its ends closed it."""


def reset(connected: socket.socket) -> None:
    """Close a connection so that the peer sees a reset."""
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGERS_NOT)
    connected.close()


def _abort(transport: asyncio.Transport) -> None:
    connected = transport.get_extra_info("socket")
    if connected is not None:
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGERS_NOT)
    transport.abort()


async def _first_record(connected: socket.socket) -> None:
    """Wait until the first record of TLS is whole, in the buffer of the system, which is bounded.

    Why: an unfinished handshake takes some 300 KiB of this process.
    """
    head = await _peek(connected, _RECORD_HEAD_BYTES)
    if len(head) == _RECORD_HEAD_BYTES:
        size = min(int.from_bytes(head[3:]), _RECORD_BYTES_MAX)
        await _peek(connected, _RECORD_HEAD_BYTES + size)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peek(connected: socket.socket, size: int) -> bytes:
    """Return the first bytes without taking them; fewer = the client sends no more."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connected, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connected)
    return connected.recv(size, socket.MSG_PEEK)


class _Side(asyncio.Protocol):
    """One socket of a connection."""

    def __init__(self, relay: "Relay", *, is_client: bool) -> None:
        self._relay = relay
        self._is_client = is_client
        self._waiting: deque[bytes | Iterator[bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_choked = False
        self._ends = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        if transport.get_extra_info("ssl_object"):
            # Why less than asyncio's 256 KiB: each client that is not read fills it.
            cast("Any", transport).set_read_buffer_limits(high=TLS_BUFFER_BYTES)
        self._relay.made(transport, is_client=self._is_client)

    def data_received(self, data: bytes) -> None:
        self._relay.received(data, is_client=self._is_client)

    def eof_received(self) -> bool:
        self._relay.ended(is_client=self._is_client)
        # Why not over TLS: it has no half of an end, and asyncio would warn.
        return self._transport is not None and not self._transport.get_extra_info("ssl_object")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_choked = False
        self._waiting.clear()
        self._relay.lost(is_client=self._is_client, is_reset=exc is not None)

    def pause_writing(self) -> None:
        self._is_choked = True
        self._relay.choked()

    def resume_writing(self) -> None:
        self._is_choked = False
        self._pump()
        self._relay.choked()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket."""
        return self._transport is not None

    @property
    def is_choked(self) -> bool:
        """Whether it accepts no more bytes for now."""
        return self._is_choked or bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether all written bytes have been sent."""
        return self._transport is None or not (
            self._waiting or self._transport.get_write_buffer_size()
        )

    def write(self, data: bytes) -> None:
        """Write bytes as soon as the socket takes them."""
        if self._transport is None:
            return
        if self._waiting:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def write_pieces(self, pieces: Iterator[bytes]) -> None:
        """Write pieces, of which at most `BUFFER_BYTES` are in memory."""
        if self._transport is not None:
            self._waiting.append(pieces)
            self._pump()

    def _pump(self) -> None:
        while self._waiting and not self._is_choked and self._transport is not None:
            first = self._waiting[0]
            if isinstance(first, bytes):
                self._waiting.popleft()
                self._transport.write(first)
                continue
            try:
                piece = next(first, None)
            except OSError as error:
                self._relay.end(f"a kept message can't be read: {error}")
                return
            if piece is None:
                self._waiting.popleft()
            else:
                self._transport.write(piece)
        if self._ends and not self._waiting:
            self._write_end()

    def write_end(self) -> None:
        """End this direction once all is written."""
        self._ends = True
        if not self._waiting:
            self._write_end()

    def _write_end(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def read(self, *, does: bool) -> None:
        """Start or stop reading this side."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if does and not transport.is_reading():
            transport.resume_reading()
        elif not does and transport.is_reading():
            transport.pause_reading()

    def close(self) -> None:
        """Close once all is written, at the latest after `RESCUE_S`; safe to call twice.

        A kept body that is not written yet is left out: its frame stays open, so that the broker
        drops it.
        """
        self._waiting.clear()
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(RESCUE_S, self.reset)

    def reset(self) -> None:
        """Close so that the peer sees a reset."""
        if self._transport is not None:
            _abort(self._transport)


class Relay:
    """One client's connection, from its acceptance on.

    Attributes:
        number: of this connection, which tells it from the others of the listener.
        held_bytes: held for the client beside messages.
        is_logged_in: the broker accepted its log-in, or its protocol is not read.
    """

    def __init__(
        self, number: int, choose: ChooseSession, listening: Listening, connect: ConnectBroker
    ) -> None:
        self.number = number
        self._session = choose(b"")
        self._choose = choose
        self._has_spoken = False
        self._listening = listening
        self._client = _Side(self, is_client=True)
        self._broker = _Side(self, is_client=False)
        self._client_has_ended = self._is_leaving = self._is_over = self._is_reported = False
        self._why = ""
        self._has_passed_end = self._broker_has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._open = connect
        self._opening: asyncio.Future[object] | None = None
        self._admission: asyncio.Task[object] | None = None
        self._handed_over: socket.socket | None = None
        self.is_logged_in = False
        self.held_bytes = 0

    @property
    def client(self) -> asyncio.Protocol:
        """The protocol of the client's socket."""
        return self._client

    def admit(self, connected: socket.socket, tls: ssl.SSLContext | None, login_s: float) -> None:
        """Take the client's socket, TLS included; end unless it logs in in time."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(login_s, self.end, "", True)
        self._admission = loop.create_task(self._take_socket(connected, tls, login_s))
        self._admission.add_done_callback(self._admitted)

    async def _take_socket(
        self, connected: socket.socket, tls: ssl.SSLContext | None, login_s: float
    ) -> object:
        if tls is not None:
            try:
                await _first_record(connected)
            except BaseException:
                reset(connected)
                raise
        self._handed_over = connected
        return await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._client,
            connected,
            ssl=tls,
            ssl_handshake_timeout=login_s if tls is not None else None,
        )

    def _admitted(self, admission: "asyncio.Task[object]") -> None:
        if not admission.cancelled() and admission.exception() is not None:
            # Why no word: strangers fail at TLS all the time.
            self.end("", True)

    # Reports of the two sides

    def made(self, transport: asyncio.BaseTransport, *, is_client: bool) -> None:
        """Note that a side is connected."""
        if self._is_over:
            _abort(cast("asyncio.Transport", transport))
            return
        if not is_client:
            self._read_what_may()
            return
        self._client.read(does=False)
        asyncio.get_running_loop().call_soon(self._pause_client)
        self._opening = asyncio.ensure_future(self._open(self._broker, transport))
        self._opening.add_done_callback(self._opened)

    def _pause_client(self) -> None:
        """Stop to read from the client until the broker is connected."""
        # Quirk (asyncio of Python 3.11.2): a socket that is paused while it is made is read all the
        # same, and pausing it again does nothing.
        if not self._broker.is_open:
            self._client.read(does=True)
            self._client.read(does=False)

    def _opened(self, opening: "asyncio.Future[object]") -> None:
        if opening.cancelled() or self._is_over:
            return
        error = opening.exception()
        if isinstance(error, (OSError, ssl.SSLError, TimeoutError)):
            self._listening.unreached(str(error) or "no answer in time")
            self.end("", is_reset=True)
        elif error is not None:
            self.end(f"{type(error).__name__}: {error}", is_reset=True)

    def received(self, data: bytes, *, is_client: bool) -> None:
        """Move bytes that one side has read."""
        if self._is_over:
            return
        began_s = perf_counter()
        if is_client:
            if not self._has_spoken:
                self._has_spoken = True
                self._session = self._choose(data)
            self._do(self._session.from_client(data))
            self._listening.relayed(len(data), 0, perf_counter() - began_s)
        else:
            # Why not before: OpenWire's broker speaks first, and is not to be read as another.
            passes = not self._has_spoken
            self._do([ToClient(data)] if passes else self._session.from_broker(data))
            self._listening.relayed(0, len(data), perf_counter() - began_s)
            self._note_login()
        self._note_held()

    def _note_login(self) -> None:
        if self.is_logged_in or self._is_over or not self._session.is_logged_in:
            return
        self.is_logged_in = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._listening.logged_in(self, self._session.is_unread)

    def _note_held(self) -> None:
        held_bytes = 0 if self._is_over else self._session.held_bytes
        change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        if change:
            self._listening.held(self, change)

    def ended(self, *, is_client: bool) -> None:
        """Note that one side sends no more."""
        if is_client:
            self._client_has_ended = True
            self._do([])
        else:
            self._broker_has_ended = True
            self._do(self._session.broker_ended())
            self._client.write_end()
            self._end_if_done()

    def lost(self, *, is_client: bool, is_reset: bool) -> None:
        """Note that one side is gone."""
        if self._is_over:
            self._report_if_closed()
            return
        if is_client and self._broker.is_open and not self._is_idle:
            self._client_has_ended = True
            self._leave_later()
            # Why: it may have held the broker up, whose receipts are awaited now.
            self._read_what_may()
            return
        self.end("", is_reset=is_reset)

    def choked(self) -> None:
        """Note that a side takes more, or no more."""
        self._read_what_may()

    # What the server wants

    def drain(self) -> None:
        """Read no more of the client; end once its given-up messages are safe."""
        self._is_leaving = True
        self._client.read(does=False)
        self._leave_if_idle()

    def end(self, why: str, is_reset: bool = False) -> None:
        """End both sides; `why` "" = one side ended.

        The end is reported when both sockets are closed: until then their unsent bytes count.
        """
        if self._is_over:
            if is_reset:
                self._reset()
            return
        self._is_over = True
        self._why = why
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
        self._end_admission()
        # Why: their results hold the transports, and timers refer to this relay for some seconds.
        self._admission = self._opening = None
        self._session.close()
        # Why another one: it may hold much.
        self._session = self._choose(b"")
        self._note_held()
        if is_reset:
            self._reset()
            return
        for side in (self._client, self._broker):
            side.close()
        self._report_if_closed()

    def _reset(self) -> None:
        for side in (self._client, self._broker):
            side.reset()
        self._report()

    def _report_if_closed(self) -> None:
        if not (self._client.is_open or self._broker.is_open):
            self._report()

    def _report(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._listening.ended(self, self._why)

    # Inside

    def _end_admission(self) -> None:
        """End a client that is not there yet."""
        if self._admission is None or self._admission.done():
            return
        if self._handed_over is None:
            self._admission.cancel()
            return
        # Quirk (asyncio): a handshake that is cancelled before its first step goes on until its
        # time is over.
        with suppress(OSError):
            self._handed_over.shutdown(socket.SHUT_RDWR)

    @property
    def _is_idle(self) -> bool:
        session = self._session
        return not (session.is_rescuing or session.is_waiting) and self._broker.is_empty

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToBroker(data):
                    self._broker.write(data)
                case ToClient(data):
                    self._client.write(data)
                case BodyToBroker(body):
                    self._broker.write_pieces(body.pieces())
                case Settled():
                    self._listening.settled(effect, self._session.login)
                case Ended(why):
                    self.end(why)
                    return
        if self._client_has_ended and not self._session.is_waiting:
            self._end_client()
        if self._is_leaving:
            self._leave_if_idle()
        self._read_what_may()

    def _end_client(self) -> None:
        """Pass the client's end on, once its given-up messages are safe."""
        if self._has_passed_end:
            return
        if self._session.is_rescuing:
            self._leave_later()
            return
        self._has_passed_end = True
        for effect in self._session.client_ended():
            if isinstance(effect, ToBroker):
                self._broker.write(effect.data)
        self._broker.write_end()
        if not self._client.is_open:
            self.end("")
        self._end_if_done()

    def _end_if_done(self) -> None:
        """End once both sides have sent all, and all of it has left."""
        if self._is_over or not (self._has_passed_end and self._broker_has_ended):
            return
        if self._client.is_empty and self._broker.is_empty:
            self.end("")
        else:
            # Why no time limit: a slow reader gets all.
            asyncio.get_running_loop().call_later(_LEAVES_EVERY_S, self._end_if_done)

    def _leave_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESCUE_S, self.end, "")

    def _leave_if_idle(self) -> None:
        if self._is_leaving and not self._session.is_rescuing:
            self.end("the listener stops")

    def _read_what_may(self) -> None:
        if self._is_over or not self._broker.is_open:
            return
        may_read = not (self._broker.is_choked or self._session.is_waiting or self._is_leaving)
        self._client.read(does=may_read and not self._client_has_ended)
        self._broker.read(does=not self._client.is_choked)
