"""Any bytes from a broker over OpenWire: frames however they are cut, our own errors, no more."""

import struct
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.errors import RemoteProtocolError, UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats import openwire_dead_letter as dead
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.formats.openwire_properties import EditedProperties, decode_text, read_properties
from amqsidecar.model.destination import queue
from support.links.cycles import resend_of
from support.wires import openwire as wire
from support.wires.fuzz import damaged, fuzz, pieces

RESERVED = (
    *("amqsidecarRedeliveryId", "amqsidecarRedeliveryCount", "redeliveryDelay"),
    "amqsidecarRedeliveryCheck",
    *("dlqDeliveryFailureCause", "originalExpiration", "originalDeliveryMode", "scheduledJobId"),
    *("AMQ_SCHEDULED_DELAY", "original-destination", "amqsidecarOriginalMessageId"),
)
entries = st.lists(
    st.tuples(st.sampled_from(RESERVED) | wire.texts, wire.values).map(
        lambda pair: (pair[0], wire.utf(pair[0]) + pair[1])
    ),
    max_size=8,
)
messages = st.builds(
    wire.WireMessage,
    code=st.integers(23, 29),
    original_destination=st.none()
    | st.tuples(st.sampled_from((wire.QUEUE, wire.TOPIC)), wire.texts),
    text_view=st.none() | wire.texts,
    group=st.none() | wire.texts,
    priority=st.integers(0, 255),
    expiration=wire.long_numbers,
    timestamp=wire.long_numbers,
    redelivery_counter=st.integers(-(2**31), 2**31 - 1),
    content=st.none() | st.binary(max_size=20),
    compressed=st.booleans(),
    user=st.none() | wire.texts,
    tail=st.binary(max_size=9),
)


@st.composite
def with_properties(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, bytes]]]:
    found = draw(entries)
    properties = wire.property_map(*(entry for _, entry in found))
    return draw(messages).with_(properties=properties).encoded(), found


resend = partial(
    resend_of, redelivery_count=2**31 - 1, redelivery_delay_ms=2**62, expiration_ms=2**40
)


@fuzz
@given(with_properties(), st.booleans())
def test_a_redelivery_keeps_what_it_does_not_name(
    made: tuple[bytes, list[tuple[str, bytes]]], is_final: bool
) -> None:
    message, found = made
    frame = OpenWireResendEncoder("us").resend(
        resend(message, is_final=is_final), codec.NULL, 2**41, 5
    )
    sent, before = dead.take_apart(frame[4:]), dead.take_apart(message)
    for name in ("group", "priority", "body", "structure", "compressed", "user", "tail"):
        assert getattr(sent, name) == getattr(before, name)
    assert sent.properties is not None
    at = 4
    for name, entry in found:
        if name not in RESERVED and not name.startswith("AMQ_SCHEDULED_"):
            at = sent.properties.index(entry, at) + len(entry)
    told, _ = dead.read_dead_letter(frame[4:], queue("orders"), 0)
    assert (told.redelivery_id, told.redelivery_count) == ("r-1", 2**31 - 1)


@fuzz
@given(damaged(with_properties().map(lambda made: made[0])) | st.binary(max_size=80))
@example(b"")
@example(b"\x1c")
def test_any_message_shows_its_past_or_a_problem(data: bytes) -> None:
    told, message_id = dead.read_dead_letter(data, None, 2**41)
    assert (told.origin is None) == (told.problem is not None)
    assert message_id is None or message_id in data
    dead.read_destination_info(data)
    dead.read_cycle(data)
    with suppress(UndecodableMessage):
        OpenWireResendEncoder("us").resend(resend(data, is_final=False), codec.NULL, 2**41, 5)


@fuzz
@given(damaged(entries.map(lambda found: wire.property_map(*(entry for _, entry in found)))))
@example(struct.pack(">i", 2**31 - 1))
@example(struct.pack(">i", -1) + b"\0\1a\x0e")
@example(wire.property_map(wire.entry("a", 12, struct.pack(">i", 1) + b"\x0c") * 1) + bytes(500))
@example(wire.property_map(wire.entry("a", 12, (struct.pack(">i", 1) + b"\x0c") * 5000)))
def test_any_properties(data: bytes) -> None:
    try:
        read = read_properties(data, [name.encode() for name in RESERVED])
    except UndecodableMessage:
        with pytest.raises(UndecodableMessage):
            EditedProperties(data, (), ())
        return
    kept = EditedProperties(data, (), [name.encode() for name in RESERVED])
    assert kept.found == read
    if b"AMQ_SCHEDULED_" not in data and len(data) >= 4 and data[0] < 0x80:
        assert data.startswith(kept.with_entries(()))


@fuzz
@given(st.binary(max_size=30))
def test_any_text_is_read(data: bytes) -> None:
    decode_text(data).encode("utf-8", "surrogatepass")


@fuzz
@given(st.lists(st.binary(min_size=1, max_size=20), max_size=6), st.data())
def test_frames_are_the_same_however_they_are_cut(frames: list[bytes], data: st.DataObject) -> None:
    splitter = codec.FrameSplitter(20)
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert [one for piece in data.draw(pieces(stream)) for one in splitter.feed(piece)] == frames


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 21])
def test_a_frame_that_can_not_be_is_refused_by_its_size_alone(size: int) -> None:
    """Before anything is kept for it."""
    with pytest.raises(RemoteProtocolError, match=str(size)):
        codec.FrameSplitter(20).feed(struct.pack(">i", size))


GREETING = codec.wire_format_info(inactivity_ms=30_000, frame_bytes_max=2**27)[4:]
DISPATCH = (
    bytes((21, 0, 0, 0, 1, 0))
    + codec.consumer_id("ID:us", 1, 7)
    + codec.destination_field(queue("DLQ"))
    + b"\x01"
    + wire.WireMessage().encoded()
    + struct.pack(">i", 0)
)


@fuzz
@given(damaged(st.sampled_from((GREETING, DISPATCH))) | st.binary(max_size=40))
@example(b"\x01ActiveMQ\0\0\0\x0c\x01")
@example(b"\x1e\0\0")
@example(DISPATCH[:30])
def test_any_command_is_read_or_refused(frame: bytes) -> None:
    for read in (codec.read_wire_format_info, codec.read_dispatch, codec.correlation_of):
        with suppress(RemoteProtocolError):
            read(frame)
    codec.is_artemis(frame)
    for at in (6, 10):
        assert isinstance(str(codec.read_throwable(frame, at)), str)
