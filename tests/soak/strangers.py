"""Hostile clients of a listener: each opens sockets, does its worst, and opens them again when cut.

`python -m soak.strangers PORT SOCKETS CA_FILE` runs all kinds until its input ends; CA_FILE "" =
without TLS. It prints how many sockets it has opened of each kind.
"""

import json
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import frame_of
from amqsidecar.formats.openwire_codec import wire_format_info
from support.tier import at_length

ADDRESSES: Final = ("127.0.7.1", "127.0.8.1")
"""With the next one three networks: the consumers' fair share is a fourth of the places."""
WITH_LOGIN: Final = "127.0.6.1"
"""Of strangers with a log-in, so that the others do not take their places."""
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLRDHUP
_PATIENCE_S: Final = 10.0
_GATHER_S: Final = at_length(60.0, otherwise=5.0)
"""Time limit until half of them are there."""

Act = Callable[[socket.socket], None]

_SASL, _AMQP = b"AMQP\3\1\0\0", b"AMQP\0\1\0\0"
_LOGIN: Final = b"CONNECT\naccept-version:1.2\nlogin:admin\npasscode:admin\n\n\0"


def _log_in_by_stomp(connected: socket.socket) -> None:
    connected.sendall(_LOGIN)
    connected.recv(4096)


def _log_in_by_amqp(connected: socket.socket) -> None:
    init = bytearray(
        frame_of(0, frames.SASL_INIT, [amqp.symbol("PLAIN"), b"\xa0\x0c\0admin\0admin"])
    )
    init[5] = 1
    connected.sendall(_SASL + init)
    connected.recv(4096)
    numbers = [amqp.NULL, *[amqp.unsigned(2000)] * 3]
    begin = frame_of(0, frames.BEGIN, numbers)
    connected.sendall(_AMQP + frame_of(0, frames.OPEN, [amqp.string("stranger")]) + begin)
    connected.recv(4096)


def silent(_connected: socket.socket) -> None:
    """Say nothing."""


def unfinished_head(connected: socket.socket) -> None:
    """Send a head of STOMP without an end, of 1 MiB."""
    connected.sendall(b"CONNECT\nx:" + b"a" * (1 << 20))


def short_unfinished_head(connected: socket.socket) -> None:
    """Send as much of a head as may be held before the log-in."""
    connected.sendall(b"CONNECT\nx:" + b"a" * 65_000)


def unread_protocol(connected: socket.socket) -> None:
    """Speak OpenWire, and never log in."""
    connected.sendall(wire_format_info(inactivity_ms=0, frame_bytes_max=1 << 20))


def huge_transactions(connected: socket.socket) -> None:
    """Log in, and begin transactions with names of 900 KB."""
    _log_in_by_stomp(connected)
    for number in range(600):
        connected.sendall(b"BEGIN\ntransaction:%06d%b\n\n\0" % (number, b"b" * 900_000))


def huge_subscriptions(connected: socket.socket) -> None:
    """Log in, and subscribe with ids of 900 KB."""
    _log_in_by_stomp(connected)
    for number in range(600):
        name = b"%06d%b" % (number, b"s" * 900_000)
        connected.sendall(b"SUBSCRIBE\nid:%b\ndestination:strange\nack:client\n\n\0" % name)


def slow_consumer(connected: socket.socket) -> None:
    """Log in, ask for ten messages of a full queue, and read none of them.

    Why not over STOMP: Artemis then blocks a thread for each, and soon takes no log-in at all.
    """
    _log_in_by_amqp(connected)
    uint = amqp.unsigned
    full = [amqp.string("full"), *[amqp.NULL] * 9, amqp.symbol("queue")]
    ends = [frames.described(frames.SOURCE, full), frames.described(frames.TARGET, [])]
    link = [amqp.string("slow"), uint(0), frames.TRUE, amqp.NULL, amqp.NULL, *ends]
    flow = [uint(0), uint(2000), uint(0), uint(2000), uint(0), uint(0), uint(10)]
    connected.sendall(frame_of(0, frames.ATTACH, link) + frame_of(0, frames.FLOW, flow))


def half_sasl(connected: socket.socket) -> None:
    """Begin SASL, and send half of a frame of 200 KB."""
    connected.sendall(_SASL + (200_000).to_bytes(4) + b"\x02\x01\0\0" + b"s" * 100_000)


def many_links(connected: socket.socket) -> None:
    """Log in, and attach links with names of 60 KB, each to a handle of its own."""
    _log_in_by_amqp(connected)
    name = amqp.string("l" * 60_000)
    ends = [amqp.NULL, amqp.NULL, frames.described(frames.SOURCE, [amqp.string("strange")])]
    for number in range(2000):
        link = [name, amqp.unsigned(number), frames.TRUE, *ends]
        connected.sendall(frame_of(0, frames.ATTACH, link))


def many_sessions(connected: socket.socket) -> None:
    """Log in, and begin all sessions that there may be."""
    _log_in_by_amqp(connected)
    numbers = [amqp.NULL, *[amqp.unsigned(2000)] * 3]
    for channel in range(1, 0xFFFF):
        connected.sendall(frame_of(channel, frames.BEGIN, numbers))


def big_frames(connected: socket.socket) -> None:
    """Log in, and send a frame of 2 GB as far as it goes."""
    _log_in_by_amqp(connected)
    connected.sendall((2**31).to_bytes(4) + b"\x02\0\0\0")
    while True:
        connected.sendall(bytes(1 << 18))


def half_hello(connected: socket.socket) -> None:
    """Send half of a first record of TLS."""
    connected.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"\x03\x03" + b"c" * 16_000)


def hello(connected: socket.socket) -> None:
    """Begin a handshake, and never go on."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    connected.sendall(outgoing.read())


BEFORE_TLS: Final = (silent, half_hello, hello)
WITHOUT_LOGIN: Final = (
    *(silent, unfinished_head, short_unfinished_head, unread_protocol, half_sasl),
)
LOGGED_IN: Final = (
    *(huge_transactions, huge_subscriptions, slow_consumer),
    *(many_links, many_sessions, big_frames),
)


class Stranger(threading.Thread):
    """Keeps so many sockets of one kind open.

    Attributes:
        opened: so far.
    """

    def __init__(self, port: int, act: Act, address: str, sockets: int, ca_file: str) -> None:
        super().__init__(daemon=True)
        self._port, self._act, self._address, self._count = port, act, address, sockets
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._open: dict[int, socket.socket] = {}
        self._poll = select.poll()
        self.opened = 0

    def run(self) -> None:
        """Go on until the process ends."""
        while True:
            is_full = len(self._open) >= self._count
            for number, _ in self._poll.poll(20 if is_full else 0):
                self._poll.unregister(number)
                self._open.pop(number).close()
            if not is_full:
                self._open_one()

    def _open_one(self) -> None:
        with suppress(OSError):
            made = socket.create_connection(
                ("127.0.0.1", self._port), _PATIENCE_S, source_address=(self._address, 0)
            )
            self.opened += 1
            if self._tls is not None:
                try:
                    made = self._tls.wrap_socket(made, server_hostname="localhost")
                except OSError:
                    made.close()
                    raise
            self._open[made.fileno()] = made
            self._poll.register(made, _GONE)
            self._act(made)


def main() -> None:
    """Run all kinds."""
    port, sockets, ca_file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    acts = [(act, ca_file) for act in (*WITHOUT_LOGIN, *LOGGED_IN)]
    if ca_file:
        acts += [(act, "") for act in BEFORE_TLS]
    share = sockets // len(acts)
    strangers = []
    for number, (act, own_tls) in enumerate(acts):
        address = WITH_LOGIN if act in LOGGED_IN else ADDRESSES[number % len(ADDRESSES)]
        strangers.append(Stranger(port, act, address, share, own_tls))
        strangers[-1].start()
    until_s = time.monotonic() + _GATHER_S
    while time.monotonic() < until_s and any(one.opened < share // 2 for one in strangers):
        time.sleep(0.1)
    print("all are there", flush=True)
    sys.stdin.read()
    opened = {
        f"{act.__name__}{' by TLS' if own_tls else ''}": one.opened
        for (act, own_tls), one in zip(acts, strangers, strict=True)
    }
    print(json.dumps(opened), flush=True)


if __name__ == "__main__":
    main()
