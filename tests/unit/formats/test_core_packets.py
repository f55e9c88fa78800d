"""The packets of Core: known bytes, laws, and what a newer or an older broker sends."""

import pytest
from hypothesis import given

from amqsidecar.formats.core import message_packets, packets
from amqsidecar.formats.core.framing import frame, frame_bytes
from amqsidecar.formats.core.message import CoreMessage, encode_message
from amqsidecar.formats.core.packet_format import CorePacket
from amqsidecar.formats.core.packets import FORMATS, code_of, decode, encode
from amqsidecar.formats.core.primitives import STRING, Connector, CoreProtocolError, CoreReader
from support.wires.core_strategies import any_packet, messages

WITH_MESSAGES = (71, 72, 75, 76)
"""A message's properties end where its packet says, and are not looked into."""


@given(any_packet)
def test_a_packet_that_is_cut_off_is_refused_or_ends_before_its_defaults(
    packet: CorePacket,
) -> None:
    format_ = FORMATS[type(packet)]
    if format_.code in WITH_MESSAGES:
        return
    fields = encode(packet)
    needed = sum(not field.is_optional for field in format_.fields)
    for end in range(len(fields)):
        try:
            found = decode(format_.code, fields[:end])
        except CoreProtocolError:
            continue
        assert needed < len(packet)
        assert found is not None
        assert found[:needed] == packet[:needed]


@given(any_packet)
def test_what_a_newer_broker_appends_is_ignored(packet: CorePacket) -> None:
    format_ = FORMATS[type(packet)]
    if any(field.is_optional for field in format_.fields) or format_.code in WITH_MESSAGES:
        return
    assert decode(format_.code, encode(packet) + b"\x07new") == packet


@given(messages())
def test_the_short_ways_are_the_long_ones(message: CoreMessage) -> None:
    sent = message_packets.SendMessage(message, False, 0, message_packets.NO_PRODUCER)
    assert encode_message(message) + message_packets.UNANSWERED == encode(sent)
    received = message_packets.ReceiveMessage(message, 3, 1)
    assert message_packets.decode_received(encode(received)) == received


def test_each_code_has_one_class() -> None:
    codes = [format_.code for format_ in FORMATS.values()]
    assert len(codes) == len(set(codes))
    assert decode(99, b"anything") is None


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", "00000000"),
        ("ab", "0000000200610062"),
        ("123456789", "000000090009313233343536373839"),
        ("1234567ß😀", "0000000a000f31323334353637c39feda0bdedb880"),
        ("x" * 4095, "00000fff00001ffe" + "7800" * 4095),
    ],
)
def test_a_string_is_written_in_one_of_three_ways_by_its_length(text: str, encoded: str) -> None:
    """In UTF-16 units below 9, as UTF-8 of each half of a pair below 4,095, else UTF-16."""
    assert STRING.write(text).hex() == encoded
    assert STRING.read(CoreReader(bytes.fromhex(encoded))) == text


def test_the_bytes_of_an_acknowledgement() -> None:
    packet = packets.Acknowledge(3, 2**40, requires_response=False)
    expected = "0000001a29" + "000000000000000a" + "0000000000000003" + "0000010000000000" + "00"
    assert frame(code_of(packet), 10, encode(packet)).hex() == expected
    assert frame_bytes(encode(packet)) == len(expected) // 2


def test_only_the_last_continuation_has_the_size_of_the_body() -> None:
    tail = "00" + "ffffffffffffffff" + "ffffffff"
    more = message_packets.SendContinuation(b"ab", True, None, False, -1, -1)
    last = message_packets.SendContinuation(b"ab", False, 7, False, -1, -1)
    assert encode(more).hex() == "00000002616201" + tail
    assert encode(last).hex() == "00000002616200" + "0000000000000007" + tail


def test_true_is_any_byte_but_zero() -> None:
    """Java writes -1 in packets."""
    code = code_of(packets.Rollback(last_is_delivered=True))
    assert decode(code, b"\xff") == packets.Rollback(last_is_delivered=True)
    assert decode(code, b"\0") == packets.Rollback(last_is_delivered=False)


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ((("host", "h"), ("port", 61616)), ("h", 61616)),
        ((("host", "h"), ("port", "61616")), ("h", 61616)),
        ((("host", "h"), ("port", "none")), None),
        ((("serverId", 0),), None),
    ],
)
def test_a_connector_says_where_it_leads(
    parameters: tuple[tuple[str, str | int], ...], place: tuple[str, int] | None
) -> None:
    assert Connector("c", "f", parameters).place == place
