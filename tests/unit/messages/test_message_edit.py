"""An edit changes what it names, and every other byte stays; what a wire can't carry is refused."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from proton import Message, byte, int32, symbol

from amqsidecar.errors import EditRefused
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_artemis_message import ENCODING as AMQP
from amqsidecar.formats.openwire_codec import ENCODING as OPENWIRE
from amqsidecar.formats.stomp_frame import ENCODING as STOMP
from amqsidecar.formats.stomp_frame import kept
from amqsidecar.messages.edit import edit_message, edit_properties
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import (
    FIELDS_MAX,
    MessageEdit,
    MessageView,
    PropertyEdit,
    TypedValue,
    ValueType,
)
from support.wires import openwire as wire
from support.wires.amqp_strategies import messages as amqp_messages
from support.wires.fuzz import fuzz
from support.wires.openwire import WireMessage

texts = st.text(max_size=20)
plain_texts = st.text(
    st.characters(min_codepoint=1, max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20
)
"""Texts that properties can have on every wire."""

headers = st.tuples(
    st.sampled_from([b"a", b"b", b"amqsidecarCause", b"original-destination", b"priority"])
    | st.text(min_size=1, max_size=8).map(str.encode),
    st.text(max_size=20).map(str.encode),
)
sized_text = texts.map(wire.java_text).map(lambda data: struct.pack(">i", len(data)) + data)


@st.composite
def openwire_messages(draw: st.DrawFn) -> bytes:
    """Return a message of any type, its content as a client writes it, compressed or not."""
    code = draw(st.sampled_from((23, 24, 25, 26, 27, 28)))
    made = {
        24: st.binary(max_size=40),
        25: wire.entries.map(lambda found: wire.property_map(*found.values())),
        26: st.binary(max_size=40).map(lambda data: b"\xac\xed\0\x05" + data),
        27: st.lists(wire.values, max_size=4).map(b"".join),
        28: sized_text,
    }
    content = draw(st.none() | made[code]) if code in made else None
    is_packed = draw(st.booleans())
    if content is not None and is_packed:
        size = struct.pack(">i", len(content)) if code == 24 else b""
        content = size + zlib.compress(content)
    properties = draw(wire.entries)
    return WireMessage(
        code=code,
        content=content,
        compressed=is_packed,
        properties=draw(st.sampled_from([wire.property_map(*properties.values()), None])),
        type=draw(st.none() | texts),
        correlation_id=draw(st.none() | texts),
    ).encoded()


@st.composite
def stomp_messages(draw: st.DrawFn) -> bytes:
    """Return a message of text or bytes."""
    found = draw(st.lists(headers, max_size=6))
    if draw(st.booleans()):
        body = draw(st.binary(max_size=30))
        return kept([(b"content-length", b"%d" % len(body)), *found], body)
    return kept(found, draw(texts.filter(lambda text: "\0" not in text)).encode())


kept_messages = st.one_of(
    st.tuples(st.just(AMQP), amqp_messages()),
    st.tuples(st.just(OPENWIRE), openwire_messages()),
    st.tuples(st.just(STOMP), stomp_messages()),
)
whole = {ValueType.BYTE: 7, ValueType.SHORT: 15, ValueType.INT: 31, ValueType.LONG: 63}


def values(type_: ValueType) -> st.SearchStrategy[str]:
    """Values of a type as the view writes them."""
    if type_ is ValueType.STRING:
        return plain_texts
    if type_ is ValueType.BOOLEAN:
        return st.sampled_from(("true", "false"))
    if type_ in whole:
        top = 1 << whole[type_]
        return st.integers(-top, top - 1).map(str)
    if type_ is ValueType.DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False).map(repr)
    return st.integers(-1000, 1000).map(lambda number: repr(number / 8))


@st.composite
def edits(
    draw: st.DrawFn, found: Sequence[TypedValue], types: Sequence[ValueType]
) -> tuple[tuple[PropertyEdit, ...], tuple[str, ...]]:
    """Return values of a map to set, known and new ones, and names to remove."""
    names = {
        one.name
        for one in found
        if one.locked is None and not one.depth and one.name
        if all("\0" < character <= "\uffff" for character in one.name)
    }
    chosen = draw(st.permutations(sorted(names)))
    cut = draw(st.integers(0, len(chosen)))
    removed = chosen[: draw(st.integers(0, cut))]
    fresh = draw(st.lists(st.sampled_from(["new.1", "new.2", "ä"]), unique=True))
    sets = []
    for name in (*chosen[cut:], *(name for name in fresh if name not in names)):
        type_ = draw(st.sampled_from(list(types)))
        sets.append(PropertyEdit(name=name, type=type_, value=draw(values(type_))))
    return tuple(sets), tuple(removed)


def expected(
    found: Sequence[TypedValue], sets: Sequence[PropertyEdit], removed: Sequence[str]
) -> list[TypedValue]:
    """What a map shows after an edit."""
    settled = {
        one.name: TypedValue(name=one.name, type=one.type or ValueType.STRING, value=one.value)
        for one in sets
    }
    after: list[TypedValue] = []
    done: set[str] = set()
    is_dropped = False
    for one in found:
        if not one.depth:
            is_dropped = one.name in removed or (one.name in settled and one.name in done)
            if not is_dropped and one.name in settled:
                done.add(one.name)
                after.append(settled[one.name])
                is_dropped = True
                continue
        if not is_dropped:
            after.append(one)
    return after + [one for name, one in settled.items() if name not in done]


def without_sizes(view: MessageView) -> MessageView:
    body = replace(view.body, size_bytes=0)
    return replace(view, size_bytes=0, body=body)


@fuzz
@given(kept_messages)
def test_an_edit_of_nothing_is_the_same_bytes(made: tuple[str, bytes]) -> None:
    encoding, message = made
    assert edit_message(encoding, message, MessageEdit()) == message


@fuzz
@given(kept_messages)
def test_what_is_set_to_what_it_is_is_the_same_bytes(made: tuple[str, bytes]) -> None:
    """A form that is sent off as it was shown changes nothing."""
    encoding, message = made
    view = view_message(encoding, message)
    names = [one.name for one in view.properties]
    same = [
        PropertyEdit(name=one.name, type=one.type, value=one.value)
        for one in view.properties
        if one.locked is None and one.type in view.property_types
        if names.count(one.name) == 1 and one.name
    ]
    is_text = view.body.text and view.body_as_text
    edit = MessageEdit(set_properties=tuple(same), text=view.body.text if is_text else None)
    assert edit_message(encoding, message, edit) == message


@fuzz
@given(kept_messages, st.data())
def test_after_an_edit_of_properties_the_view_shows_it_and_all_else_as_before(
    made: tuple[str, bytes], data: st.DataObject
) -> None:
    encoding, message = made
    before = view_message(encoding, message)
    sets, removed = data.draw(edits(before.properties, before.property_types))
    edit = MessageEdit(set_properties=sets, remove_properties=removed)
    after = view_message(encoding, edit_message(encoding, message, edit))
    assert without_sizes(after) == replace(
        without_sizes(before), properties=tuple(expected(before.properties, sets, removed))
    )


@fuzz
@given(kept_messages, st.data())
def test_a_rule_edits_as_a_person_but_for_names_that_are_not_there(
    made: tuple[str, bytes], data: st.DataObject
) -> None:
    encoding, message = made
    before = view_message(encoding, message, 0)
    sets, removed = data.draw(edits(before.properties, before.property_types))
    asked = MessageEdit(set_properties=sets, remove_properties=("not.there", *removed))
    if before.problems:
        with pytest.raises(EditRefused):
            edit_properties(encoding, message, asked)
        return
    edit = MessageEdit(set_properties=sets, remove_properties=removed)
    assert edit_properties(encoding, message, asked) == edit_message(encoding, message, edit)


def test_of_more_properties_than_are_listed_none_is_edited() -> None:
    message = kept([(b"p%d" % number, b"") for number in range(FIELDS_MAX + 1)], b"")
    with pytest.raises(EditRefused, match="more than 500 properties"):
        edit_properties(STOMP, message, MessageEdit(remove_properties=("p500",)))


@fuzz
@given(kept_messages, st.data())
def test_after_an_edit_of_entries_the_view_shows_it_and_all_else_as_before(
    made: tuple[str, bytes], data: st.DataObject
) -> None:
    encoding, message = made
    before = view_message(encoding, message)
    assume(before.entry_types)
    sets, removed = data.draw(edits(before.body.entries, before.entry_types))
    edit = MessageEdit(set_entries=sets, remove_entries=removed)
    after = view_message(encoding, edit_message(encoding, message, edit))
    entries = tuple(expected(before.body.entries, sets, removed))
    body = replace(without_sizes(before).body, entries=entries)
    assert without_sizes(after) == replace(without_sizes(before), body=body)


@fuzz
@given(kept_messages, texts)
@example((STOMP, kept([(b"original-destination", b"/queue/a")], b"old")), "\U0001f600")
def test_after_an_edit_of_the_text_the_view_shows_it_and_all_else_as_before(
    made: tuple[str, bytes], text: str
) -> None:
    encoding, message = made
    before = view_message(encoding, message)
    assume(before.body_as_text and text)
    try:
        edited = edit_message(encoding, message, MessageEdit(text=text))
    except EditRefused:
        with pytest.raises(EditRefused, match="over STOMP"):
            edit_message(STOMP, message, MessageEdit(text=text))
        return
    after = view_message(encoding, edited)
    if after.body.text or not before.body_as_bytes:
        assert after.body.text == text
    assert after.body.is_compressed == before.body.is_compressed
    # The length of a body is a header over STOMP, and follows it.
    headers = [one for one in after.headers if one.name != "content-length"]
    assert headers == [one for one in before.headers if one.name != "content-length"]
    kept_as_is = replace(without_sizes(after), body=before.body, headers=before.headers)
    assert kept_as_is == replace(without_sizes(before), body=before.body)


@fuzz
@given(kept_messages, st.binary(min_size=1, max_size=300))
def test_bytes_are_replaced_by_bytes(made: tuple[str, bytes], data: bytes) -> None:
    encoding, message = made
    before = view_message(encoding, message)
    assume(before.body_as_bytes and not data.startswith(b"\xac\xed\0\x05"))
    after = view_message(encoding, edit_message(encoding, message, MessageEdit(data=data)))
    assert after.body.size_bytes == len(data)
    assert after.body.hex.split("\n")[0].split("  ")[1].strip() == data[:16].hex(" ")
    assert after.properties == before.properties


def amqp_message(**fields: Any) -> bytes:
    return bytes(Message(**fields).encode())


def test_other_sections_of_amqp_are_the_same_bytes() -> None:
    message = amqp_message(
        body="old",
        id="ID:1",
        correlation_id="c",
        annotations={symbol("x-opt-jms-msg-type"): byte(5)},
        properties={"own": "x", "number": int32(5)},
    )
    edit = MessageEdit(text="new", set_properties=(PropertyEdit(name="own", value="y"),))
    before, after = amqp.split(message), amqp.split(edit_message(AMQP, message, edit))
    changed = {amqp.APPLICATION_PROPERTIES, amqp.VALUE}
    assert {code: one for code, one in before.items() if code not in changed} == {
        code: one for code, one in after.items() if code not in changed
    }
    assert after[amqp.VALUE] == b"\0\x53\x77\xa1\x03new"


def test_a_footer_stays_behind_a_new_body() -> None:
    footer = bytes.fromhex("005378c10a02a30468617368a10131")
    message = bytes.fromhex("005377a1036f6c64") + footer
    assert edit_message(AMQP, message, MessageEdit(text="new")) == (
        bytes.fromhex("005377a1036e6577") + footer
    )


def test_a_footer_stays_behind_a_new_map() -> None:
    footer = bytes.fromhex("005378c10a02a30468617368a10131")
    message = amqp_message(body={"a": "b"}) + footer
    assert edit_message(AMQP, message, MessageEdit(remove_entries=("a",))).endswith(footer)


def test_a_number_that_stays_keeps_its_width() -> None:
    """An int may be written in two bytes or in five."""
    message = bytes.fromhex("005374c10902a1016e7100000005")
    assert edit_message(AMQP, message, property_edit("n", "5")) == message


def test_a_compressed_map_is_compressed_again() -> None:
    content = zlib.compress(wire.property_map(wire.int_entry("a", 1)))
    message = WireMessage(code=25, content=content, compressed=True).encoded()
    change = MessageEdit(set_entries=(PropertyEdit(name="a", value="2"),))
    edited = wire.read_message(edit_message(OPENWIRE, message, change))
    assert edited.content is not None
    assert zlib.decompress(edited.content) == wire.property_map(wire.int_entry("a", 2))


def test_the_length_of_bytes_follows_over_stomp() -> None:
    message = kept([(b"content-length", b"3"), (b"own", b"x")], b"abc")
    edited = edit_message(STOMP, message, MessageEdit(data=b"\0\1"))
    assert edited == kept([(b"content-length", b"2"), (b"own", b"x")], b"\0\1")


def test_a_text_in_javas_form_stays_in_it_over_stomp() -> None:
    headers = [(b"original-destination", b"/queue/a")]
    message = kept(headers, wire.java_text("old \U0001f600"))
    edited = edit_message(STOMP, message, MessageEdit(text="new \U0001f601"))
    assert edited == kept(headers, wire.java_text("new \U0001f601"))


def test_only_content_and_properties_of_openwire_change() -> None:
    before = WireMessage(
        code=28,
        properties=wire.property_map(wire.text_entry("own", "x"), wire.int_entry("n", 5)),
        correlation_id="c",
        type="t",
        group="g",
        user="u",
        reply_to=(wire.QUEUE, "answers"),
        tail=b"tail",
    )
    edit = MessageEdit(text="é😀", set_properties=(PropertyEdit(name="own", value="y"),))
    edited = edit_message(OPENWIRE, before.encoded(), edit)
    text = wire.java_text("é😀")
    assert wire.read_message(edited) == before.with_(
        content=struct.pack(">i", len(text)) + text,
        properties=wire.property_map(wire.text_entry("own", "y"), wire.int_entry("n", 5)),
    )


def property_edit(name: str, value: str = "", type_: ValueType | None = None) -> MessageEdit:
    return MessageEdit(set_properties=(PropertyEdit(name=name, value=value, type=type_),))


AMQP_TEXT = amqp_message(body="text", properties={"n": int32(5), "s": "x"})
OPENWIRE_TEXT = WireMessage(properties=wire.property_map(wire.int_entry("n", 5))).encoded()
STOMP_TEXT = kept([(b"original-destination", b"/queue/a"), (b"s", b"x")], b"text")
OBJECT = WireMessage(code=26, content=b"\xac\xed\0\x05sr\0\x05a.B.C").encoded()


@pytest.mark.parametrize(
    ("encoding", "message", "edit", "words"),
    [
        (AMQP, AMQP_TEXT, property_edit("amqsidecarRedeliveryId", "x"), "the sidecar recognises"),
        (AMQP, AMQP_TEXT, property_edit("_AMQ_ORIG_ADDRESS", "x"), "it belongs to the broker"),
        (AMQP, AMQP_TEXT, property_edit("JMSXGroupID", "x"), "belong to JMS"),
        (OPENWIRE, OPENWIRE_TEXT, property_edit("AMQ_SCHEDULED_DELAY", "x"), "delayed delivery"),
        (OPENWIRE, OPENWIRE_TEXT, property_edit("dlqDeliveryFailureCause"), "why the message died"),
        (STOMP, STOMP_TEXT, property_edit("reply-to", "x"), "STOMP reserves"),
        (AMQP, AMQP_TEXT, property_edit(""), "a property without a name"),
        (AMQP, AMQP_TEXT, property_edit("n", "5.5"), "'5.5' is no int; expected: a whole number"),
        (AMQP, AMQP_TEXT, property_edit("n", "2147483648"), "from -2147483648 to 2147483647"),
        (AMQP, AMQP_TEXT, property_edit("n", "x", ValueType.BOOLEAN), "expected: true or false"),
        (AMQP, AMQP_TEXT, property_edit("n", "1e99", ValueType.FLOAT), "is no float"),
        (AMQP, AMQP_TEXT, property_edit("n", "1", ValueType.UUID), "it can't be of type uuid"),
        (AMQP, AMQP_TEXT, property_edit("s", "\ud83d"), "character 1 is half of one"),
        (STOMP, STOMP_TEXT, property_edit("n", "5", ValueType.INT), "it can't be of type int"),
        (STOMP, STOMP_TEXT, property_edit("s", "x" * 11_000), "longer than the 10 KiB"),
        (STOMP, STOMP_TEXT, property_edit("s", "\U0001f600"), "garbles U+1F600"),
        (OPENWIRE, OPENWIRE_TEXT, property_edit("s", "\U0001f600"), "garbles U+1F600"),
        (OPENWIRE, OPENWIRE_TEXT, property_edit("a\0", "x"), "garbles U+0000"),
        (STOMP, STOMP_TEXT, MessageEdit(text="a\0b"), "can't hold the character U+0000"),
        (STOMP, STOMP_TEXT, MessageEdit(text="\U0001f600"), "beyond U+FFFF"),
        (STOMP, STOMP_TEXT, MessageEdit(remove_entries=("a",)), "STOMP carries no maps"),
        (AMQP, AMQP_TEXT, MessageEdit(remove_properties=("q",)), "no such property to remove"),
        (AMQP, AMQP_TEXT, MessageEdit(remove_entries=("q",)), "it is no map"),
        (AMQP, AMQP_TEXT, MessageEdit(data=b"x"), "a text is expected instead of bytes"),
        (AMQP, AMQP_TEXT, MessageEdit(data=b"x", text="x"), "not both"),
        (AMQP, amqp_message(body={"a": 1}), MessageEdit(text="x"), "it is neither"),
        (OPENWIRE, OBJECT, MessageEdit(text="x"), "this is ObjectMessage"),
        (OPENWIRE, b"\x1c", MessageEdit(), "it can't be parsed"),
    ],
)
def test_what_can_t_be_is_refused_with_a_sentence(
    encoding: str, message: bytes, edit: MessageEdit, words: str
) -> None:
    with pytest.raises(EditRefused, match=words.replace("(", r"\(").replace("+", r"\+")):
        edit_message(encoding, message, edit)


def test_a_name_is_edited_once() -> None:
    twice = MessageEdit(
        remove_properties=("s",), set_properties=(PropertyEdit(name="s", value="y"),)
    )
    with pytest.raises(EditRefused, match="named twice"):
        edit_message(AMQP, AMQP_TEXT, twice)
