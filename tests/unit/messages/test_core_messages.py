"""Kept Core messages as people see and change them."""

import zlib
from typing import Any

import pytest

from amqsidecar.errors import EditRefused
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import (
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    core_entry,
    edit_properties,
    join_properties,
    new_message,
)
from amqsidecar.formats.core.primitives import NULLABLE_SIMPLE_STRING, NULLABLE_STRING
from amqsidecar.formats.core_artemis_message import ENCODING, keep, keep_large, take_apart
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.kept_message import chosen_cause, chosen_properties, group_of
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import BodyKind, MessageEdit, PropertyEdit, ValueType

MAP = join_properties(
    [
        core_entry("name", CoreProperty(CorePropertyType.STRING, "x")),
        core_entry("amount", CoreProperty(CorePropertyType.INT, 7)),
    ]
)
STREAM = b"\x0a" + NULLABLE_STRING.write("one") + b"\x06\0\0\0\x07" + b"\x04\0\0\0\x02ab" + b"\0"
PROPERTIES = {
    "color": CoreProperty(CorePropertyType.STRING, "red"),
    "price": CoreProperty(CorePropertyType.DOUBLE, 1.5),
    "is_new": CoreProperty(CorePropertyType.BOOLEAN, True),
    "_AMQ_GROUP_ID": CoreProperty(CorePropertyType.STRING, "g"),
}


def make(kind: int, body: bytes, **more: CoreProperty) -> CoreMessage:
    made = new_message("DLQ", PROPERTIES | more, timestamp_ms=5, kind=kind, body=body)
    return made._replace(message_id=9, user_id=bytes(range(16)))


def text(value: str | None) -> bytes:
    return NULLABLE_SIMPLE_STRING.write(value)


@pytest.mark.parametrize(
    ("kind", "body", "expected", "shown"),
    [
        (core.TEXT_MESSAGE, text("häß"), BodyKind.TEXT, "häß"),
        (core.TEXT_MESSAGE, text(None), BodyKind.EMPTY, ""),
        (core.TEXT_MESSAGE, b"", BodyKind.EMPTY, ""),
        (core.BYTES_MESSAGE, b"data", BodyKind.BYTES, "data"),
        (core.BYTES_MESSAGE, b"", BodyKind.EMPTY, ""),
        (core.DEFAULT_MESSAGE, b"", BodyKind.EMPTY, ""),
        (core.OBJECT_MESSAGE, b"\0\0\0\0", BodyKind.EMPTY, ""),
        (core.OBJECT_MESSAGE, b"\0\0\0\6\xac\xed\0\5sr", BodyKind.JAVA, ""),
        (core.MAP_MESSAGE, b"", BodyKind.MAP, ""),
        (core.STREAM_MESSAGE, b"", BodyKind.STREAM, ""),
    ],
)
def test_each_body_is_shown(kind: int, body: bytes, expected: BodyKind, shown: str) -> None:
    found = view_message(ENCODING, keep(make(kind, body)))
    assert (found.body.kind, found.body.text, found.problems) == (expected, shown, ())
    assert {one.name: one.value for one in found.properties}["price"] == "1.5"
    assert {one.name: one.value for one in found.headers}["JMSMessageID"].startswith("ID:00010203")


def test_entries_of_maps_and_streams_are_shown_with_their_types() -> None:
    for kind, body, expected in (
        (core.MAP_MESSAGE, MAP, [("name", "string", "x"), ("amount", "int", "7")]),
        (
            core.STREAM_MESSAGE,
            STREAM,
            [("0", "string", "one"), ("1", "int", "7"), ("2", "bytes", "6162"), ("3", "null", "")],
        ),
    ):
        found = view_message(ENCODING, keep(make(kind, body))).body.entries
        assert [(one.name, one.type.value, one.value) for one in found] == expected


def test_a_compressed_large_body_is_shown_and_stays() -> None:
    packed = {"_AMQ_LARGE_COMPRESSED": CoreProperty(CorePropertyType.BOOLEAN, True)}
    kept = keep_large(make(core.TEXT_MESSAGE, b"", **packed), zlib.compress(text("x" * 1000)))
    found = view_message(ENCODING, kept).body
    assert (found.is_compressed, found.text, found.size_bytes) == (True, "x" * 1000, 1000)
    with pytest.raises(EditRefused, match="compressed"):
        edit_message(ENCODING, kept, MessageEdit(text="y"))
    broken = keep_large(make(core.TEXT_MESSAGE, b"", **packed), b"no")
    assert "decompressed" in view_message(ENCODING, broken).problems[0]


def test_what_is_not_named_keeps_its_bytes() -> None:
    kept = keep_large(make(core.TEXT_MESSAGE, b""), text("before"))
    assert edit_message(ENCODING, kept, MessageEdit(text="before")) == kept
    change = MessageEdit(
        text="after",
        set_properties=(PropertyEdit(name="price", value="2.5"),),
        remove_properties=("is_new",),
    )
    message, is_large = take_apart(edit_message(ENCODING, kept, change))
    assert is_large
    assert message.body == text("after")
    expected = {
        "price": CoreProperty(CorePropertyType.DOUBLE, 2.5),
        "is_new": None,
    }
    assert message.properties == edit_properties(take_apart(kept).message.properties, expected)
    map_kept = keep(make(core.MAP_MESSAGE, MAP))
    entry = PropertyEdit(name="amount", value="8", type=ValueType.LONG)
    edited = edit_message(ENCODING, map_kept, MessageEdit(set_entries=(entry,)))
    seven = core_entry("amount", CoreProperty(CorePropertyType.INT, 7))
    eight = core_entry("amount", CoreProperty(CorePropertyType.LONG, 8))
    assert take_apart(edited).message.body == MAP.replace(seven, eight)


@pytest.mark.parametrize(
    ("kind", "body", "change"),
    [
        (core.TEXT_MESSAGE, text("x"), {"data": b"y"}),
        (core.OBJECT_MESSAGE, b"\0\0\0\0", {"text": "y"}),
        (core.STREAM_MESSAGE, STREAM, {"set_entries": (PropertyEdit(name="0", value="y"),)}),
        (core.TEXT_MESSAGE, text("x"), {"remove_properties": ("_AMQ_GROUP_ID",)}),
        (core.TEXT_MESSAGE, text("x"), {"remove_properties": ("missing",)}),
    ],
)
def test_what_can_not_be_changed_is_refused(kind: int, body: bytes, change: Any) -> None:
    with pytest.raises(EditRefused):
        edit_message(ENCODING, keep(make(kind, body)), MessageEdit(**change))


def test_chosen_properties_causes_and_groups_are_read() -> None:
    kept = keep(make(core.TEXT_MESSAGE, text("x")))
    found = chosen_properties(["color", "price", "is_new", "missing"])(ENCODING, kept)
    assert found == {"color": "red", "price": "1.5", "is_new": "true"}
    assert chosen_cause(["missing", "color"])(ENCODING, kept) == "red"
    assert chosen_cause(["missing"])(ENCODING, kept) is None
    assert group_of(ENCODING, kept) == "g"
    assert group_of(ENCODING, b"\0") is None
    assert view_message(ENCODING, b"\0").problems != ()
