"""A peer that admits everybody as a broker does, and then sends what no broker sends."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, repeat

from amqsidecar.formats import openwire_codec as codec
from support.waiting import PATIENCE_S

LISTEN = b""
"""Said in an attack: wait until the sidecar says something."""

_PIECE = bytes(2**20)
_TIMES = 4_096
STOMP_CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.3.1\nheart-beat:0,0\n\n\0"
OPENWIRE_LET_IN = codec.SIZE.pack(10) + bytes([codec.RESPONSE]) + struct.pack(">IBI", 1, 0, 1)
OPENWIRE_GREETING = codec.wire_format_info(inactivity_ms=0, frame_bytes_max=100 * 2**20)
_IN = (OPENWIRE_GREETING, LISTEN, OPENWIRE_LET_IN, LISTEN)
_TEXT = b"m" * 2**19

Answer = Callable[[bytes], bytes | Iterator[bytes]]
"""Makes what is said, at once or piece by piece, of what the sidecar says."""

Attack = Sequence[bytes | Answer]
"""What is said in turn; the last part again and again."""

STOMP_ATTACKS: Sequence[Attack] = (
    (STOMP_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\ncontent-length:105000000\n\n", _PIECE),
    (STOMP_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\ncontent-length:2147483647\n\n", _PIECE),
    (STOMP_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\n\n", b"x" * 2**20),
    (STOMP_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:", b"x" * 2**20),
    (STOMP_CONNECTED, LISTEN, b"ERROR\nmessage:%b\n\n%b\0" % (_TEXT, _TEXT[:-100])),
    (STOMP_CONNECTED, LISTEN, b"ERROR\nmessage:", b"x" * 2**20),
)
OPENWIRE_ATTACKS: Sequence[Attack] = tuple(
    (*before, struct.pack(">IB", size, code), _PIECE)
    for before, size, code in (
        (_IN, 100 * 2**20, codec.MESSAGE_DISPATCH),
        (_IN, 100 * 2**20, codec.CONNECTION_ERROR),
        (_IN, 2**31 - 1, codec.MESSAGE_DISPATCH),
        ((OPENWIRE_GREETING, LISTEN), 2**30, codec.RESPONSE),
    )
)


class HostileBroker:
    """Attacks each connection, one kind after the other.

    Attributes:
        port: on 127.0.0.1.
        attacks: how many connections were attacked to their end.
    """

    def __init__(self, server: socket.socket, kinds: Sequence[Attack], times: int) -> None:
        self.port: int = server.getsockname()[1]
        self.attacks = 0
        self._sent_bytes = 0
        self._server = server
        self._kinds = cycle(kinds)
        self._times = times
        self._threads: list[threading.Thread] = []

    def serve(self) -> None:
        """Attack until the server is closed."""
        with suppress(OSError):
            while True:
                connected, _ = self._server.accept()
                thread = threading.Thread(target=self._attack, args=(connected, next(self._kinds)))
                self._threads.append(thread)
                thread.start()

    def attack_by(self, kinds: Sequence[Attack]) -> None:
        """Attack each connection from the next one on by these kinds instead."""
        self._kinds = cycle(kinds)

    def _attack(self, connected: socket.socket, kind: Attack) -> None:
        with connected, suppress(OSError):
            connected.settimeout(PATIENCE_S)
            connected.recv(65_536)
            for part in (*kind[:-1], *repeat(kind[-1], self._times)):
                if part == LISTEN:
                    connected.recv(65_536)
                said = part(connected.recv(65_536)) if callable(part) else part
                for one in (said,) if isinstance(said, bytes) else said:
                    connected.sendall(one)
                    self._sent_bytes += len(one)
        self.attacks += 1

    def end(self) -> int:
        """Wait for the attacks to end; return how many bytes they sent."""
        for thread in self._threads:
            thread.join()
        return self._sent_bytes


@contextmanager
def hostile_broker(kinds: Sequence[Attack], times: int = _TIMES) -> Iterator[HostileBroker]:
    """Serve on a free port of 127.0.0.1 while the block runs.

    Args:
        kinds: the attacks, each on a connection of its own.
        times: so often the last part of each is said.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = HostileBroker(server, kinds, times)
        thread = threading.Thread(target=broker.serve)
        thread.start()
        try:
            yield broker
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()
            broker.end()
