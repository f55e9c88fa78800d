"""What people see of a kept message, on every wire, whole or broken."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, byte, char, float32, int32, short, symbol, timestamp, ubyte, uint

from amqsidecar.formats.amqp_artemis_message import ENCODING as AMQP
from amqsidecar.formats.openwire_codec import ENCODING as OPENWIRE
from amqsidecar.formats.stomp_frame import ENCODING as STOMP
from amqsidecar.formats.stomp_frame import kept
from amqsidecar.messages.trees.openwire import UNPACKED_BYTES_MAX
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import (
    DEPTH_MAX,
    FIELDS_MAX,
    VALUE_CHARACTERS_MAX,
    BodyKind,
    BodyView,
    TypedValue,
    ValueType,
)
from support.wires import openwire as wire
from support.wires.amqp_strategies import messages as amqp_messages
from support.wires.fuzz import damaged, fuzz
from support.wires.openwire import WireMessage

JAVA = b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16`\xd1"


def amqp(**fields: Any) -> bytes:
    return bytes(Message(**fields).encode())


def body_of_text(text: str) -> list[BodyView]:
    """The body of a text as each wire has it."""
    content = struct.pack(">i", len(wire.java_text(text))) + wire.java_text(text)
    return [
        view_message(AMQP, amqp(body=text)).body,
        view_message(OPENWIRE, WireMessage(content=content).encoded()).body,
        view_message(STOMP, kept([], text.encode())).body,
    ]


def shown(values: tuple[TypedValue, ...]) -> list[tuple[str, ValueType, str]]:
    return [(one.name, one.type, one.value) for one in values]


def test_json_is_indented_and_every_number_keeps_its_digits() -> None:
    text = '{"b":1.10,"a":[1e400,{"b":null}],"b":"\\u00e9"}'
    for body in body_of_text(text):
        assert (body.kind, body.text) == (BodyKind.JSON, text)
        assert "".join(body.pretty.split()) == "".join(text.split())
        assert '\n  "b": 1.10,\n' in body.pretty


def test_xml_is_indented_and_its_declaration_stays() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?><a x="1"><b>t</b><!-- c --></a>'
    for body in body_of_text(text):
        assert (body.kind, body.text) == (BodyKind.XML, text)
        assert body.pretty == (
            '<?xml version="1.0" encoding="utf-16"?>\n<a x="1">\n  <b>t</b>\n  <!-- c -->\n</a>\n'
        )


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5_000 + "]" * 5_000,
        "[" * 33 + "]" * 33,
        "<a>" * 33 + "</a>" * 33,
        "<a>" * 5_000 + "</a>" * 5_000,
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>',
        "<a>&undeclared;</a>",
        '{"a": NaN}',
        "{'a': 1}",
        "<a",
        '["' + '\\"' * 30_000,
        "plain < text",
    ],
)
def test_what_is_no_plain_document_is_a_text_and_nothing_is_resolved(text: str) -> None:
    for body in body_of_text(text):
        assert (body.kind, body.text, body.pretty) == (BodyKind.TEXT, text, "")


def test_a_long_body_is_cut_between_characters() -> None:
    for body in (
        view_message(AMQP, amqp(body="ä" * 100), 9).body,
        view_message(STOMP, kept([], "ä".encode() * 100), 9).body,
    ):
        assert (body.text, body.is_cut, body.size_bytes) == ("ä" * 4, True, 200)
    data = view_message(AMQP, amqp(body=b"\xff" * 100, inferred=True), 10).body
    assert (data.kind, data.is_cut, data.size_bytes) == (BodyKind.BYTES, True, 100)
    assert data.hex.startswith("00000000  " + " ".join(["ff"] * 10))


def test_properties_of_amqp_have_their_types() -> None:
    message = amqp(
        body=None,
        properties={
            "s": "x",
            "b": True,
            "y": byte(-1),
            "h": short(2),
            "i": int32(3),
            "l": 2**40,
            "f": float32(1.1),
            "d": 1.5,
            "n": None,
            "c": char("ä"),
            "t": timestamp(5),
            "u": ubyte(200),
            "w": uint(7),
            "o": b"\x01\xff",
            "q": symbol("sym"),
        },
    )
    assert shown(view_message(AMQP, message).properties) == [
        ("s", ValueType.STRING, "x"),
        ("b", ValueType.BOOLEAN, "true"),
        ("y", ValueType.BYTE, "-1"),
        ("h", ValueType.SHORT, "2"),
        ("i", ValueType.INT, "3"),
        ("l", ValueType.LONG, str(2**40)),
        ("f", ValueType.FLOAT, "1.1"),
        ("d", ValueType.DOUBLE, "1.5"),
        ("n", ValueType.NULL, ""),
        ("c", ValueType.CHAR, "ä"),
        ("t", ValueType.TIMESTAMP, "5"),
        ("u", ValueType.UBYTE, "200"),
        ("w", ValueType.UINT, "7"),
        ("o", ValueType.BYTES, "01ff"),
        ("q", ValueType.SYMBOL, "sym"),
    ]


def test_properties_of_openwire_have_their_types() -> None:
    properties = wire.property_map(
        wire.text_entry("s", "x😀"),
        wire.entry("b", 1, b"\x01"),
        wire.entry("y", 2, b"\xff"),
        wire.entry("c", 3, "ä".encode("utf-16-be")),
        wire.entry("h", 4, struct.pack(">h", 2)),
        wire.int_entry("i", 3),
        wire.long_entry("l", 2**40),
        wire.entry("d", 7, struct.pack(">d", 1.5)),
        wire.entry("f", 8, struct.pack(">f", 1.1)),
        wire.entry("n", 0, b""),
        wire.entry("o", 10, b"\0\0\0\x02\x01\xff"),
    )
    view = view_message(OPENWIRE, WireMessage(properties=properties).encoded())
    assert shown(view.properties) == [
        ("s", ValueType.STRING, "x😀"),
        ("b", ValueType.BOOLEAN, "true"),
        ("y", ValueType.BYTE, "-1"),
        ("c", ValueType.CHAR, "ä"),
        ("h", ValueType.SHORT, "2"),
        ("i", ValueType.INT, "3"),
        ("l", ValueType.LONG, str(2**40)),
        ("d", ValueType.DOUBLE, "1.5"),
        ("f", ValueType.FLOAT, "1.1"),
        ("n", ValueType.NULL, ""),
        ("o", ValueType.BYTES, "01ff"),
    ]


def test_headers_are_distinguished_and_locked() -> None:
    view = view_message(AMQP, amqp(body="x", id="ID:1", subject="type", properties={"own": "x"}))
    assert ("message-id", ValueType.STRING, "ID:1") in shown(view.headers)
    assert ("subject", ValueType.STRING, "type") in shown(view.headers)
    assert all(one.locked for one in view.headers)
    dead = WireMessage(correlation_id="c", type="t", group="g", group_sequence=2, user="u")
    assert shown(view_message(OPENWIRE, dead.encoded()).headers) == [
        ("JMSMessageID", ValueType.STRING, "ID:host-1-2-0:1:1:1:7"),
        ("originalDestination", ValueType.STRING, "queue://orders"),
        ("JMSCorrelationID", ValueType.STRING, "c"),
        ("JMSType", ValueType.STRING, "t"),
        ("JMSDeliveryMode", ValueType.STRING, "PERSISTENT"),
        ("JMSXGroupID", ValueType.STRING, "g"),
        ("JMSXUserID", ValueType.STRING, "u"),
        ("JMSPriority", ValueType.BYTE, "4"),
        ("JMSTimestamp", ValueType.LONG, "1000"),
        ("JMSXGroupSeq", ValueType.INT, "2"),
    ]
    headers = [(b"priority", b"4"), (b"own", b"x"), (b"_AMQ_ORIG_QUEUE", b"q")]
    stomp = view_message(STOMP, kept(headers, b"x"))
    assert shown(stomp.headers) == [("priority", ValueType.STRING, "4")]
    assert [(one.name, one.locked) for one in stomp.properties] == [
        ("own", None),
        ("_AMQ_ORIG_QUEUE", "it belongs to the broker"),
    ]


def test_maps_and_lists_show_their_values_with_types() -> None:
    nested = {"a": int32(1), "m": {"x": "y"}, "l": [True, None]}
    body = view_message(AMQP, amqp(body=nested)).body
    assert body.kind is BodyKind.MAP
    assert [(one.depth, one.name, one.type, one.value) for one in body.entries] == [
        (0, "a", ValueType.INT, "1"),
        (0, "m", ValueType.MAP, ""),
        (1, "x", ValueType.STRING, "y"),
        (0, "l", ValueType.LIST, ""),
        (1, "0", ValueType.BOOLEAN, "true"),
        (1, "1", ValueType.NULL, ""),
    ]
    content = wire.property_map(
        wire.int_entry("a", 1),
        wire.entry("m", 11, wire.property_map(wire.text_entry("x", "y"))),
        wire.entry("l", 12, b"\0\0\0\x02\x01\x01\0"),
    )
    map_body = view_message(OPENWIRE, WireMessage(code=25, content=content).encoded()).body
    assert (map_body.kind, map_body.entries) == (body.kind, body.entries)
    stream = view_message(OPENWIRE, WireMessage(code=27, content=b"\x01\x01\x09\0\1a").encoded())
    assert (stream.kind, stream.body.kind) == ("StreamMessage", BodyKind.STREAM)
    assert shown(stream.body.entries) == [
        ("0", ValueType.BOOLEAN, "true"),
        ("1", ValueType.STRING, "a"),
    ]
    annotations = {symbol("x-opt-jms-msg-type"): byte(4)}
    listed = view_message(AMQP, amqp(body=[1], annotations=annotations))
    assert (listed.kind, listed.body.kind) == ("StreamMessage", BodyKind.STREAM)
    assert view_message(AMQP, amqp(body=[1])).body.kind is BodyKind.LIST
    assert shown(view_message(AMQP, amqp(body=5)).body.entries) == [("0", ValueType.LONG, "5")]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (JAVA, "java.util.HashMap"),
        (b"\xac\xed\x00\x05ur\x00\x02[B", "[B"),
        (b"\xac\xed\x00\x05t\x00\x01x", "java.lang.String"),
        (b"\xac\xed\x00\x05p", "null"),
        (b"\xac\xed\x00\x05w\x01x", "(plain values)"),
        (b"\xac\xed\x00\x05s}\x00\x00\x00\x01\x00\x03a.B", "(a proxy of a.B)"),
        (b"\xac\xed\x00\x05sr\xff\xffshort", ""),
        (b"\xac\xed\x00\x05", ""),
    ],
)
def test_a_java_object_is_recognised_by_its_head_and_not_read(data: bytes, name: str) -> None:
    bodies = [
        view_message(AMQP, amqp(body=data, inferred=True)).body,
        view_message(OPENWIRE, WireMessage(code=26, content=data).encoded()).body,
        view_message(OPENWIRE, WireMessage(code=24, content=data).encoded()).body,
        view_message(STOMP, kept([(b"content-length", b"9")], data)).body,
    ]
    for body in bodies:
        assert (body.kind, body.java_class) == (BodyKind.JAVA, name)
        assert body.locked == "a serialised Java object is never read or made here"
        assert body.hex.startswith("00000000  ac ed 00 05")


def test_a_compressed_body_is_unpacked() -> None:
    text = struct.pack(">i", 5) + b"hello"
    packed = WireMessage(content=zlib.compress(text), compressed=True)
    body = view_message(OPENWIRE, packed.encoded()).body
    assert (body.text, body.is_compressed, body.size_bytes) == ("hello", True, 5)
    data = struct.pack(">i", 3) + zlib.compress(b"\0\1\2")
    packed = WireMessage(code=24, content=data, compressed=True)
    assert view_message(OPENWIRE, packed.encoded()).body.hex.startswith("00000000  00 01 02")


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(UNPACKED_BYTES_MAX + 1))
    view = view_message(OPENWIRE, WireMessage(content=bomb, compressed=True).encoded())
    assert view.problems == (
        f"its body can't be read: unpacked its body is larger than {UNPACKED_BYTES_MAX} bytes",
    )
    assert view.body.locked == "it can't be read"


def test_bytes_that_are_a_text_can_be_read_as_one() -> None:
    plain = view_message(AMQP, amqp(body=b"hello", inferred=True))
    assert (plain.body.kind, plain.body.text) == (BodyKind.BYTES, "hello")
    assert (plain.body_as_bytes, plain.body_as_text) == (True, True)
    named = amqp(body=b"hello", inferred=True, content_type=symbol("text/plain"))
    assert view_message(AMQP, named).body.kind is BodyKind.TEXT
    json = view_message(AMQP, amqp(body=b'{"a":1}', inferred=True)).body
    assert (json.kind, json.pretty) == (BodyKind.JSON, '{\n  "a": 1\n}')
    assert view_message(AMQP, amqp(body=b"a\x00b", inferred=True)).body.text == ""


def test_what_is_broken_is_said_and_the_rest_is_shown() -> None:
    broken = WireMessage(properties=b"\0\0\0\x05\0\x09x", correlation_id="c")
    view = view_message(OPENWIRE, broken.encoded())
    assert view.problems == ("its properties can't be read: a map ends in the middle of a value",)
    assert view.body.text == "hi"
    assert "c" in [one.value for one in view.headers]
    garbage = view_message(AMQP, b"garbage")
    assert garbage.problems == ("it can't be parsed: a section does not begin with a descriptor",)
    assert garbage.body.hex.endswith("garbage")
    assert (garbage.body_as_text, garbage.body_as_bytes) == (False, False)


@pytest.mark.parametrize(
    "text",
    ["[" * 30 + "1," * 20_000 + "1" + "]" * 30, "<a>" * 30 + "<b/>" * 9_000 + "</a>" * 30],
)
def test_what_would_be_mostly_spaces_is_not_indented(text: str) -> None:
    """Thirty levels and short values would make a page of megabytes out of some kilobytes."""
    for body in body_of_text(text):
        assert body.kind in (BodyKind.JSON, BodyKind.XML)
        assert body.pretty == ""


def test_a_view_is_bounded() -> None:
    many = {f"n{number}": "x" for number in range(FIELDS_MAX + 7)}
    view = view_message(AMQP, amqp(body=many, properties=many))
    assert (len(view.properties), view.left_out) == (FIELDS_MAX, 7)
    assert (len(view.body.entries), view.body.is_cut) == (FIELDS_MAX, True)
    [long] = view_message(AMQP, amqp(properties={"s": "x" * 9_000})).properties
    assert (len(long.value), long.is_cut) == (VALUE_CHARACTERS_MAX, True)
    deep: Any = "bottom"
    for _ in range(DEPTH_MAX + 5):
        deep = [deep]
    assert len(view_message(AMQP, amqp(body=deep)).body.entries) == DEPTH_MAX
    assert len(view_message(AMQP, amqp(body=b"\0" * 99_999)).body.hex) < 25_000


@fuzz
@given(
    st.sampled_from((AMQP, OPENWIRE, STOMP)),
    damaged(
        amqp_messages()
        | wire.entries.map(
            lambda found: WireMessage(code=25, content=wire.property_map(*found.values())).encoded()
        )
    )
    | st.binary(max_size=200),
    st.integers(0, 50),
)
def test_any_bytes_have_a_view(encoding: str, message: bytes, max_bytes: int) -> None:
    view = view_message(encoding, message, max_bytes)
    assert view.size_bytes == len(message)
    assert len(view.body.text) <= max_bytes
