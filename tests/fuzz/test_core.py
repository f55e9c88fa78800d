"""Any bytes as Core: read or refused, by one error, and what is read is whole again."""

import struct
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.formats.core import packets
from amqsidecar.formats.core.framing import CoreFrameSplitter, frame
from amqsidecar.formats.core.message import (
    NO_PROPERTIES,
    CoreProperty,
    CorePropertyType,
    decode_message,
    edit_properties,
    encode_message,
    read_core_properties,
)
from amqsidecar.formats.core.packet_format import CorePacket
from amqsidecar.formats.core.primitives import CoreProtocolError
from support.wires.core_strategies import any_packet, encoded_properties, messages
from support.wires.fuzz import damaged, fuzz, pieces

CODES = [format_.code for format_ in packets.FORMATS.values()]
CHANGE = {"_AMQ_DUPL_ID": CoreProperty(CorePropertyType.STRING, "r-1"), "a": None}
MANY = struct.pack(">i", 2**31 - 1)


@fuzz
@given(st.sampled_from(CODES), damaged(any_packet.map(packets.encode)) | st.binary(max_size=60))
@example(-22, b"\x01" + MANY)
@example(-19, b"\0\0\0\x01" + bytes(8) + MANY)
@example(31, b"")
@example(20, bytes(4) + b"\x01" + struct.pack(">i", -1))
@example(20, bytes(4) + b"\x01\0\0\0\x09\0\x01\xff")
@example(45, b"\0\0\0\x01a")
@example(77, MANY)
def test_any_packet_is_read_or_refused(code: int, fields: bytes) -> None:
    with suppress(CoreProtocolError):
        packet = packets.decode(code, fields)
        assert packet is not None
        assert packets.decode(code, packets.encode(packet)) == packet


@fuzz
@given(damaged(messages().map(encode_message)) | st.binary(max_size=80))
@example(struct.pack(">i", 13) + bytes(8) + b"\x01" + MANY)
@example(struct.pack(">i", 13) + bytes(8) + b"\0\x01" + bytes(16))
def test_any_message_that_is_read_keeps_its_body_and_its_properties(data: bytes) -> None:
    with suppress(CoreProtocolError):
        message = decode_message(data)
        assert message.body in data
        assert data.endswith(message.properties)
        assert decode_message(encode_message(message)) == message


@fuzz
@given(damaged(encoded_properties) | st.binary(max_size=40))
@example(b"")
@example(b"\0\0")
@example(b"\x01")
@example(b"\x01" + MANY)
@example(b"\x01" + MANY + b"\0\0\0\x02a\0\x0a" + MANY)
@example(b"\x01\0\0\0\x01\0\0\0\x02a\0\x01")
@example(b"\x01\0\0\0\x01\0\0\0\x02a\0")
@example(b"\x01\xff\xff\xff\xff")
def test_any_properties_are_edited_or_refused(data: bytes) -> None:
    try:
        before = read_core_properties(data)
    except CoreProtocolError:
        with suppress(CoreProtocolError):
            edit_properties(data, CHANGE)
        return
    after = read_core_properties(edit_properties(data, CHANGE))
    expected = {**before, "_AMQ_DUPL_ID": CHANGE["_AMQ_DUPL_ID"]}
    expected.pop("a", None)
    assert repr(sorted(after.items())) == repr(sorted(expected.items()))


@fuzz
@given(st.lists(any_packet, max_size=5), st.data())
def test_packets_are_the_same_however_they_are_cut(
    sent: list[CorePacket], data: st.DataObject
) -> None:
    expected = [(packets.code_of(one), at, packets.encode(one)) for at, one in enumerate(sent)]
    stream = b"".join(frame(*one) for one in expected)
    splitter = CoreFrameSplitter(2**20)
    assert [one for piece in data.draw(pieces(stream)) for one in splitter.feed(piece)] == expected


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 8, 101, 2**31 - 1])
def test_a_packet_that_can_not_be_is_refused_by_its_length_alone(length: int) -> None:
    """Before anything is kept for it."""
    with pytest.raises(CoreProtocolError, match=str(length)):
        CoreFrameSplitter(100).feed(struct.pack(">i", length))


def test_no_properties_are_one_byte() -> None:
    assert read_core_properties(NO_PROPERTIES) == {}
