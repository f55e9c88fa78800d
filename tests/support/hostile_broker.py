"""A peer that lets everybody in as a broker does, and then sends what no broker sends."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, repeat

from amqsidecar.formats import openwire_codec as codec

LISTEN = b""
"""Said in an attack: wait until the sidecar says something."""

_PIECE = bytes(2**20)
_TIMES = 4_096
_CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.3.1\nheart-beat:0,0\n\n\0"
_GREETING = codec.wire_format_info(inactivity_ms=0, frame_bytes_max=100 * 2**20)
_LET_IN = codec.SIZE.pack(9) + bytes([codec.RESPONSE]) + struct.pack(">IBI", 1, 0, 1)[:8]
_IN = (_GREETING, LISTEN, _LET_IN, LISTEN)
_TEXT = b"m" * 2**19

Attack = Sequence[bytes]
"""What is said in turn; the last part again and again, while anybody reads it."""

STOMP_ATTACKS: Sequence[Attack] = (
    (_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\ncontent-length:105000000\n\n", _PIECE),
    (_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\ncontent-length:2147483647\n\n", _PIECE),
    (_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:a\n\n", b"x" * 2**20),
    (_CONNECTED, LISTEN, b"MESSAGE\nmessage-id:", b"x" * 2**20),
    (_CONNECTED, LISTEN, b"ERROR\nmessage:%b\n\n%b\0" % (_TEXT, _TEXT[:-100])),
    (_CONNECTED, LISTEN, b"ERROR\nmessage:", b"x" * 2**20),
)
OPENWIRE_ATTACKS: Sequence[Attack] = tuple(
    (*before, struct.pack(">IB", size, code), _PIECE)
    for before, size, code in (
        (_IN, 100 * 2**20, codec.MESSAGE_DISPATCH),
        (_IN, 100 * 2**20, codec.CONNECTION_ERROR),
        (_IN, 2**31 - 1, codec.MESSAGE_DISPATCH),
        ((_GREETING, LISTEN), 2**30, codec.RESPONSE),
    )
)


class HostileBroker:
    """Attacks each connection, one kind after the other.

    Attributes:
        port: on 127.0.0.1.
        attacks: how many connections were attacked to their end.
    """

    def __init__(self, server: socket.socket, kinds: Sequence[Attack]) -> None:
        self.port: int = server.getsockname()[1]
        self.attacks = 0
        self._server = server
        self._kinds = cycle(kinds)
        self._threads: list[threading.Thread] = []

    def serve(self) -> None:
        """Attack until the server is closed."""
        with suppress(OSError):
            while True:
                connected, _ = self._server.accept()
                thread = threading.Thread(target=self._attack, args=(connected, next(self._kinds)))
                self._threads.append(thread)
                thread.start()

    def _attack(self, connected: socket.socket, kind: Attack) -> None:
        with connected, suppress(OSError):
            connected.settimeout(30)
            connected.recv(65_536)
            for part in (*kind[:-1], *repeat(kind[-1], _TIMES)):
                if part == LISTEN:
                    connected.recv(65_536)
                connected.sendall(part)
        self.attacks += 1

    def join(self) -> None:
        """Wait for the attacks to end."""
        for thread in self._threads:
            thread.join(60)


@contextmanager
def hostile_broker(kinds: Sequence[Attack]) -> Iterator[HostileBroker]:
    """Serve on a free port of 127.0.0.1 while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = HostileBroker(server, kinds)
        thread = threading.Thread(target=broker.serve)
        thread.start()
        try:
            yield broker
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            broker.join()
