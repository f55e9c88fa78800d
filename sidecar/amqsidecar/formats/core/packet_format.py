"""How a packet of Core is declared: a class, its fields annotated with their types on the wire."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

from amqsidecar.formats.core.primitives import (
    BOOLEAN,
    BYTE,
    INT,
    LONG,
    NULLABLE_BOOLEAN,
    NULLABLE_CONNECTOR,
    NULLABLE_INT,
    NULLABLE_LONG,
    NULLABLE_SIMPLE_STRING,
    NULLABLE_STRING,
    SIMPLE_STRING,
    STRING,
    Connector,
    FieldType,
)

Byte = Annotated[int, BYTE]
Int = Annotated[int, INT]
Long = Annotated[int, LONG]
Boolean = Annotated[bool, BOOLEAN]
String = Annotated[str, STRING]
NullableString = Annotated[str | None, NULLABLE_STRING]
SimpleString = Annotated[str, SIMPLE_STRING]
NullableSimpleString = Annotated[str | None, NULLABLE_SIMPLE_STRING]
NullableBoolean = Annotated[bool | None, NULLABLE_BOOLEAN]
NullableInt = Annotated[int | None, NULLABLE_INT]
NullableLong = Annotated[int | None, NULLABLE_LONG]
NullableConnector = Annotated[Connector | None, NULLABLE_CONNECTOR]


class _Field(NamedTuple):
    name: str
    kind: FieldType[Any]
    is_optional: bool


class PacketFormat(NamedTuple):
    """How one packet is written.

    Attributes:
        source: the broker's class.
        fields: name and type of each, in the order of the wire.
    """

    code: int
    source: str
    fields: tuple[_Field, ...]


CorePacket = tuple[Any, ...]
"""An instance of one of the classes in `packets.py` and `message_packets.py`."""

DECLARED: dict[type[CorePacket], PacketFormat] = {}
"""The format of each class; complete once `packets.py` is imported."""

_PacketClass = TypeVar("_PacketClass", bound=type[CorePacket])


def packet(code: int, source: str) -> Callable[[_PacketClass], _PacketClass]:
    """Declare the packet of a code; `source` is the broker's class."""

    def register(kind: _PacketClass) -> _PacketClass:
        defaults = getattr(kind, "_field_defaults", {})
        fields = []
        for name, hint in get_type_hints(kind, include_extras=True).items():
            fields.append(_Field(name, hint.__metadata__[0], name in defaults))
        DECLARED[kind] = PacketFormat(code, source, tuple(fields))
        return kind

    return register
