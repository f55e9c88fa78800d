"""Encoded AMQP messages split and join to the same bytes, and garbage is called undecodable."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from proton import Data

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from support.wires.amqp_strategies import messages, scalars


@given(messages())
@settings(deadline=None)
def test_elements_are_the_whole_section(message: bytes) -> None:
    """A section of a list or map is its descriptor, its head and its elements, nothing else."""
    sections = amqp.split(message)
    for code in sections.keys() - {amqp.VALUE}:
        assert sections[code].endswith(b"".join(amqp.elements(sections[code])))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 100_000,
        b"\x00\x53\x77" + b"\x00" * 100_000,
        b"\x00\x53\x74\xd1" + struct.pack(">II", 2**32 - 1, 2**32 - 2),
        b"\x00\x53\x74\xd1" + struct.pack(">II", 4, 2**32 - 2),
        b"\x00\x80" + b"\xff" * 8,
        b"\x00\x53\x74\xc1\x03\x01\xa1\x00",
        b"\x00\x53\x70\x45\x00\x53\x70\x45",
        b"\x00\x53\x74\x45\x00\x53\x70\x45",
    ],
    ids=["zeros", "nested", "huge", "many", "code", "odd map", "twice", "disorder"],
)
def test_hostile_messages_are_undecodable_at_once(garbage: bytes) -> None:
    """Sizes that lie, endless nesting, and sections out of order are refused without work."""
    with pytest.raises(UndecodableMessage):
        [amqp.elements(section) for section in amqp.split(garbage).values()]


@given(scalars)
def test_scalars_are_read_as_they_were_written(value: object) -> None:
    """Every plain type of AMQP is read back by value."""
    data = Data()
    data.put_object(value)
    read = amqp.scalar(bytes(data.encode()))
    assert read == value


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (amqp.string("a" * 300), "a" * 300),
        (amqp.string("ä"), "ä"),
        (amqp.symbol("queue"), "queue"),
        (amqp.symbol("q" * 256), "q" * 256),
        (amqp.integer(-128), -128),
        (amqp.integer(128), 128),
        (amqp.integer(-(2**31)), -(2**31)),
        (amqp.long(127), 127),
        (amqp.long(2**40), 2**40),
        (amqp.unsigned(2**32 - 1), 2**32 - 1),
        (amqp.byte(-1), -1),
        (amqp.timestamp(1_700_000_000_000), 1_700_000_000_000),
        (b"\x98" + UUID(int=7).bytes, UUID(int=7)),
        (b"\x56\x01", True),
        (b"\x41", True),
        (b"\x42", False),
        (b"\x43", 0),
        (b"\x44", 0),
        (b"\x40", None),
        (b"\xb0\x00\x00\x00\x01x", b"x"),
        (b"\x74" + bytes(4), bytes(4)),
    ],
)
def test_encoders_and_rare_encodings_are_read_back(encoded: bytes, value: object) -> None:
    """What we write, and the encodings that Proton does not choose, are read by value."""
    assert amqp.scalar(encoded) == value
    assert amqp.skip(encoded, 0) == len(encoded)


@pytest.mark.parametrize("count", [0, 1, 127, 128, 300])
def test_lists_and_maps_of_any_size_are_read_back(count: int) -> None:
    """The short and the long form hold the same elements."""
    items = [amqp.string(str(number)) for number in range(count * 2)]
    assert amqp.elements(amqp.make_list(amqp.PROPERTIES, items)) == items
    assert amqp.elements(amqp.make_map(amqp.APPLICATION_PROPERTIES, items)) == items
    assert amqp.elements(amqp.make_list(amqp.PROPERTIES, [])) == []


@pytest.mark.parametrize("size", [251, 252, 253, 254, 255, 256])
def test_a_section_at_the_border_of_the_short_form_is_right(size: int) -> None:
    """The size byte of the short form counts the count byte, too."""
    items = [b"\xa0" + bytes((size - 2,)) + bytes(size - 2)]
    section = amqp.make_list(amqp.PROPERTIES, items)
    assert amqp.elements(section) == items
    assert amqp.skip(section, 0) == len(section)
