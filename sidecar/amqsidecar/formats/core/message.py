"""Messages of Core: taken apart, put together, and edited without touching the rest.

A message in a packet is `int end of body`, the body, then headers and properties; a large message
has headers and properties only, its body comes in pieces. Body and properties stay bytes.

Source: Artemis, core.message.impl.CoreMessage (encode, decodeHeadersAndProperties) and
utils.collections.TypedProperties.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple

from amqsidecar.formats.core.primitives import (
    SIZED_BYTES,
    CoreProtocolError,
    decode_simple_text,
    simple_string,
)

DEFAULT_MESSAGE, OBJECT_MESSAGE, TEXT_MESSAGE, BYTES_MESSAGE, MAP_MESSAGE = 0, 2, 3, 4, 5
STREAM_MESSAGE, EMBEDDED_MESSAGE = 6, 7

_INT = Struct(">i")
_UNSIGNED_INT = Struct(">I")
_LONG = Struct(">q")
_LONG_AND_FLAG = Struct(">qb")
_SHORT = Struct(">h")
_UNSIGNED_SHORT = Struct(">H")
_BYTE = Struct(">b")
_FLOAT = Struct(">f")
_DOUBLE = Struct(">d")
# type, durable, expiration, timestamp, priority
_HEADERS = Struct(">bbqqb")
# Source: CoreMessage.BUFFER_HEADER_SPACE; "end of body" counts from the start of the packet.
PIECE_BYTES: Final = 100 * 1024
"""Maximum bytes of a regular message; beyond it a large message is sent in pieces of this size.

Source: ActiveMQClient.DEFAULT_MIN_LARGE_MESSAGE_SIZE. A broker of 2.57 ends a connection that sends
a frame above 128 KiB (`coreMaxFrameSize` of its acceptor).
"""
_PACKET_HEAD_BYTES: Final = 13
_USER_ID_BYTES: Final = 16

NO_PROPERTIES = b"\0"
_DEFAULT_PRIORITY: Final = 4
PROPERTIES_HEAD: Final = Struct(">?i")
"""Before encoded properties: that there are some, and how many."""


class CoreMessage(NamedTuple):
    """A message.

    Attributes:
        body: as it is in the packet; b"" where it comes in pieces.
        message_id: the broker's number; 0 in a message that a client sends.
        address: None = the session's default.
        user_id: 16 bytes, from which JMS makes its message id; None = it has none.
        kind: `TEXT_MESSAGE` and so on.
        durable: it survives the broker's restart.
        expiration_ms: since 1970; 0 = never.
        timestamp_ms: since 1970.
        priority: 0 to 9.
        properties: encoded; see `edit_properties` and `read_core_properties`.
    """

    body: bytes
    message_id: int
    address: str | None
    user_id: bytes | None
    kind: int
    durable: bool
    expiration_ms: int
    timestamp_ms: int
    priority: int
    properties: bytes


def new_message(
    address: str,
    properties: Mapping[str, "CoreProperty | None"],
    *,
    timestamp_ms: int,
    kind: int = DEFAULT_MESSAGE,
    body: bytes = b"",
    durable: bool = True,
) -> CoreMessage:
    """Return a message to send, of the default priority and without an expiry.

    Args:
        properties: by name.
        timestamp_ms: since 1970.
        kind: `TEXT_MESSAGE` and so on.
        body: as its kind has it.
        durable: it survives the broker's restart.
    """
    return CoreMessage(
        body=body,
        message_id=0,
        address=address,
        user_id=None,
        kind=kind,
        durable=durable,
        expiration_ms=0,
        timestamp_ms=timestamp_ms,
        priority=_DEFAULT_PRIORITY,
        properties=edit_properties(NO_PROPERTIES, properties),
    )


def encode_message(message: CoreMessage) -> bytes:
    """Return a message with its body, as `SESS_SEND` carries it."""
    body = message.body
    size = _INT.pack(_PACKET_HEAD_BYTES + len(body))
    return b"".join((size, body, *_encoded_headers(message)))


def decode_message(data: bytes) -> CoreMessage:
    """Return the message that `encode_message` or a broker has encoded.

    Raises:
        CoreProtocolError: it is cut off, or its end of body lies outside.
    """
    body_end = end_of_body(data)
    return decode_headers(data, body_end, data[_INT.size : body_end])


def end_of_body(data: bytes) -> int:
    """Return where the body of an encoded message ends; it begins after its end's four bytes.

    Raises:
        CoreProtocolError: it ends outside.
    """
    try:
        body_end: int = _INT.unpack_from(data)[0] - _PACKET_HEAD_BYTES + _INT.size
    except error as cause:
        raise CoreProtocolError("a message has no body") from cause
    if not _INT.size <= body_end <= len(data):
        raise CoreProtocolError(f"a message's body ends at {body_end} of {len(data)} bytes")
    return body_end


def encode_headers(message: CoreMessage) -> bytes:
    """Return headers and properties, as `SESS_SEND_LARGE` carries them."""
    return b"".join(_encoded_headers(message))


def _encoded_headers(message: CoreMessage) -> tuple[bytes, ...]:
    _, message_id, address, user_id, kind, durable, expiration_ms, timestamp_ms, priority, _ = (
        message
    )
    return (
        _LONG.pack(message_id),
        b"\0" if address is None else b"\x01" + simple_string(address),
        b"\0" if user_id is None else b"\x01" + user_id,
        _HEADERS.pack(kind, durable, expiration_ms, timestamp_ms, priority),
        message.properties,
    )


def header_places(data: bytes, at: int) -> tuple[int, int, int]:
    """Return where the parts of the headers at an offset begin: user id, fixed, properties.

    The user id follows a byte that says whether there is one. Fixed are type and durability, one
    byte each, expiration (8), timestamp (8), priority (1). Properties reach to the end.

    Raises:
        CoreProtocolError: they are cut off.
    """
    try:
        user_id = at + _LONG_AND_FLAG.size
        if data[user_id - 1]:
            size = _INT.unpack_from(data, user_id)[0]
            user_id += _INT.size + size
            if size < 0 or user_id > len(data):
                raise CoreProtocolError(f"an address claims {size} bytes")
        fixed = user_id + 1 + (_USER_ID_BYTES if data[user_id] else 0)
    except (error, IndexError) as cause:
        raise CoreProtocolError("a message's headers are cut off") from cause
    properties = fixed + _HEADERS.size
    if properties >= len(data):
        raise CoreProtocolError("a message's headers are cut off")
    return user_id, fixed, properties


def decode_headers(data: bytes, at: int = 0, body: bytes = b"") -> CoreMessage:
    """Return the message of this body whose headers and properties begin at an offset.

    Raises:
        CoreProtocolError: they are cut off.
    """
    user_id, fixed, properties = header_places(data, at)
    message_id, has_address = _LONG_AND_FLAG.unpack_from(data, at)
    address_at = at + _LONG_AND_FLAG.size + _INT.size
    kind, durable, expiration_ms, timestamp_ms, priority = _HEADERS.unpack_from(data, fixed)
    # Why not its constructor: that takes twice as long.
    return tuple.__new__(
        CoreMessage,
        (
            body,
            message_id,
            decode_simple_text(data[address_at:user_id]) if has_address else None,
            data[user_id + 1 : fixed] if data[user_id] else None,
            kind,
            durable != 0,
            expiration_ms,
            timestamp_ms,
            priority,
            data[properties:],
        ),
    )


class CorePropertyType(IntEnum):
    """The type of a property's value.

    Source: utils.DataConstants.
    """

    NULL = 0
    BOOLEAN = 2
    BYTE = 3
    BYTES = 4
    SHORT = 5
    INT = 6
    LONG = 7
    FLOAT = 8
    DOUBLE = 9
    STRING = 10
    CHAR = 11


CoreValue = None | bool | int | float | str | bytes

_NUMBERS: Final[dict[int, Struct]] = {
    CorePropertyType.BYTE: _BYTE,
    CorePropertyType.SHORT: _SHORT,
    CorePropertyType.INT: _INT,
    CorePropertyType.LONG: _LONG,
    CorePropertyType.FLOAT: _FLOAT,
    CorePropertyType.DOUBLE: _DOUBLE,
}
FIXED_BYTES: Final = {
    0: 0,
    2: 1,
    **{kind: form.size for kind, form in _NUMBERS.items()},
    11: 2,
}
"""Bytes of a value by its type; texts and bytes, which say their own length, are not in it."""
# Why a list by the code: the fastest to ask.
_SAYS_ITS_LENGTH: Final = -1
_NO_TYPE: Final = -2
_BYTES_OF_TYPE: Final = [FIXED_BYTES.get(code, _NO_TYPE) for code in range(256)]
_STRING_CODE: Final = bytes((CorePropertyType.STRING,))
for _kind in (CorePropertyType.BYTES, CorePropertyType.STRING):
    _BYTES_OF_TYPE[_kind] = _SAYS_ITS_LENGTH


class CoreProperty(NamedTuple):
    """A value and its type; a value that doesn't fit the type can't be encoded."""

    kind: CorePropertyType
    value: CoreValue

    def encoded(self) -> bytes:
        """Return type and value.

        Raises:
            ValueError: the value is not one of the type.
        """
        kind, value = self
        if kind is CorePropertyType.STRING and isinstance(value, str):
            return _STRING_CODE + simple_string(value)
        try:
            return bytes((kind,)) + self._encoded_value()
        except (error, TypeError, OverflowError) as cause:
            raise ValueError(f"{self.value!r} is no {self.kind.name}") from cause

    def _encoded_value(self) -> bytes:
        match self.kind, self.value:
            case CorePropertyType.NULL, None:
                return b""
            case CorePropertyType.BOOLEAN, bool(value):
                return bytes((value,))
            case CorePropertyType.BYTES, bytes(data):
                return SIZED_BYTES.write(data)
            case CorePropertyType.CHAR, str(text):
                return _UNSIGNED_SHORT.pack(ord(text))
            case kind, value if kind in _NUMBERS and not isinstance(value, bool):
                return _NUMBERS[kind].pack(value)
        raise TypeError


CoreEntry = tuple[bytes, int, int, int]
"""The position of a property among encoded properties: name, start, value, end.

The name is in UTF-16 little endian, start and end delimit the whole entry, and the byte before the
value is its type.
"""


def split_properties(encoded: bytes) -> list[CoreEntry]:
    """Return the place of each property, in order.

    Raises:
        CoreProtocolError: they are cut off, of an unknown type, or followed by something.
    """
    found: list[CoreEntry] = []
    if encoded == NO_PROPERTIES:
        return found
    # Why these names, and plain tuples: this loop is a tenth of the time per message.
    read_size, sizes, add = _UNSIGNED_INT.unpack_from, _BYTES_OF_TYPE, found.append
    try:
        (count,) = read_size(encoded, 1)
        if count > len(encoded) or not encoded[0]:
            raise CoreProtocolError(f"properties claim {count} entries")
        at = PROPERTIES_HEAD.size
        for _ in range(count):
            start = at
            # Why unsigned: a length that is negative in Java then exceeds the end.
            key_end = at + 4 + read_size(encoded, at)[0]
            value = key_end + 1
            size = sizes[encoded[key_end]]
            if size >= 0:
                at = value + size
            elif size == _SAYS_ITS_LENGTH:
                at = value + 4 + read_size(encoded, value)[0]
            else:
                raise CoreProtocolError(f"a property has the type {encoded[key_end]}")
            add((encoded[start + 4 : key_end], start, value, at))
    except (error, IndexError) as cause:
        raise CoreProtocolError("a message's properties are cut off") from cause
    if at > len(encoded):
        raise CoreProtocolError("a message's properties are cut off")
    if at < len(encoded):
        raise CoreProtocolError(f"{len(encoded) - at} bytes follow a message's properties")
    return found


class CoreLayout:
    """Where properties stand.

    Attributes:
        entries: as `split_properties` gives them.
        by_key: of two with one name the later, as the broker takes it.
        is_shared: properties of other messages have it, too.
    """

    __slots__ = ("by_key", "entries", "is_shared")

    def __init__(self, entries: Sequence[CoreEntry], *, is_shared: bool) -> None:
        self.entries = entries
        self.by_key = {entry[0]: entry for entry in entries}
        self.is_shared = is_shared


# Bound: a stranger's messages make us remember some 16 MiB at most.
_KNOWN_MAX: Final = 1024
_SHARED_BYTES_MAX, _SHARED_ENTRIES_MAX = 4096, 64
_RENEWED_AFTER: Final = 8
# By length: a form that reads all bytes but values, those bytes, and their layout.
_known: dict[int, tuple[Struct, tuple[bytes, ...], CoreLayout]] = {}
_misses: dict[int, int] = {}


def layout_of(encoded: bytes) -> CoreLayout:
    """Return the layout of properties, as `split_properties` finds it, or in a quarter of its time.

    Raises:
        CoreProtocolError: see `split_properties`.
    """
    size = len(encoded)
    known = _known.get(size)
    if known is not None:
        form, proof, layout = known
        if form.unpack(encoded) == proof:
            return layout
    entries = split_properties(encoded)
    if size > _SHARED_BYTES_MAX or len(entries) > _SHARED_ENTRIES_MAX:
        return CoreLayout(entries, is_shared=False)
    # Why not each time: messages of one length may take turns.
    misses = _misses[size] = _misses.get(size, 0) + 1
    layout = CoreLayout(entries, is_shared=misses % _RENEWED_AFTER == 1)
    if layout.is_shared:
        codes, at = "", 0
        for _, _, value, end in entries:
            start = value if _BYTES_OF_TYPE[encoded[value - 1]] >= 0 else value + _INT.size
            codes += f"{start - at}s{end - start}x"
            at = end
        form = Struct(f"{codes}{size - at}s")
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[size] = form, form.unpack(encoded), layout
    return layout


def join_properties(entries: Sequence[bytes]) -> bytes:
    """Return encoded properties made of encoded entries."""
    return (
        b"".join((PROPERTIES_HEAD.pack(True, len(entries)), *entries)) if entries else NO_PROPERTIES
    )


def read_core_properties(encoded: bytes) -> dict[str, CoreProperty]:
    """Return the properties by name; of two with one name the later, as the broker takes it.

    Raises:
        CoreProtocolError: they can't be read.
    """
    return {
        decode_simple_text(key): read_core_property(encoded, value, end)
        for key, _, value, end in split_properties(encoded)
    }


def read_core_property(encoded: bytes, at: int, end: int) -> CoreProperty:
    """Return the property whose value begins and ends here; see `split_properties`."""
    return CoreProperty(CorePropertyType(encoded[at - 1]), read_core_value(encoded, at, end))


def read_core_value(encoded: bytes, at: int, end: int) -> CoreValue:
    """Return the value of such a property, in a third of the time."""
    kind = encoded[at - 1]
    if (number := _NUMBERS.get(kind)) is not None:
        value: CoreValue = number.unpack_from(encoded, at)[0]
        return value
    data = encoded[at:end]
    if kind == CorePropertyType.STRING:
        return decode_simple_text(data[4:])
    if kind == CorePropertyType.BOOLEAN:
        return data != b"\0"
    if kind == CorePropertyType.BYTES:
        return data[4:]
    return chr(_UNSIGNED_SHORT.unpack(data)[0]) if kind == CorePropertyType.CHAR else None


def edit_properties(encoded: bytes, changes: Mapping[str, CoreProperty | None]) -> bytes:
    """Return properties with changes: a property sets, None removes.

    No name is there twice that is set, however often it was; all other entries keep their bytes
    and their order. A set property takes the place of the old one, or follows all others.

    Raises:
        CoreProtocolError: the properties can't be read.
        ValueError: a value doesn't fit its type.
    """
    names = {name.encode("utf-16-le", "surrogatepass"): name for name in changes}
    if any(key in encoded for key in names):
        return _replaced(encoded, names, changes)
    added = [core_entry(name, change) for name, change in changes.items() if change is not None]
    if not added:
        return encoded
    count = _count(encoded) + len(added)
    return b"".join((b"\x01", _INT.pack(count), encoded[5:], *added))


def _replaced(
    encoded: bytes, names: Mapping[bytes, str], changes: Mapping[str, CoreProperty | None]
) -> bytes:
    left = dict(changes)
    kept = []
    for key, start, value, end in split_properties(encoded):
        name = names.get(key)
        if name is None:
            kept.append(encoded[start:end])
        elif (change := left.pop(name, None)) is not None:
            kept.append(encoded[start : value - 1] + change.encoded())
    kept += [core_entry(name, change) for name, change in left.items() if change is not None]
    return join_properties(kept)


def core_entry(name: str, change: CoreProperty) -> bytes:
    """Return an encoded property for `join_properties`."""
    return simple_string(name) + change.encoded()


def _count(encoded: bytes) -> int:
    if encoded == NO_PROPERTIES:
        return 0
    try:
        count: int = _INT.unpack_from(encoded, 1)[0]
    except error as cause:
        raise CoreProtocolError("a message's properties are cut off") from cause
    if not 0 <= count <= len(encoded):
        raise CoreProtocolError(f"properties claim {count} entries")
    return count
