"""A peer that is not yet known to be a broker can't make us keep much of what it sends."""

import struct
from pathlib import Path

import pytest

from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.openwire.connection import (
    GREETING_BYTES_MAX,
    OpenWireConnection,
)
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.core import framing, packets
from amqsidecar.formats.stomp_frame import MESSAGE_BYTES_MAX, OTHER_BYTES_MAX, FrameReader
from support.brokers.loopback import at_loopback
from support.wires.hostile_broker import (
    LISTEN,
    OPENWIRE_GREETING,
    OPENWIRE_LET_IN,
    STOMP_CONNECTED,
    HostileBroker,
    hostile_broker,
)

SENT_MAX = 2**20 + sum(
    int(Path(f"/proc/sys/net/ipv4/tcp_{name}").read_text().split()[2]) for name in ("rmem", "wmem")
)
"""The buffers of two sockets may hold this many bytes that we have not read: the kernel's limits,
which it reaches where the reader gets no processor for a while."""

PIECE = b"x" * 65_536


def wait_for_ever(connection: StompConnection | OpenWireConnection) -> None:
    while True:
        connection.wait(10)


def stomp(broker: HostileBroker) -> StompConnection:
    return StompConnection(at_loopback(broker.port), SystemClock())


def log_in(broker: HostileBroker) -> OpenWireConnection:
    connection = OpenWireConnection(at_loopback(broker.port), SystemClock())
    connection.call(codec.CONNECTION_INFO, b"")
    return connection


@pytest.mark.parametrize(
    "said",
    [
        (b"CONNECTED\nversion:1.2\ncontent-length:2147483647\n\n", PIECE),
        (b"ERROR\nmessage:no\n\n", PIECE),
        (b"ERROR\nmessage:", PIECE),
        (b"ERROR\nmessage:no\n\nx\0" * 1_000,),
        (b"MESSAGE\ncontent-length:2147483647\n\n", PIECE),
    ],
    ids=["content-length", "endless ERROR", "endless head", "many ERRORs", "MESSAGE"],
)
def test_over_stomp_nothing_large_comes_before_the_greeting(said: tuple[bytes, ...]) -> None:
    with hostile_broker([said]) as broker:
        with pytest.raises((BrokerRefused, LinkLost)):
            stomp(broker)
        assert broker.end() < SENT_MAX


def test_over_stomp_errors_without_an_end_end_the_connection() -> None:
    error = b"ERROR\nmessage:%b\n\n%b\0" % (b"m" * 500_000, b"x" * 500_000)
    with hostile_broker([(STOMP_CONNECTED, error)], times=60) as broker:
        connection = stomp(broker)
        with pytest.raises(LinkLost):
            wait_for_ever(connection)
        kept = (*connection.errors, *connection._arrived)
        assert sum(len(one.head) + len(one.body) for one in kept) < 30 * 2**20
        connection.close()
        assert broker.end() > 0


def test_over_stomp_unread_receipts_end_the_connection() -> None:
    receipt = b"RECEIPT\nreceipt-id:x\n\n%b\0" % (b"x" * 500_000)
    with hostile_broker([(STOMP_CONNECTED, LISTEN, receipt)], times=600) as broker:
        connection = stomp(broker)
        connection.put(b"\n")
        connection.flush()
        assert broker.end() < 140 * 2**20 + SENT_MAX
        with pytest.raises(LinkLost, match="handed over more messages than it was asked for"):
            wait_for_ever(connection)


@pytest.mark.parametrize(
    ("said", "sent_max"),
    [
        ((b"MESSAGE\nmessage-id:a\ncontent-length:%d\n\n" % MESSAGE_BYTES_MAX, PIECE), SENT_MAX),
        ((b"MESSAGE\ncontent-length:999999999999\n\n", PIECE), SENT_MAX),
        ((b"MESSAGE\nmessage-id:a\n\n", PIECE), MESSAGE_BYTES_MAX + SENT_MAX),
        ((b"MESSAGE\nmessage-id:", PIECE), 17 * 2**20 + SENT_MAX),
    ],
    ids=["content-length", "content-length beyond all", "endless body", "endless head"],
)
def test_over_stomp_no_message_is_larger_than_the_limit(
    said: tuple[bytes, ...], sent_max: int
) -> None:
    with hostile_broker([(STOMP_CONNECTED, LISTEN, *said)]) as broker:
        connection = stomp(broker)
        connection.put(b"\n")
        with pytest.raises(LinkLost, match=r"limit over STOMP|not a STOMP frame"):
            wait_for_ever(connection)
        assert (connection.suspect is None) == said[0].endswith(b":")  # The head that never ends.
        assert broker.end() < sent_max


def test_a_message_of_the_largest_size_is_read() -> None:
    head = b"MESSAGE\ncontent-length:%d\n\n"
    size = MESSAGE_BYTES_MAX - len(head % MESSAGE_BYTES_MAX)
    reader = FrameReader()
    assert not reader.feed(head % size)
    (frame,) = reader.feed(b"x" * size + b"\0")
    assert (len(frame.body), reader.problem) == (size, None)


def test_over_stomp_errors_end_the_connection_also_where_each_is_read() -> None:
    error = b"ERROR\nmessage:no\n\n\0" * 100
    with hostile_broker([(STOMP_CONNECTED, LISTEN, error)]) as broker:
        connection = stomp(broker)
        connection.put(b"\n")
        with pytest.raises(LinkLost, match="more than 1000 errors"):
            wait_for_ever(connection)
        connection.close()
        assert broker.end() > 0


def test_only_a_message_after_the_log_in_may_be_large() -> None:
    head = b"%b\ncontent-length:%d\n\n"
    reader = FrameReader()
    assert not reader.feed(head % (b"MESSAGE", 10 * OTHER_BYTES_MAX))
    assert reader.problem is None
    for command in (b"ERROR", b"RECEIPT"):
        reader = FrameReader()
        reader.feed(head % (command, OTHER_BYTES_MAX))
        assert reader.problem == f"a frame that is no message has more than {OTHER_BYTES_MAX} bytes"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((struct.pack(">I", 2**31 - 1) + b"\x01", PIECE), "did not greet us as an OpenWire broker"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "did not greet us as an OpenWire broker"),
        ((b"AMQP\x03\x01\x00\x00",), "did not greet us as an OpenWire broker"),
        (
            (OPENWIRE_GREETING, LISTEN, struct.pack(">I", GREETING_BYTES_MAX + 1) + b"\x15", PIECE),
            "announced a frame of",
        ),
    ],
    ids=["before the greeting", "HTTP", "AMQP", "before the log-in"],
)
def test_over_openwire_nothing_large_comes_before_we_are_let_in(
    said: tuple[bytes, ...], words: str
) -> None:
    with hostile_broker([said]) as broker:
        with pytest.raises((BrokerRefused, LinkLost), match=words):
            log_in(broker)
        assert broker.end() < SENT_MAX


def test_over_openwire_no_frame_is_larger_than_the_brokers_limit() -> None:
    too_large = struct.pack(">I", 102 * 2**20) + bytes([codec.MESSAGE_DISPATCH])
    with hostile_broker([(OPENWIRE_GREETING, LISTEN, OPENWIRE_LET_IN, too_large, PIECE)]) as broker:
        with pytest.raises(LinkLost, match="announced a frame of 106954752 bytes"):
            wait_for_ever(log_in(broker))
        assert broker.end() < SENT_MAX


PONG = framing.frame(10, 0, packets.encode(packets.Ping(-1)))
LET_IN = framing.frame(31, 1, packets.encode(packets.SessionCreated(packets.VERSION_MAX)))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((struct.pack(">I", 2**31 - 1) + b"\x0a", PIECE), "a packet of 2147483647 bytes"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "violates the Core protocol"),
        ((b"AMQP\x03\x01\x00\x00",), "violates the Core protocol"),
        ((PONG, LISTEN, struct.pack(">I", 2**20 + 1) + b"\x4b", PIECE), "a packet of 1048577"),
        ((PONG, LISTEN, framing.frame(31, 1, b"\0"), LISTEN), "a number is cut off"),
        ((PONG, LISTEN, framing.frame(-19, 0, b"\0\x04\0\0"), LISTEN), "it shuts down"),
    ],
    ids=["before the greeting", "HTTP", "AMQP", "before the log-in", "cut off", "stops"],
)
def test_over_core_nothing_large_comes_before_we_are_let_in(
    said: tuple[bytes, ...], words: str
) -> None:
    with hostile_broker([said]) as broker:
        with pytest.raises(LinkLost, match=words):
            enter(broker)
        assert broker.end() < SENT_MAX


def enter(broker: HostileBroker) -> CoreSession:
    connection = CoreConnection(at_loopback(broker.port), SystemClock())
    return connection.create_session(is_transacted=True)


@pytest.mark.parametrize(
    "forged",
    [
        framing.frame(75, 10, b"\0\0\0\x0d"),
        framing.frame(77, 10, struct.pack(">i", 2**31 - 1)),
        framing.frame(-22, 10, b"\x01" + struct.pack(">i", 2**31 - 1)),
    ],
    ids=["message", "piece", "answer"],
)
def test_over_core_a_forged_packet_ends_the_connection(forged: bytes) -> None:
    with (
        hostile_broker([(PONG, LISTEN, LET_IN + forged, LISTEN)]) as broker,
        pytest.raises(LinkLost, match="violates the Core protocol"),
    ):
        enter(broker).stop()
