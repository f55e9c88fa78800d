"""A kept message as people see it, and the parts that they may change.

Wires decode these values from bytes and encode them again (`messages/view.py`,
`messages/edit.py`). Anyone can write a message: every text here is untrusted data, to be escaped
wherever it is shown.
"""

from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_DESTINATION,
    PROPERTY_ORIGINAL_DUPLICATE_ID,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
    PROPERTY_RULES_DIGEST,
)

FIELDS_MAX: Final = 500
"""Headers, properties, or entries of a body that a view shows; the rest is counted."""

DEPTH_MAX: Final = 32
"""How deep a view goes into maps and lists."""

VALUE_CHARACTERS_MAX: Final = 4_000
"""Characters that a view shows of one value of a header, a property or an entry."""


class ValueType(StrEnum):
    """Types of values: names of JMS, or of AMQP for types that JMS lacks."""

    STRING = "string"
    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    CHAR = "char"
    NULL = "null"
    BYTES = "bytes"
    MAP = "map"
    LIST = "list"
    SYMBOL = "symbol"
    UBYTE = "ubyte"
    USHORT = "ushort"
    UINT = "uint"
    ULONG = "ulong"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    OTHER = "other"
    """Values without a text form: arrays, decimals, described values."""


EDITABLE_TYPES: Final = (
    ValueType.STRING,
    ValueType.BOOLEAN,
    ValueType.BYTE,
    ValueType.SHORT,
    ValueType.INT,
    ValueType.LONG,
    ValueType.FLOAT,
    ValueType.DOUBLE,
)
"""JMS's types of properties; a property that is set has one of these. STOMP has strings only."""


class TypedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A header, a property, or an entry of a map or list.

    Attributes:
        name: as on the wire; for a list entry, its index, 0-based, in decimal.
        value: as text: numbers in decimal, booleans `true` or `false`, bytes in hexadecimal,
            timestamps as milliseconds since the epoch; "" of maps and lists, whose entries follow.
        is_cut: the value is longer than shown.
        locked: why a person can't change it; None = it may be set or removed.
        depth: 0 = of the message or the body itself, 1 = of a map or list in it, ...
    """

    name: str
    type: ValueType
    value: str
    is_cut: bool = False
    locked: str | None = None
    depth: int = 0


class BodyKind(StrEnum):
    """The kind of a body."""

    TEXT = "text"
    JSON = "json"
    """A text that is well-formed JSON."""
    XML = "xml"
    """A text that is well-formed XML."""
    MAP = "map"
    LIST = "list"
    """A list that an AMQP application sent as such."""
    STREAM = "stream"
    """The values of a JMS StreamMessage."""
    BYTES = "bytes"
    JAVA = "java"
    """A serialised Java object; recognised, never read."""
    EMPTY = "empty"


class BodyView(msgspec.Struct, frozen=True, kw_only=True):
    """A body as people see it.

    Attributes:
        kind: its kind.
        content_type: as the message says; "" = it doesn't.
        size_bytes: of the whole body, unpacked where the wire has it compressed.
        is_compressed: the wire has it compressed.
        is_cut: only a part is shown.
        text: TEXT, JSON, XML: unchanged; people edit this. BYTES: the bytes, if they are UTF-8.
        pretty: JSON, XML: indented for reading; every token is unchanged. "" = as `text`.
        entries: MAP, LIST, STREAM: the values in order, nested values after their parent.
        hex: BYTES, JAVA: the first bytes as a dump, 16 on a line.
        java_class: JAVA: name of the class, from the head of the stream; "" = not found there.
        locked: why a person can't change it; None = it may be changed.
    """

    kind: BodyKind
    content_type: str = ""
    size_bytes: int = 0
    is_compressed: bool = False
    is_cut: bool = False
    text: str = ""
    pretty: str = ""
    entries: tuple[TypedValue, ...] = ()
    hex: str = ""
    java_class: str = ""
    locked: str | None = None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message as people see it.

    Attributes:
        wire: protocol and version that it was taken over, such as `AMQP 1.0`.
        kind: the application's name for it, such as `TextMessage`; "" = the wire does not show it.
        headers: all fields except the application's properties, in the order of the wire.
        properties: of the application, in the order of the wire.
        left_out: how many headers and properties are not included.
        body: its content.
        size_bytes: of the encoded message.
        problems: the parts that can't be read, a sentence each; the rest is shown.
        property_types: types that a property may be given.
        entry_types: types that an entry of a map may be given; empty = entries can't be set.
        body_as_bytes: the body may be replaced by bytes.
        body_as_text: the body may be replaced by a text.
    """

    wire: str
    kind: str = ""
    headers: tuple[TypedValue, ...] = ()
    properties: tuple[TypedValue, ...] = ()
    left_out: int = 0
    body: BodyView
    size_bytes: int
    problems: tuple[str, ...] = ()
    property_types: tuple[ValueType, ...] = ()
    entry_types: tuple[ValueType, ...] = ()
    body_as_bytes: bool = False
    body_as_text: bool = False


class PropertyEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A property, or an entry of a map, that gets a value.

    Attributes:
        name: an entry of this name is replaced in its place; a new entry is added at the end.
        value: as `TypedValue.value`.
        type: None = the present type; a string for a new entry.
    """

    name: str
    value: str
    type: ValueType | None = None


class MessageEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edit of a message; parts that it does not name keep their bytes and their places.

    Attributes:
        text: the new body of a text message; of a bytes message as UTF-8. None = unchanged.
        data: the new body of a bytes message; None = unchanged. Not together with `text`.
        set_properties: see `PropertyEdit`.
        remove_properties: names; one that isn't there is refused.
        set_entries: of a map body.
        remove_entries: names in a map body; one that isn't there is refused.
    """

    text: str | None = None
    data: bytes | None = None
    set_properties: tuple[PropertyEdit, ...] = ()
    remove_properties: tuple[str, ...] = ()
    set_entries: tuple[PropertyEdit, ...] = ()
    remove_entries: tuple[str, ...] = ()


def describe_edit(edit: MessageEdit | None) -> str:
    """Return the names that an edit of properties removes and sets; "" = none."""
    if edit is None:
        return ""
    removed, sets = (
        ", ".join(edit.remove_properties),
        ", ".join(one.name for one in edit.set_properties),
    )
    parts = (removed and f"removes {removed}", sets and f"sets {sets}")
    return ", ".join(part for part in parts if part)


HEADER: Final = "headers stay as they were sent"
UNREADABLE: Final = "its name can't be decoded"

_COUNTS: Final = "the sidecar recognises and counts the message by it"
_DEATH: Final = "it records where and why the message died"
_SCHEDULE: Final = "the broker would take it as a request for delayed delivery"

_BY_NAME: Final = {
    PROPERTY_REDELIVERY_ID: _COUNTS,
    PROPERTY_REDELIVERY_CHECK: _COUNTS,
    PROPERTY_REDELIVERY_COUNT: _COUNTS,
    PROPERTY_REDELIVERY_DELAY: _COUNTS,
    PROPERTY_ORIGINAL_MESSAGE_ID: _COUNTS,
    PROPERTY_ORIGINAL_DUPLICATE_ID: _COUNTS,
    "amqsidecarCycle": _COUNTS,
    PROPERTY_RULES_DIGEST: _COUNTS,
    PROPERTY_ORIGINAL_DESTINATION: _DEATH,
    PROPERTY_CAUSE: _DEATH,
    "dlqDeliveryFailureCause": _DEATH,
    "originalExpiration": _DEATH,
    "originalDeliveryMode": _DEATH,
    "original-destination": _DEATH,
    "scheduledJobId": _SCHEDULE,
    "NATIVE_MESSAGE_ID": "it is the message's id",
}
_BY_PREFIX: Final = {
    "AMQ_SCHEDULED_": _SCHEDULE,
    "_AMQ_": "it belongs to the broker",
    "_HQ_": "it belongs to the broker",
    "__AMQ_": "it belongs to the broker",
    "__HDR_": "it belongs to the broker",
    "JMS": "names that begin with JMS belong to JMS",
}


def lock_of(name: str) -> str | None:
    """Return why a property of this name stays as it is; None = it may be set or removed."""
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    return next((why for prefix, why in _BY_PREFIX.items() if name.startswith(prefix)), None)
