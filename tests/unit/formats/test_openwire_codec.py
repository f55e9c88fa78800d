"""Frames are cut, commands are laid out field by field, and nonsense is called a protocol error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.brokers.classic.queues import is_ours, pattern_of
from amqsidecar.errors import BrokerRefused, RemoteProtocolError, UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.model.destination import Destination, DestinationKind, queue
from support.wires import openwire as wire


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def test_a_big_frame_is_joined_once() -> None:
    """Many small pieces of one frame cost no more than their bytes."""
    splitter = codec.FrameSplitter(2**31 - 1)
    frame = bytes(1 << 20)
    stream = framed(frame)
    pieces = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert [found for piece in pieces for found in splitter.feed(piece)] == [frame]


def test_the_greeting_offers_what_we_speak() -> None:
    """No cache, no tight encoding, no stack traces, our silence and our frames."""
    greeting = codec.wire_format_info(inactivity_ms=5000, frame_bytes_max=1 << 20)
    assert greeting[4:18] == b"\x01ActiveMQ\0\0\0\x0c\x01"
    offered = codec.read_wire_format_info(greeting[4:])
    assert offered == codec.WireFormat(12, 5000, 1 << 20, "")
    for name in ("CacheEnabled", "TightEncodingEnabled", "StackTraceEnabled"):
        assert wire.entry(name, 1, b"\0") in greeting


@given(st.binary(max_size=60))
def test_any_other_greeting_is_a_protocol_error(data: bytes) -> None:
    """Whatever answers on that port, it is not taken for a broker."""
    with pytest.raises(RemoteProtocolError):
        codec.read_wire_format_info(data)


@pytest.mark.parametrize("size", [9, 12, *range(19, 60)])
def test_a_truncated_greeting_is_a_protocol_error(size: int) -> None:
    """A greeting that ends within its numbers or properties is not guessed at."""
    greeting = codec.wire_format_info(inactivity_ms=5000, frame_bytes_max=1 << 20)[4:]
    with pytest.raises(RemoteProtocolError):
        codec.read_wire_format_info(greeting[:size])


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (DestinationKind.QUEUE, 100),
        (DestinationKind.TOPIC, 101),
        (DestinationKind.TEMP_QUEUE, 102),
        (DestinationKind.TEMP_TOPIC, 103),
    ],
)
@given(name=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
def test_destinations_come_back(kind: DestinationKind, code: int, name: str) -> None:
    """All four kinds, any name."""
    field = codec.destination_field(Destination(kind, name))
    assert field == wire.destination((code, name))
    assert codec.read_destination(field) == Destination(kind, name)


def test_destinations_that_are_none() -> None:
    """Null is none; anything else that is not a destination is undecodable."""
    assert codec.read_destination(b"\0") is None
    for field in (b"\x01", b"\x01\x64\0", b"\x01\x6e\x01\0\x01a"):
        with pytest.raises(UndecodableMessage):
            codec.read_destination(field)


def test_ids_are_laid_out_as_the_broker_does() -> None:
    """A producer's session comes last, a consumer's first."""
    name = b"\x01\0\x04ID:c"
    one, two = struct.pack(">q", 1), struct.pack(">q", 2)
    assert codec.connection_id("ID:c") == b"\x01\x78" + name
    assert codec.session_id("ID:c") == b"\x01\x79" + name + one
    assert codec.consumer_id("ID:c", 1, 2) == b"\x01\x7a" + name + one + two
    assert codec.producer_id("ID:c", 1, 2) == wire.producer_id(("ID:c", 1, 2))
    assert codec.transaction_id("ID:c", 2) == wire.local_transaction("ID:c", 2)


def test_acks_name_a_range_or_one() -> None:
    """One message is acked individually, several by their first and last id."""
    one = codec.message_ack(b"D", b"T", b"C", b"F", b"F", 1)
    many = codec.message_ack(b"D", b"T", b"C", b"F", b"L", 3)
    assert one == b"DTC\x04FF" + struct.pack(">i", 1) + b"\0"
    assert many == b"DTC\x02FL" + struct.pack(">i", 3) + b"\0"


@given(wire.texts, st.integers(0, 2**60), st.none() | st.binary(min_size=1, max_size=30))
def test_dispatches_are_read(connection: str, value: int, message: bytes | None) -> None:
    """Consumer, queue and message, without dispatch time; a browser's end has neither."""
    where = wire.destination((wire.QUEUE, "ActiveMQ.DLQ")) if message else b"\0"
    nested = b"\0" if message is None else b"\x01" + message + b"12345678\x01"
    frame = b"".join(
        (
            b"\x15\0\0\0\x01\0",
            codec.consumer_id(connection, 1, value),
            where + nested + b"\0\0\0\x02",
        )
    )
    told = None if message is None else message + bytes(9)
    if message is not None and message[0] == codec.BLOB_MESSAGE:
        told = message + b"12345678\x01"
    assert codec.read_dispatch(frame)[:3] == (value, where, told)


@given(st.binary(max_size=12))
def test_a_broken_dispatch_is_a_protocol_error(data: bytes) -> None:
    """A dispatch that ends early is not guessed at."""
    with pytest.raises(RemoteProtocolError):
        codec.read_dispatch(b"\x15" + data)


def test_exceptions_are_reported_in_the_brokers_words() -> None:
    """Class and message, without package and stack."""
    told = b"\x01" + wire.nullable("java.lang.SecurityException") + wire.nullable("not allowed")
    frame = b"\x1f\0\0\0\x01\0\0\0\0\x07" + told
    assert str(codec.read_throwable(frame, 10)) == "SecurityException: not allowed"
    assert codec.correlation_of(frame) == 7
    assert str(codec.read_throwable(frame[:10] + b"\0", 10)) == "the broker gave no reason"
    assert str(codec.read_throwable(frame[:15], 10)) == "the broker's reason can't be read"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("DLQ.>", ["DLQ", "DLQ.A", "DLQ.A.B"], ["DLQX", "A.DLQ.B", "XDLQ.A"]),
        ("DLQ.*", ["DLQ.A", "DLQ."], ["DLQ", "DLQ.A.B"]),
        ("*.DLQ", ["A.DLQ"], ["DLQ", "A.B.DLQ"]),
        ("A.*.>", ["A.B", "A.B.C"], ["A", "B.A.C"]),
        (">", ["A", "A.B"], []),
        ("a+b.>", ["a+b.c"], ["aab.c"]),
    ],
)
def test_wildcards_match_as_in_the_broker(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    """Part by part; `>` also stands for nothing."""
    found = pattern_of(pattern)
    assert [name for name in (*matching, *others) if found.fullmatch(name)] == matching


@pytest.mark.parametrize("name", ["A.>.B", "A*", "DLQ.x>"])
def test_odd_wildcards_are_refused(name: str) -> None:
    """What the broker would read in another way than its user is not read at all."""
    with pytest.raises(BrokerRefused, match="whole part"):
        pattern_of(name)


def test_our_own_queues() -> None:
    """Final dead-letter queues and token queues are never intake."""
    assert is_ours("DLQ.A.exhausted", ".exhausted")
    assert is_ours("amqsidecar.token.i1", ".exhausted")
    assert not is_ours("DLQ.A", ".exhausted")
    assert codec.destination_field(queue("a")) == wire.destination((wire.QUEUE, "a"))


@pytest.mark.parametrize(
    ("broker_id", "is_artemis"),
    [
        ("c2b9960a-e5c0-11f1-981b-02fc00000001", True),
        ("ID:vm-34627-1795275154236-0:1", False),
        ("", False),
    ],
)
def test_artemis_is_known_by_its_broker_id(broker_id: str, is_artemis: bool) -> None:
    """Its greeting is Classic's, word for word."""
    info = b"\x02" + bytes(5) + b"\x01\x7c\x01" + struct.pack(">H", len(broker_id))
    assert codec.is_artemis(info + broker_id.encode() + b"\x01\x00") == is_artemis


@given(st.binary(max_size=60))
def test_any_broker_info_can_be_asked(rest: bytes) -> None:
    """Nonsense is no Artemis, and no error."""
    assert codec.is_artemis(b"\x02" + rest) in (True, False)
