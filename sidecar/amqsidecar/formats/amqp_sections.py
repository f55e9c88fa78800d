"""Takes an encoded AMQP message apart into its sections, and puts it together again; sans-IO.

It decodes only as much as needed. A section of lists or maps is cut into **elements**: slices of
the encoded message, each one value with its constructor. Elements that are not replaced are copied,
so splitting and joining a message returns identical bytes. Bodies are never read.

Source: AMQP 1.0, part 1 (types, encodings) and part 3.2 (message format).
"""

import struct
from itertools import repeat
from typing import TypeAlias
from uuid import UUID

from amqsidecar.errors import UndecodableMessage

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

NULL = b"\x40"

_MAPS = frozenset((0xC1, 0xD1))
# By constructor: the length of a value with it; or whether a byte or a word holds the length.
_LENGTH_BYTE, _LENGTH_WORD, _DESCRIBED, _UNKNOWN = 0, -1, -2, -3
_KINDS = {0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
_KINDS |= dict.fromkeys((0xA, 0xC, 0xE), _LENGTH_BYTE)
_KINDS |= dict.fromkeys((0xB, 0xD, 0xF), _LENGTH_WORD)
_WIDTHS = [_KINDS.get(constructor >> 4, _UNKNOWN) for constructor in range(256)]
_WIDTHS[0] = _DESCRIBED
# Bound: a described type inside a descriptor is legal and never seen; garbage nests without end.
_DESCRIPTOR_DEPTH_MAX = 8

_word = struct.Struct(">I").unpack_from
_double_word = struct.Struct(">Q").unpack_from
_pack_word = struct.Struct(">I").pack
_pack_two_words = struct.Struct(">II").pack

Scalar: TypeAlias = bool | int | float | str | bytes | UUID | None


def split(message: bytes) -> dict[int, bytes]:
    """Return the sections before the body by their code, and the rest under `VALUE`.

    Each is a slice that holds the section whole, with its descriptor; joined in order they are the
    message. The rest, from the first body section on, is checked to be well-formed sections.

    Raises:
        UndecodableMessage: it is not a sequence of AMQP sections in the order of the standard.

    Example:
        >>> [hex(code) for code in split(bytes.fromhex("0053704500537745"))]
        ['0x70', '0x77']
    """
    try:
        sections, at = _before_body(message)
        if at < len(message):
            _check_body(message, at)
            sections[VALUE] = message[at:]
    except (IndexError, struct.error):
        raise UndecodableMessage("the encoded message is cut off") from None
    return sections


def split_head(beginning: bytes) -> tuple[dict[int, bytes], int]:
    """Return the sections before the body by their code, and the offset of the body.

    Args:
        beginning: the message's bytes, at least up to the first byte of the body.

    Raises:
        UndecodableMessage: the body does not begin in it, or an earlier section is malformed.
    """
    try:
        sections, at = _before_body(beginning)
    except (IndexError, struct.error):
        at = len(beginning)
    if at == len(beginning):
        raise UndecodableMessage("the bytes end before the body begins")
    return sections, at


def _before_body(encoded: bytes) -> tuple[dict[int, bytes], int]:
    """Return the sections before the body, and where they end."""
    end = len(encoded)
    sections: dict[int, bytes] = {}
    at = last = 0
    while at < end:
        code, value_at = _section_start(encoded, at)
        if code >= DATA:
            break
        if code <= last:
            raise UndecodableMessage(f"section {code:#x} follows section {last:#x}")
        last = code
        after = _skip(encoded, value_at)
        if after > end:
            raise UndecodableMessage(f"section {code:#x} is longer than the message")
        sections[code] = encoded[at:after]
        at = after
    return sections, at


def join(sections: dict[int, bytes]) -> bytes:
    """Return the message of sections as `split` made them; the order is that of the codes."""
    return b"".join(map(sections.get, _ORDER, repeat(b"")))


_ORDER = (
    HEADER,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    APPLICATION_PROPERTIES,
    VALUE,
)


def elements(section: bytes) -> list[bytes]:
    """Return the elements of a section of a list or a map (keys and values in turn).

    Raises:
        UndecodableMessage: the section holds neither, or is not well-formed.
    """
    try:
        _, at = _section_start(section, 0)
        return _elements(section, at)
    except (IndexError, struct.error):
        raise UndecodableMessage("a section is cut off") from None


def items(encoded: bytes) -> list[bytes]:
    """Return the elements of an encoded list or map, without a section's descriptor.

    Raises:
        UndecodableMessage: it is neither, or is not well-formed.
    """
    try:
        return _elements(encoded, 0)
    except (IndexError, struct.error):
        raise UndecodableMessage("a list or map is cut off") from None


def pairs(section: bytes) -> list[bytes]:
    """Return the elements of a section of a map, keys and values in turn.

    Raises:
        UndecodableMessage: the section is no map, or is not well-formed.
    """
    found = elements(section)
    if len(found) % 2:
        raise UndecodableMessage("a key without a value")
    return found


def _elements(encoded: bytes, at: int) -> list[bytes]:
    constructor = encoded[at]
    if constructor in (0xC0, 0xC1):
        end = at + 2 + encoded[at + 1]
        count = encoded[at + 2]
        at += 3
    elif constructor in (0xD0, 0xD1):
        end = at + 5 + _word(encoded, at + 1)[0]
        count = _word(encoded, at + 5)[0]
        at += 9
    elif constructor == 0x45:
        return []
    else:
        raise UndecodableMessage(f"constructor {constructor:#x} where a list or map was expected")
    if end > len(encoded) or count > end - at:
        raise UndecodableMessage("a list or map is longer than its section")
    if constructor in _MAPS and count % 2:
        raise UndecodableMessage("a map has a key without a value")
    found = []
    for _ in range(count):
        # Why: `_skip` inlined for frequent types; this runs for each property of each message.
        width = _WIDTHS[encoded[at]]
        if width > 0:
            after = at + width
        elif width == _LENGTH_BYTE:
            after = at + 2 + encoded[at + 1]
        else:
            after = _skip(encoded, at)
        found.append(encoded[at:after])
        at = after
    if at != end:
        raise UndecodableMessage("a list or map does not end where its elements end")
    return found


def first_element(section: bytes) -> bytes:
    """Return the first element of a list section; null when it has none.

    Raises:
        UndecodableMessage: the section is no list, or is not well-formed.
    """
    try:
        # Why: this is where it is in all but long lists.
        if section[3] == 0xC0 and section[5] and section[1] == 0x53:
            after = _skip(section, 6)
            if after <= len(section):
                return section[6:after]
    except (IndexError, struct.error):
        raise UndecodableMessage("a section is cut off") from None
    return next(iter(elements(section)), NULL)


def skip(encoded: bytes, at: int) -> int:
    """Return the end of the value that begins at `at`; it may be beyond the end of the bytes.

    Raises:
        UndecodableMessage: a constructor that AMQP does not have.
        IndexError, struct.error: the bytes end too early.
    """
    return _skip(encoded, at)


def _skip(encoded: bytes, at: int, depth: int = 0) -> int:
    width = _WIDTHS[encoded[at]]
    while width == _DESCRIBED:
        if depth > _DESCRIPTOR_DEPTH_MAX:
            raise UndecodableMessage("descriptors are nested too deep")
        depth += 1
        at = _skip(encoded, at + 1, depth)
        width = _WIDTHS[encoded[at]]
    if width > 0:
        return at + width
    if width == _LENGTH_BYTE:
        return at + 2 + encoded[at + 1]
    if width == _LENGTH_WORD:
        return at + 5 + int(_word(encoded, at + 1)[0])
    raise UndecodableMessage(f"there is no constructor {encoded[at]:#x}")


def _section_start(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the code of the section that begins at `at` and where its value begins."""
    if encoded[at + 1] == 0x53 and encoded[at] == 0 and HEADER <= encoded[at + 2] <= FOOTER:
        return encoded[at + 2], at + 3
    if encoded[at] != 0:
        raise UndecodableMessage("a section does not begin with a descriptor")
    constructor = encoded[at + 1]
    if constructor == 0x53:
        raise UndecodableMessage(f"there is no section {encoded[at + 2]:#x}")
    if constructor != 0x80:
        raise UndecodableMessage(f"a section's descriptor has the constructor {constructor:#x}")
    code = int(_double_word(encoded, at + 2)[0])
    if not HEADER <= code <= FOOTER:
        raise UndecodableMessage(f"there is no section {code:#x}")
    return code, at + 10


def _check_body(message: bytes, at: int) -> None:
    end = len(message)
    last = DATA
    while at < end:
        code, value_at = _section_start(message, at)
        if code < last:
            raise UndecodableMessage(f"section {code:#x} follows section {last:#x}")
        last = code
        at = _skip(message, value_at)
    if at != end:
        raise UndecodableMessage("the body is longer than the message")


def make_list(code: int, items: list[bytes]) -> bytes:
    """Return a section that is a list of these elements."""
    return _section(code, items, 0xC0)


def make_map(code: int, items: list[bytes]) -> bytes:
    """Return a section that is a map of these elements, keys and values in turn."""
    return _section(code, items, 0xC1)


def _section(code: int, items: list[bytes], constructor: int) -> bytes:
    content = b"".join(items)
    count = len(items)
    if len(content) < 255 and count < 256:
        return bytes((0, 0x53, code, constructor, len(content) + 1, count)) + content
    head = bytes((0, 0x53, code, constructor + 0x10))
    return head + _pack_two_words(len(content) + 4, count) + content


def scalar(element: bytes) -> Scalar:
    """Return the value of an element other than a list, map, array or described value.

    Timestamps are milliseconds since the epoch. Decimals and characters come as their bytes.

    Raises:
        UndecodableMessage: the element is not such a value, or its text is not UTF-8.
    """
    try:
        return _scalar(element)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise UndecodableMessage("a value can't be decoded") from None


def plain_value(element: bytes | None) -> Scalar:
    """Return a plain value; None for anything else, which an application may write."""
    try:
        return None if element is None else scalar(element)
    except UndecodableMessage:
        return None


def shown_id(value: Scalar) -> str | None:
    """Return a message id as text, other types than strings as Qpid JMS shows them.

    Source: Qpid JMS, AmqpMessageIdHelper.
    """
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return value if isinstance(value, str) or value is None else f"ID:AMQP_ULONG:{value}"


_NUMBER_FORMATS = {
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x56: ">?",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}
_CONSTANTS: dict[int, Scalar] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_OPAQUE = frozenset((0x73, 0x74, 0x84, 0x94))


def _scalar(element: bytes) -> Scalar:
    constructor = element[0]
    value: Scalar
    if constructor in (0xA1, 0xA3):
        value = element[2:].decode()
    elif constructor in (0xB1, 0xB3):
        value = element[5:].decode()
    elif constructor in _NUMBER_FORMATS:
        value = struct.unpack_from(_NUMBER_FORMATS[constructor], element, 1)[0]
    elif constructor in _CONSTANTS:
        value = _CONSTANTS[constructor]
    elif constructor in (0xA0, 0xB0):
        value = element[2 if constructor == 0xA0 else 5 :]
    elif constructor == 0x98 and len(element) == 17:
        value = UUID(bytes=element[1:])
    elif constructor in _OPAQUE:
        value = element[1:]
    else:
        raise UndecodableMessage(f"constructor {constructor:#x} where a plain value was expected")
    return value


def string(text: str) -> bytes:
    """Return an encoded string."""
    encoded = text.encode()
    if len(encoded) < 256:
        return bytes((0xA1, len(encoded))) + encoded
    return b"\xb1" + _pack_word(len(encoded)) + encoded


def symbol(text: str) -> bytes:
    """Return an encoded symbol.

    Raises:
        UnicodeEncodeError: the text is not ASCII.
    """
    encoded = text.encode("ascii")
    if len(encoded) < 256:
        return bytes((0xA3, len(encoded))) + encoded
    return b"\xb3" + _pack_word(len(encoded)) + encoded


def integer(number: int) -> bytes:
    """Return an encoded int, of 32 bits with a sign."""
    return (
        b"\x54" + number.to_bytes(1, signed=True)
        if -128 <= number < 128
        else struct.pack(">Bi", 0x71, number)
    )


def long(number: int) -> bytes:
    """Return an encoded long, of 64 bits with a sign."""
    return (
        b"\x55" + number.to_bytes(1, signed=True)
        if -128 <= number < 128
        else struct.pack(">Bq", 0x81, number)
    )


def unsigned(number: int) -> bytes:
    """Return an encoded uint, of 32 bits without a sign."""
    return struct.pack(">BI", 0x70, number)


def byte(number: int) -> bytes:
    """Return an encoded byte, with a sign."""
    return struct.pack(">Bb", 0x51, number)


def timestamp(epoch_ms: int) -> bytes:
    """Return an encoded timestamp of milliseconds since the epoch."""
    return struct.pack(">Bq", 0x83, epoch_ms)
