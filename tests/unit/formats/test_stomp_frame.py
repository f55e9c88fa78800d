"""Frames off the wire, on the wire, and in the store: always bytes, order and repeats kept."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.stomp_frame import (
    FrameReader,
    encode,
    encode_connect,
    first,
    parse_kept,
    write_head,
)

NAMES = st.binary(min_size=1, max_size=8).filter(lambda name: name != b"content-length")
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=12)), max_size=6)


@given(HEADERS, st.binary(max_size=40), st.lists(st.integers(1, 9), min_size=1))
def test_what_is_sent_is_read_however_it_is_cut(
    headers: list[tuple[bytes, bytes]], body: bytes, cuts: list[int]
) -> None:
    """Any bytes in names, values and body; order and repeated names stay."""
    length = (b"content-length", str(len(body)).encode())
    wire = encode("MESSAGE", [*headers, length], body) + b"\n\r\n" + encode("RECEIPT", headers)
    reader = FrameReader()
    frames = []
    at = 0
    while at < len(wire):
        size = cuts[at % len(cuts)]
        frames += reader.feed(wire[at : at + size])
        at += size
    message, receipt = frames
    assert (message.command, message.headers()) == ("MESSAGE", [*headers, length])
    assert message.body == body
    assert (receipt.command, receipt.headers(), receipt.body) == ("RECEIPT", headers, b"")


def test_a_body_without_length_ends_at_the_first_nul() -> None:
    """And bytes that are no UTF-8 do no harm."""
    reader = FrameReader()
    assert reader.feed(b"MESSAGE\nname:\xed\xa0\x80\n\n\xc0\x80 begin") == []
    [frame] = reader.feed(b" end\0\n\n\n")
    assert frame.body == b"\xc0\x80 begin end"
    assert frame.first(b"name") == b"\xed\xa0\x80"
    assert reader.feed(b"\n") == []


def test_the_first_of_repeated_headers_counts() -> None:
    """Artemis shows a stored property a second time."""
    assert first([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], b"a") == b"1"
    assert first([(b"a", b"1")], b"b") is None


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\0\0\1\x42\1ActiveMQ",
        b"MESSAGES\n",
        b"cd\n\n\0",
        b"MESSAGE\ncontent-length:2\n\nabc\0",
        b"MESSAGE\ncontent-length:x\n\nabc\0",
    ],
)
def test_what_is_no_frame_is_reported_at_once(wire: bytes) -> None:
    """Waiting for its end would be waiting for ever."""
    reader = FrameReader()
    [before] = reader.feed(b"RECEIPT\nreceipt-id:1\n\n\0\n")
    assert before.command == "RECEIPT"
    problem = reader.problem
    assert problem is None
    assert reader.feed(wire) == []
    assert reader.problem
    assert reader.feed(b"RECEIPT\nreceipt-id:1\n\n\0") == []


def test_a_log_in_is_not_escaped_and_can_hold_no_line_break() -> None:
    """The broker reads it before it knows that we speak 1.2."""
    frame = encode_connect([(b"passcode", b"a:b\\c")])
    assert frame == b"CONNECT\npasscode:a:b\\c\n\n\0"
    with pytest.raises(ValueError, match="passcode"):
        encode_connect([(b"passcode", b"a\nb")])


def test_what_is_no_kept_message_is_reported() -> None:
    """Such as a row of another wire."""
    with pytest.raises(UndecodableMessage):
        parse_kept(b"\x00Sp\xc0")


def test_long_names_of_headers_are_not_remembered() -> None:
    """A stranger names the properties of a message."""
    tracemalloc.start()
    try:
        for number in range(50):
            name = b"%d%s" % (number, 100_000 * b"x")
            assert write_head([(name, b"v")]) == name + b":v\n"
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
