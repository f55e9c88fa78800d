"""The field types of Core: how each is written and read.

Source: Artemis, org.apache.activemq.artemis: core.buffers.impl.ChannelBufferWrapper,
utils.UTF8Util, api.core.SimpleString, utils.BufferHelper, api.core.TransportConfiguration.
"""

from codecs import utf_16_le_decode, utf_16_le_encode
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct, error
from typing import Generic, NamedTuple, TypeVar

_BYTE = Struct(">b")
_UNSIGNED_SHORT = Struct(">H")
_INT = Struct(">i")
_LONG = Struct(">q")
# Source: UTF8Util.writeString.
_AS_UNITS_BELOW = 9
_AS_UTF8_BELOW = 0xFFF
_TEXT, _NO_TEXT = b"\x01", b"\0"

FieldValue = TypeVar("FieldValue")


class CoreProtocolError(ValueError):
    """Bytes that Core does not allow: cut off, forged, or of another protocol."""


class CoreReader:
    """Reads fields one after the other; each method raises `CoreProtocolError` past the end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self.data) - self.at

    def raw(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise CoreProtocolError(f"a field claims {size} bytes where {self.left} are left")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, form: Struct) -> int:
        """Return a number of a struct with one field."""
        try:
            found: int = form.unpack_from(self.data, self.at)[0]
        except error as cause:
            raise CoreProtocolError(f"a number is cut off: {self.left} bytes are left") from cause
        self.at += form.size
        return found


@dataclass(frozen=True, slots=True)
class FieldType(Generic[FieldValue]):
    """One type of field.

    Attributes:
        name: in the documentation.
        write: returns the bytes of a value.
        read: reads a value.
    """

    name: str
    write: Callable[[FieldValue], bytes]
    read: Callable[[CoreReader], FieldValue]


def _number(name: str, form: Struct) -> FieldType[int]:
    return FieldType(name, form.pack, lambda reader: reader.number(form))


def simple_string(text: str) -> bytes:
    """Return a SimpleString: an int of bytes, then UTF-16 little endian."""
    # Why not `str.encode`: to look this codec up takes four times as long as to use it.
    data, _ = utf_16_le_encode(text, "surrogatepass")
    return _INT.pack(len(data)) + data


def decode_simple_text(data: bytes) -> str:
    """Return the text of a SimpleString's data.

    Raises:
        CoreProtocolError: half a character is left over.
    """
    if len(data) % 2:
        raise CoreProtocolError(f"a SimpleString has an odd number of bytes: {len(data)}")
    return utf_16_le_decode(data, "surrogatepass")[0]


def _read_simple_string(reader: CoreReader) -> str:
    return decode_simple_text(reader.raw(reader.number(_INT)))


def _string(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    count = len(units) // 2
    head = _INT.pack(count)
    if count < _AS_UNITS_BELOW:
        return head + units
    if count < _AS_UTF8_BELOW:
        # Quirk (UTF8Util): each half of a surrogate pair is a character of its own.
        halves = "".join(chr(unit) for (unit,) in _UNSIGNED_SHORT.iter_unpack(units))
        data = halves.encode("utf-8", "surrogatepass")
        return head + _UNSIGNED_SHORT.pack(len(data)) + data
    return head + simple_string(text)


def _read_string(reader: CoreReader) -> str:
    count = reader.number(_INT)
    if count < _AS_UNITS_BELOW:
        return reader.raw(count * 2).decode("utf-16-be", "surrogatepass")
    if count < _AS_UTF8_BELOW:
        data = reader.raw(reader.number(_UNSIGNED_SHORT))
        try:
            halves = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as cause:
            raise CoreProtocolError("a String is not UTF-8") from cause
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _read_simple_string(reader)


def _boolean(value: bool) -> bytes:
    return _TEXT if value else _NO_TEXT


def _read_boolean(reader: CoreReader) -> bool:
    # Quirk (ChannelBufferWrapper): Java writes true as -1 in packets and as 1 in messages.
    return reader.number(_BYTE) != 0


def _nullable(inner: FieldType[FieldValue]) -> FieldType[FieldValue | None]:
    def write(value: FieldValue | None) -> bytes:
        return b"\0" if value is None else b"\x01" + inner.write(value)

    def read(reader: CoreReader) -> FieldValue | None:
        return inner.read(reader) if _read_boolean(reader) else None

    return FieldType(f"nullable {inner.name}", write, read)


def _list(name: str, inner: FieldType[FieldValue]) -> FieldType[tuple[FieldValue, ...]]:
    def write(values: tuple[FieldValue, ...]) -> bytes:
        return _INT.pack(len(values)) + b"".join(map(inner.write, values))

    def read(reader: CoreReader) -> tuple[FieldValue, ...]:
        count = reader.number(_INT)
        # Why: each takes a byte at least, so that a forged count allocates nothing.
        if not 0 <= count <= reader.left:
            raise CoreProtocolError(f"a list claims {count} entries in {reader.left} bytes")
        return tuple(inner.read(reader) for _ in range(count))

    return FieldType(name, write, read)


def _sized_bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _read_sized_bytes(reader: CoreReader) -> bytes:
    return reader.raw(reader.number(_INT))


BYTE = _number("byte", _BYTE)
INT = _number("int", _INT)
LONG = _number("long", _LONG)
BOOLEAN = FieldType("boolean", _boolean, _read_boolean)
STRING = FieldType("String", _string, _read_string)
SIMPLE_STRING = FieldType("SimpleString", simple_string, _read_simple_string)
SIZED_BYTES = FieldType("int, bytes", _sized_bytes, _read_sized_bytes)
NULLABLE_INT = _nullable(INT)
NULLABLE_LONG = _nullable(LONG)
NULLABLE_BOOLEAN = _nullable(BOOLEAN)
NULLABLE_STRING = _nullable(STRING)
NULLABLE_SIMPLE_STRING = _nullable(SIMPLE_STRING)
SIMPLE_STRINGS = _list("int, SimpleString each", SIMPLE_STRING)


ConnectorParameter = bool | int | str


class Connector(NamedTuple):
    """How to reach a broker.

    Attributes:
        name: of the connector in the broker's configuration.
        factory: the Java class that connects.
        parameters: by name; `host` and `port` among them. A number is an int or a long, by its
            size.
    """

    name: str
    factory: str
    parameters: tuple[tuple[str, ConnectorParameter], ...]

    @property
    def place(self) -> tuple[str, int] | None:
        """Host and port; None = another transport."""
        found = dict(self.parameters)
        host, port = found.get("host"), found.get("port")
        try:
            return (host, int(port)) if isinstance(host, str) and port is not None else None
        except ValueError:
            return None


def _parameter(parameter: tuple[str, ConnectorParameter]) -> bytes:
    name, value = parameter
    match value:
        case bool():
            field = b"\0" + BOOLEAN.write(value)
        case int() if -(2**31) <= value < 2**31:
            field = b"\x01" + INT.write(value)
        case int():
            field = b"\x02" + LONG.write(value)
        case str():
            field = b"\x03" + STRING.write(value)
    return STRING.write(name) + field


_PARAMETER_TYPES: dict[int, FieldType[bool] | FieldType[int] | FieldType[str]] = {
    0: BOOLEAN,
    1: INT,
    2: LONG,
    3: STRING,
}


def _read_parameter(reader: CoreReader) -> tuple[str, ConnectorParameter]:
    name = STRING.read(reader)
    code = BYTE.read(reader)
    if code not in _PARAMETER_TYPES:
        raise CoreProtocolError(f"a connector's parameter has the type {code}")
    return name, _PARAMETER_TYPES[code].read(reader)


_PARAMETERS = _list("int, parameters", FieldType("parameter", _parameter, _read_parameter))


def _connector(connector: Connector) -> bytes:
    head = STRING.write(connector.name) + STRING.write(connector.factory)
    return head + _PARAMETERS.write(connector.parameters)


def _read_connector(reader: CoreReader) -> Connector:
    return Connector(STRING.read(reader), STRING.read(reader), _PARAMETERS.read(reader))


CONNECTOR = FieldType("connector", _connector, _read_connector)
NULLABLE_CONNECTOR = _nullable(CONNECTOR)
