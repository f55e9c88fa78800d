"""Messages of Core: an edit changes what it names and not one byte more."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats.core import message as core_message
from amqsidecar.formats.core.message import (
    NO_PROPERTIES,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    decode_message,
    edit_properties,
    encode_message,
    layout_of,
    read_core_properties,
    split_properties,
)
from amqsidecar.formats.core.primitives import CoreProtocolError, simple_string
from support.wires.core_strategies import (
    doubled,
    encoded_properties,
    messages,
    names,
    properties,
    property_maps,
)

LONG, INT, STRING = CorePropertyType.LONG, CorePropertyType.INT, CorePropertyType.STRING


@given(encoded_properties, st.data())
def test_a_remembered_layout_is_never_taken_for_that_of_other_bytes(
    encoded: bytes, data: st.DataObject
) -> None:
    for _ in range(9):  # Another one of this length may be remembered.
        assert layout_of(encoded).entries == split_properties(encoded)
    other = bytearray(encoded)
    for at in data.draw(st.sets(st.integers(0, len(encoded) - 1), max_size=3)):
        other[at] = data.draw(st.integers(0, 255))
    try:
        expected = split_properties(bytes(other))
    except CoreProtocolError:
        with pytest.raises(CoreProtocolError):
            layout_of(bytes(other))
    else:
        found = layout_of(bytes(other))
        assert found.entries == expected
        assert found.by_key == {entry[0]: entry for entry in expected}


def test_values_of_one_length_share_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    # Why: after another message of this length the layout is not renewed at once.
    monkeypatch.setattr(core_message, "_misses", {})
    first, second = (
        edit_properties(NO_PROPERTIES, {"order": CoreProperty(STRING, text)})
        for text in ("a unique one", "another, too")
    )
    layout = layout_of(first)
    assert layout.is_shared
    assert layout_of(second) is layout
    longer = edit_properties(NO_PROPERTIES, {"order": CoreProperty(STRING, "x" * 5000)})
    assert not layout_of(longer).is_shared
    many = {str(number): CoreProperty(CorePropertyType.NULL, None) for number in range(65)}
    assert not layout_of(edit_properties(NO_PROPERTIES, many)).is_shared


def test_layouts_of_any_number_of_lengths_take_bounded_memory() -> None:
    for length in range(3_000):
        value = CoreProperty(CorePropertyType.BYTES, bytes(length))
        layout = layout_of(edit_properties(NO_PROPERTIES, {"a": value}))
        assert [entry[0] for entry in layout.entries] == [b"a\0"]
    assert len(core_message._known) <= core_message._KNOWN_MAX


@given(messages())
def test_a_message_is_read_as_it_was_written(message: CoreMessage) -> None:
    assert decode_message(encode_message(message)) == message


@given(messages(), st.sampled_from(CoreMessage._fields), st.data())
def test_one_field_is_changed_and_no_other_byte(
    message: CoreMessage, field: str, data: st.DataObject
) -> None:
    other = data.draw(messages())
    edited = decode_message(encode_message(message._replace(**{field: getattr(other, field)})))
    for name in CoreMessage._fields:
        assert getattr(edited, name) == getattr(other if name == field else message, name)


@given(property_maps)
def test_properties_are_read_as_they_were_written(
    expected: dict[str, CoreProperty],
) -> None:
    assert read_core_properties(edit_properties(NO_PROPERTIES, expected)) == expected


@given(encoded_properties, encoded_properties, names, st.none() | properties)
def test_a_name_that_is_changed_is_there_once_or_not_at_all(
    encoded: bytes, more: bytes, name: str, change: CoreProperty | None
) -> None:
    """Also where it was there twice; the other entries keep their bytes and their order."""
    before = doubled(encoded, more)
    after = edit_properties(before, {name: change})
    key = simple_string(name)
    others = [one for one in entries(before) if not one.startswith(key)]
    assert [one for one in entries(after) if not one.startswith(key)] == others
    ours = [one for one in entries(after) if one.startswith(key)]
    assert ours == ([] if change is None else [key + change.encoded()])


def entries(encoded: bytes) -> list[bytes]:
    """Return the bytes of each property, read apart from the code under test."""
    if encoded == b"\0":
        return []
    fixed = {0: 0, 2: 1, 3: 1, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 11: 2}
    count, at, found = struct.unpack_from(">i", encoded, 1)[0], 5, []
    for _ in range(count):
        start = at
        at += 5 + struct.unpack_from(">i", encoded, at)[0]
        kind = encoded[at - 1]
        at += fixed[kind] if kind in fixed else 4 + struct.unpack_from(">i", encoded, at)[0]
        found.append(encoded[start:at])
    assert at == len(encoded)
    return found


def test_the_bytes_of_a_message() -> None:
    """By hand, as the description of the protocol says; the oracle holds it against Artemis."""
    message = CoreMessage(
        body=b"\x01" + simple_string("hi"),
        message_id=0,
        address="DLQ",
        user_id=None,
        kind=3,
        durable=True,
        expiration_ms=0,
        timestamp_ms=1,
        priority=4,
        properties=edit_properties(NO_PROPERTIES, {"n": CoreProperty(INT, 5)}),
    )
    assert (
        encode_message(message).hex()
        == (
            "00000016"  # the body ends 13 + 9 bytes after the packet's start
            "01" + "00000004" + "68006900"  # the body
            "0000000000000000"
            "01" + "00000006" + "44004c005100"  # address
            "00"  # no user id
            "03" + "01" + "0000000000000000" + "0000000000000001" + "04"
            "01" + "00000001"  # one property
            "00000002" + "6e00" + "06" + "00000005"
        )
    )


def test_a_number_keeps_its_type_and_its_place_when_it_is_set() -> None:
    first = {"a": CoreProperty(LONG, 1), "b": CoreProperty(STRING, "x")}
    encoded = edit_properties(NO_PROPERTIES, first)
    edited = edit_properties(encoded, {"a": CoreProperty(INT, 2), "c": CoreProperty(LONG, 3)})
    assert list(read_core_properties(edited).items()) == [
        ("a", CoreProperty(INT, 2)),
        ("b", CoreProperty(STRING, "x")),
        ("c", CoreProperty(LONG, 3)),
    ]


def test_the_last_property_that_is_removed_leaves_none() -> None:
    encoded = edit_properties(NO_PROPERTIES, {"a": CoreProperty(LONG, 1)})
    assert edit_properties(encoded, {"a": None}) == NO_PROPERTIES
    assert edit_properties(NO_PROPERTIES, {"a": None}) == NO_PROPERTIES


def test_of_two_properties_with_one_name_the_later_counts() -> None:
    one, two = ({"_AMQ_DUPL_ID": CoreProperty(STRING, text)} for text in ("one", "two"))
    both = doubled(edit_properties(NO_PROPERTIES, one), edit_properties(NO_PROPERTIES, two))
    assert read_core_properties(both) == two


@pytest.mark.parametrize(
    "wrong",
    [
        CoreProperty(INT, 2**31),
        CoreProperty(INT, "5"),
        CoreProperty(INT, True),
        CoreProperty(STRING, b"x"),
        CoreProperty(CorePropertyType.CHAR, "ab"),
        CoreProperty(CorePropertyType.CHAR, "😀"),
        CoreProperty(CorePropertyType.NULL, 0),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(wrong: CoreProperty) -> None:
    with pytest.raises(ValueError, match=wrong.kind.name):
        edit_properties(NO_PROPERTIES, {"a": wrong})


@pytest.mark.parametrize("end", [-(2**31), 0, 12, 10_000, 2**31 - 1])
def test_a_body_that_ends_outside_is_refused(end: int) -> None:
    with pytest.raises(CoreProtocolError, match="body ends"):
        decode_message(struct.pack(">i", end) + bytes(60))
