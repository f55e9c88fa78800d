"""Reads and edits the marshalled properties of an OpenWire message without unmarshalling the map.

The map is an int count and then, per entry, a name (two length bytes, modified UTF-8), a type byte
and a value. Entries that stay are copied as bytes.

Source: ActiveMQ Classic, org.apache.activemq.util.MarshallingSupport.marshalPrimitiveMap.
"""

from collections.abc import Container, Sequence
from functools import lru_cache
from struct import Struct, error

from amqsidecar.errors import UndecodableMessage

PropertyValue = str | int | float | bool | None

_UNSIGNED_SHORT = Struct(">H")
_UNSIGNED_INT = Struct(">I")
_INT = Struct(">i")
_LONG = Struct(">q")
_read_short = _UNSIGNED_SHORT.unpack_from
_read_int = _UNSIGNED_INT.unpack_from

_BOOLEAN, _INTEGER, _LONG_TYPE, _STRING, _BYTE_ARRAY, _MAP, _LIST, _BIG_STRING = (
    *(1, 5, 6),
    *range(9, 14),
)
# Why: by type byte; null, boolean, byte, char, short, int, long, double, float.
_FIXED_SIZES = (0, 1, 1, 2, 2, 4, 8, 8, 4)
_INTEGERS = frozenset((2, 4, _INTEGER, _LONG_TYPE))
_FLOATS = {7: Struct(">d"), 8: Struct(">f")}
_DEPTH_MAX = 100
# Precedent: MarshallingSupport.marshalString writes longer texts as BIG_STRING.
_STRING_CHARACTERS_MAX = 8191
_SCHEDULED = b"AMQ_SCHEDULED_"


def decode_text(data: bytes) -> str:
    """Return the text of Java's modified UTF-8; malformed parts become replacement characters."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    # Why: Java writes U+0000 as two bytes and a character beyond U+FFFF as two surrogates.
    try:
        pairs = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
    return pairs.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def encode_text(text: str) -> bytes:
    """Return Java's modified UTF-8 of a text."""
    if text.isascii():
        return text.encode("ascii").replace(b"\0", b"\xc0\x80")
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = "".join(chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))
    return pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def string_entry(name: str, value: str) -> bytes:
    """Return the encoded map entry of a text property."""
    data = encode_text(value)
    if len(value) <= _STRING_CHARACTERS_MAX:
        return b"%b\x09%b%b" % (_name(name), _UNSIGNED_SHORT.pack(len(data)), data)
    return b"%b\x0d%b%b" % (_name(name), _UNSIGNED_INT.pack(len(data)), data)


def int_entry(name: str, value: int) -> bytes:
    """Return the encoded map entry of an int property."""
    return _name(name) + b"\x05" + _INT.pack(value)


def long_entry(name: str, value: int) -> bytes:
    """Return the encoded map entry of a long property."""
    return _name(name) + b"\x06" + _LONG.pack(value)


@lru_cache(maxsize=64)
def _name(name: str) -> bytes:
    data = encode_text(name)
    return _UNSIGNED_SHORT.pack(len(data)) + data


def read_properties(data: bytes | None, wanted: Container[bytes]) -> dict[bytes, PropertyValue]:
    """Return the wanted properties that are present, by name.

    Maps, lists and bytes become None, as null does.

    Raises:
        UndecodableMessage: the map is not well formed.
    """
    return EditedProperties(data, (), wanted).found


class EditedProperties:
    """A map without some of its entries, and the values of some of these.

    Attributes:
        found: the wanted properties that are present, as `read_properties` returns them.
    """

    __slots__ = ("_kept", "_pieces", "found")

    def __init__(
        self, data: bytes | None, removed: Container[bytes], wanted: Container[bytes]
    ) -> None:
        """Cut out entries, and always those for the broker's scheduler, which delays messages.

        Raises:
            UndecodableMessage: the map is not well formed.
        """
        self._pieces = [b""]
        self._kept = 0
        self.found: dict[bytes, PropertyValue] = {}
        if not data:
            return
        try:
            self._cut(data, removed, wanted)
        except (error, IndexError) as cause:
            raise UndecodableMessage("the properties end in the middle of an entry") from cause

    def _cut(self, data: bytes, removed: Container[bytes], wanted: Container[bytes]) -> None:
        pieces = self._pieces
        count = _INT.unpack_from(data)[0]
        kept = max(count, 0)
        at = kept_from = 4
        for _ in range(count):
            start = at
            value_at = at + 2 + _read_short(data, at)[0]
            name = data[at + 2 : value_at]
            if data[value_at] == _STRING:  # Why here: most values are texts.
                at = value_at + 3 + _read_short(data, value_at + 1)[0]
            else:
                at = end_of_value(data, value_at, 0)
            if name in wanted:
                self.found[name] = _value(data, value_at, at)
            if name in removed or name.startswith(_SCHEDULED):
                pieces.append(data[kept_from:start])
                kept_from = at
                kept -= 1
        if at > len(data):
            raise UndecodableMessage("the properties end in the middle of a value")
        pieces.append(data[kept_from:at])
        self._kept = kept

    def with_entries(self, added: Sequence[bytes]) -> bytes:
        """Return the map with encoded entries appended; remaining entries keep their bytes.

        Args:
            added: entries whose names are no longer in the map.
        """
        self._pieces[0] = _INT.pack(self._kept + len(added))
        return b"".join((*self._pieces, *added))


def end_of_value(data: bytes, at: int, depth: int) -> int:
    """Return the end of the value whose type byte is at `at`; it may be beyond the data.

    Raises:
        UndecodableMessage: it is of no known type, or nested too deep.
        IndexError, struct.error: the data end too early.
    """
    code = data[at]
    if code < _STRING:
        return at + 1 + _FIXED_SIZES[code]
    if code == _STRING:
        return at + 3 + int(_read_short(data, at + 1)[0])
    if code in (_BYTE_ARRAY, _BIG_STRING):
        return at + 5 + int(_read_int(data, at + 1)[0])
    if code not in (_MAP, _LIST):
        raise UndecodableMessage(f"a property has the unknown type {code}")
    if depth == _DEPTH_MAX:
        raise UndecodableMessage(f"a property is nested deeper than {_DEPTH_MAX} levels")
    count = _INT.unpack_from(data, at + 1)[0]
    at += 5
    for _ in range(count):
        if code == _MAP:
            at += 2 + _read_short(data, at)[0]
        at = end_of_value(data, at, depth + 1)
    return at


def _value(data: bytes, at: int, end: int) -> PropertyValue:
    code = data[at]
    if code == _STRING:
        return decode_text(data[at + 3 : end])
    if code == _BIG_STRING:
        return decode_text(data[at + 5 : end])
    if code in _INTEGERS:
        return int.from_bytes(data[at + 1 : end], "big", signed=True)
    if code == _BOOLEAN:
        return data[at + 1] != 0
    if code in _FLOATS:
        return float(_FLOATS[code].unpack_from(data, at + 1)[0])
    return None
