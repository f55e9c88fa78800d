"""Properties are read and edited without touching the entries that stay."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_properties as properties
from support.wires import openwire as wire


@given(wire.texts)
def test_text_is_javas_modified_utf_8(text: str) -> None:
    """Texts are encoded as Java does, and come back; lone surrogates become replacements."""
    encoded = properties.encode_text(text)
    assert encoded == wire.java_text(text)
    units = text.encode("utf-16-be", "surrogatepass")
    assert properties.decode_text(encoded) == units.decode("utf-16-be", "replace")


@given(st.binary(max_size=30))
def test_malformed_text_is_replaced_not_refused(data: bytes) -> None:
    """Any bytes give some text."""
    assert isinstance(properties.decode_text(data), str)


@given(st.text(max_size=5), st.text(), st.integers(-(2**31), 2**31 - 1), wire.long_numbers)
def test_entries_are_read_back(name: str, text: str, number: int, long: int) -> None:
    """What the encoders write is what the reader finds."""
    data = wire.property_map(
        properties.string_entry("s" + name, text),
        properties.int_entry("i" + name, number),
        properties.long_entry("l" + name, long),
    )
    wanted = [properties.encode_text(kind + name) for kind in "sil"]
    assert list(properties.read_properties(data, wanted).values()) == [text, number, long]


def test_long_text_becomes_a_big_string() -> None:
    """A text that a short length can't hold is written as the broker writes it, and read back."""
    text = "ä" * 40_000
    entry = properties.string_entry("cause", text)
    assert entry[7] == 13
    assert properties.read_properties(wire.property_map(entry), (b"cause",)) == {b"cause": text}


def test_numbers_of_every_width_are_read() -> None:
    """Booleans, bytes, shorts, ints, longs, floats and doubles; what is no plain value is None."""
    data = wire.property_map(
        wire.entry("bool", 1, b"\x01"),
        wire.entry("byte", 2, b"\xff"),
        wire.entry("short", 4, b"\x01\x00"),
        wire.entry("double", 7, struct.pack(">d", 1.5)),
        wire.entry("float", 8, struct.pack(">f", 0.25)),
        wire.entry("null", 0, b""),
    )
    wanted = {b"bool", b"byte", b"short", b"double", b"float", b"null"}
    found = list(properties.read_properties(data, wanted).values())
    assert found == [True, -1, 256, 1.5, 0.25, None]
    assert found[0] is True


@given(wire.entries, st.data())
def test_edit_keeps_all_other_entries_byte_for_byte(
    entries: dict[str, bytes], data: st.DataObject
) -> None:
    """Removed ones are gone, added ones are there, the rest is what it was, in its order."""
    removed = data.draw(st.sets(st.sampled_from(sorted(entries)))) if entries else set()
    added = [wire.int_entry("added", 1), wire.text_entry("and", "more")]
    names = {properties.encode_text(name) for name in removed}
    edited = properties.EditedProperties(wire.property_map(*entries.values()), names, ())
    kept = [entry for name, entry in entries.items() if name not in removed]
    assert edited.with_entries(added) == wire.property_map(*kept, *added)


def test_scheduling_properties_are_always_cut_out() -> None:
    """The broker's own scheduler must not delay what is sent again."""
    data = wire.property_map(wire.long_entry("AMQ_SCHEDULED_DELAY", 5), wire.int_entry("n", 1))
    edited = properties.EditedProperties(data, (), ()).with_entries(())
    assert edited == wire.property_map(wire.int_entry("n", 1))


@pytest.mark.parametrize("data", [None, b"", struct.pack(">i", -1), wire.property_map()])
def test_a_missing_map_is_an_empty_one(data: bytes | None) -> None:
    """Null, absent and empty maps can all be added to."""
    added = [wire.int_entry("n", 1)]
    edited = properties.EditedProperties(data, (), ()).with_entries(added)
    assert edited == wire.property_map(*added)
    assert properties.read_properties(data, (b"n",)) == {}


@given(wire.entries.filter(bool), st.data())
def test_a_truncated_map_is_undecodable(entries: dict[str, bytes], data: st.DataObject) -> None:
    """Every cut through a map is noticed, by both walks."""
    whole = wire.property_map(*entries.values())
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with pytest.raises(UndecodableMessage):
        properties.read_properties(cut, (b"n",))
    with pytest.raises(UndecodableMessage):
        properties.EditedProperties(cut, (), ())


def test_bottomless_nesting_is_undecodable() -> None:
    """A list in a list in a list is followed to a bound."""
    data = wire.property_map(wire.entry("deep", 12, b"\0\0\0\x01\x0c" * 500 + b"\0\0\0\0"))
    with pytest.raises(UndecodableMessage, match="nested"):
        properties.read_properties(data, ())
