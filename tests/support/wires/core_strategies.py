"""Packets, messages and properties of Core for Hypothesis."""

import struct
from typing import Any

from hypothesis import strategies as st

from amqsidecar.formats.core import message_packets, packets, primitives
from amqsidecar.formats.core.message import (
    NO_PROPERTIES,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    edit_properties,
)
from amqsidecar.formats.core.packet_format import CorePacket

texts = st.text(max_size=12) | st.sampled_from(
    ("", "12345678", "123456789", "ä€😀" * 4, "x" * 4095)
)
bytes_ = st.integers(-128, 127)
shorts = st.integers(-(2**15), 2**15 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
data = st.binary(max_size=40)

_kinds = CorePropertyType
properties = st.one_of(
    st.just(CoreProperty(_kinds.NULL, None)),
    st.builds(CoreProperty, st.just(_kinds.BOOLEAN), st.booleans()),
    st.builds(CoreProperty, st.just(_kinds.BYTE), bytes_),
    st.builds(CoreProperty, st.just(_kinds.BYTES), data),
    st.builds(CoreProperty, st.just(_kinds.SHORT), shorts),
    st.builds(CoreProperty, st.just(_kinds.INT), ints),
    st.builds(CoreProperty, st.just(_kinds.LONG), longs),
    st.builds(CoreProperty, st.just(_kinds.FLOAT), st.floats(width=32, allow_nan=False)),
    st.builds(CoreProperty, st.just(_kinds.DOUBLE), st.floats(allow_nan=False)),
    st.builds(CoreProperty, st.just(_kinds.STRING), texts),
    st.builds(CoreProperty, st.just(_kinds.CHAR), st.characters(max_codepoint=0xFFFF)),
)
names = st.sampled_from(("a", "aa", "_AMQ_DUPL_ID", "_AMQ_ORIG_ADDRESS", "größe")) | texts
property_maps = st.dictionaries(names, properties, max_size=6)
encoded_properties = property_maps.map(lambda found: edit_properties(NO_PROPERTIES, found))


def messages(bodies: st.SearchStrategy[bytes] = data) -> st.SearchStrategy[CoreMessage]:
    """Messages that the broker can hold."""
    return st.builds(
        CoreMessage,
        body=bodies,
        message_id=longs,
        address=st.none() | texts,
        user_id=st.none() | st.uuids(version=1).map(lambda one: one.bytes),
        kind=bytes_,
        durable=st.booleans(),
        expiration_ms=longs,
        timestamp_ms=longs,
        priority=bytes_,
        properties=encoded_properties,
    )


_parameters = st.lists(st.tuples(texts, st.booleans() | ints | longs | texts), max_size=3).map(
    tuple
)
_connectors = st.builds(primitives.Connector, texts, texts, _parameters)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": bytes_,
    "int": ints,
    "long": longs,
    "boolean": st.booleans(),
    "String": texts,
    "SimpleString": texts,
    "int, bytes": data,
    "connector": _connectors,
    "int, SimpleString each": st.lists(texts, max_size=3).map(tuple),
    "int, byte each": st.sampled_from(((), (0,), (1,), (0, 1))),
    "message": messages(),
    "headers and properties": messages(st.just(b"")),
}
_CODES = {
    "reason": st.integers(-1, 5),
    "routing_type": st.sampled_from((packets.ANYCAST, packets.MULTICAST)),
    "kind": st.sampled_from((0, 105, 210)),
}
"""Fields that hold a code, by name; the broker replaces one that it does not know."""


def _values(field: str, name: str) -> st.SearchStrategy[Any]:
    if field in _CODES:
        return _CODES[field]
    inner = name.removeprefix("nullable ")
    return _VALUES[inner] if inner == name else st.none() | _VALUES[inner]


def packets_of(kind: type[CorePacket]) -> st.SearchStrategy[CorePacket]:
    """Packets of one class."""
    if kind is message_packets.SendContinuation:
        return st.builds(
            lambda piece, size, *rest: message_packets.SendContinuation(
                piece, size is None, size, *rest
            ),
            data,
            st.none() | longs,
            st.booleans(),
            longs,
            ints,
        )
    fields = packets.FORMATS[kind].fields
    return st.builds(kind, *(_values(field.name, field.kind.name) for field in fields))


any_packet = st.sampled_from(list(packets.FORMATS)).flatmap(packets_of)


def doubled(encoded: bytes, other: bytes) -> bytes:
    """Return properties with the entries of both, so that names may be there twice."""
    parts = [one[5:] for one in (encoded, other) if one != NO_PROPERTIES]
    counts = [struct.unpack_from(">i", one, 1)[0] for one in (encoded, other) if len(one) > 1]
    if not parts:
        return NO_PROPERTIES
    return b"\x01" + struct.pack(">i", sum(counts)) + b"".join(parts)
