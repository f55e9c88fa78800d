"""The texts that Classic writes as Java does are put right, and nothing else is."""

import pytest
from hypothesis import given
from proton import Message

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_text import mended_section
from support.wires.amqp_strategies import messages, own_names, texts

LONG = "x" * 300


def java(text: str) -> bytes:
    """Return a text as Java's DataOutput writes it, as an AMQP string."""
    units = text.encode("utf-16-le", "surrogatepass")
    halves = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    encoded = b"".join(chr(one).encode("utf-8", "surrogatepass") for one in halves)
    encoded = encoded.replace(b"\0", b"\xc0\x80")
    if len(encoded) < 256:
        return bytes((0xA1, len(encoded))) + encoded
    return b"\xb1" + len(encoded).to_bytes(4) + encoded


def properties(*items: bytes) -> bytes:
    return amqp.make_map(amqp.APPLICATION_PROPERTIES, list(items))


@given(own_names, texts)
def test_a_text_in_javas_form_becomes_utf_8(name: str, text: str) -> None:
    """Also inside of lists and maps."""
    inner = amqp.make_list(amqp.VALUE, [java(text), amqp.integer(1)])[3:]
    given = properties(java(name), java(text), java("inner"), inner)
    wanted = amqp.make_list(amqp.VALUE, [amqp.string(text), amqp.integer(1)])[3:]
    pairs = amqp.pairs(mended_section(given))
    assert pairs == [amqp.string(name), amqp.string(text), amqp.string("inner"), wanted]


@given(messages())
def test_nothing_else_is_touched(message: bytes) -> None:
    """Whatever Proton encodes is the same bytes, numbers and binary data too."""
    for section in amqp.split(message).values():
        assert mended_section(section) == section


@pytest.mark.parametrize(
    "element",
    [
        b"\x81\xed\xa0\xbd\xed\xb8\x80\xc0\x80",
        b"\xa0\x06\xed\xa0\xbd\xed\xb8\x80",
        amqp.string("\ud55c\ud7a3 \ufffd"),
        amqp.string(LONG + "\U0001f600"),
    ],
)
def test_what_only_looks_like_it_is_the_same_bytes(element: bytes) -> None:
    """A number, binary data, Korean, and a text that is right."""
    section = properties(amqp.string("p"), element)
    assert mended_section(section) == section


def test_a_body_is_mended_with_what_follows_it() -> None:
    """A map and a footer; a text or bytes as a body are right already."""
    items = [amqp.string("k"), java("\U0001f600")]
    mended = [amqp.string("k"), amqp.string("\U0001f600")]
    for code in (amqp.VALUE, amqp.FOOTER):
        assert mended_section(amqp.make_map(code, items)) == amqp.make_map(code, mended)
    data = bytes(Message(body=b"\xed\xa0\xbd", inferred=True).encode())
    assert mended_section(data) == data


@pytest.mark.parametrize(
    "text", [b"\xa1\x03\xed\xa0\xbd", b"\xa1\x03\xc0\x81\xed", b"\xa1\x02\xed\xff"]
)
def test_what_is_no_text_at_all_is_reported(text: bytes) -> None:
    """Half a character, and bytes that no Java writes."""
    with pytest.raises(UndecodableMessage):
        mended_section(properties(amqp.string("p"), text))


def test_a_name_that_the_broker_has_garbled_is_reported() -> None:
    """Classic 6.3.1 can't read names beyond U+FFFF."""
    with pytest.raises(UndecodableMessage):
        mended_section(properties(amqp.string("p\ufffd"), amqp.string("")))


def test_garbage_that_nests_ends() -> None:
    nested = java("\U0001f600")
    for _ in range(100):
        nested = amqp.make_list(amqp.VALUE, [nested])[3:]
    with pytest.raises(UndecodableMessage):
        mended_section(properties(amqp.string("p"), nested))
