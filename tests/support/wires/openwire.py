"""OpenWire messages and property maps, written and read apart from the code under test."""

import struct
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

QUEUE, TOPIC, TEMP_QUEUE, TEMP_TOPIC = range(100, 104)

Destination = tuple[int, str]
ProducerId = tuple[str, int, int]


def java_text(text: str) -> bytes:
    """Modified UTF-8, one UTF-16 unit after the other."""
    encoded = bytearray()
    raw = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", raw):
        if 0 < unit < 0x80:
            encoded.append(unit)
        elif unit < 0x800:
            encoded += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            encoded += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(encoded)


def utf(text: str) -> bytes:
    data = java_text(text)
    return struct.pack(">H", len(data)) + data


def nullable(text: str | None) -> bytes:
    return b"\0" if text is None else b"\x01" + utf(text)


def entry(name: str, code: int, value: bytes) -> bytes:
    return utf(name) + bytes((code,)) + value


def text_entry(name: str, value: str) -> bytes:
    return entry(name, 9, utf(value))


def big_text_entry(name: str, value: str) -> bytes:
    """Return a text of more than 65,535 bytes."""
    data = java_text(value)
    return entry(name, 13, struct.pack(">i", len(data)) + data)


def int_entry(name: str, value: int) -> bytes:
    return entry(name, 5, struct.pack(">i", value))


def long_entry(name: str, value: int) -> bytes:
    return entry(name, 6, struct.pack(">q", value))


def property_map(*entries: bytes) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(entries)


def destination(value: Destination | None) -> bytes:
    return b"\0" if value is None else bytes((1, value[0], 1)) + utf(value[1])


def producer_id(value: ProducerId) -> bytes:
    connection, session, number = value
    return b"\x01\x7b\x01" + utf(connection) + struct.pack(">qq", number, session)


def local_transaction(connection: str, number: int) -> bytes:
    return b"\x01\x6f" + struct.pack(">q", number) + b"\x01\x78\x01" + utf(connection)


def xa_transaction(global_id: bytes, branch: bytes) -> bytes:
    parts = (b"\x01" + struct.pack(">i", len(part)) + part for part in (global_id, branch))
    return b"\x01\x70" + struct.pack(">i", 7) + b"".join(parts)


def broker_ids(*names: str) -> bytes:
    nested = b"".join(b"\x01\x7c\x01" + utf(name) for name in names)
    return b"\x01" + struct.pack(">H", len(names)) + nested


@dataclass(frozen=True)
class WireMessage:
    """Every field of a message of version 12; nested ones that we never edit are bytes.

    Attributes:
        producer: that its id names.
        sender: the producer that sends it; None = the same.
    """

    code: int = 28
    producer: ProducerId = ("ID:host-1-2-0:1", 1, 1)
    sender: ProducerId | None = None
    destination: Destination | None = (QUEUE, "ActiveMQ.DLQ")
    transaction: bytes = b"\0"
    original_destination: Destination | None = (QUEUE, "orders")
    text_view: str | None = None
    sequence: int = 7
    broker_sequence: int = 99
    original_transaction: bytes = b"\0"
    group: str | None = None
    group_sequence: int = 0
    correlation_id: str | None = None
    persistent: bool = True
    expiration: int = 0
    priority: int = 4
    reply_to: Destination | None = None
    timestamp: int = 1000
    type: str | None = None
    content: bytes | None = b"\0\0\0\x02hi"
    properties: bytes | None = None
    target_consumer: bytes = b"\0"
    compressed: bool = False
    redelivery_counter: int = 0
    broker_path: bytes = b"\0"
    arrival: int = 5
    user: str | None = None
    bridged: bool = False
    droppable: bool = False
    cluster: bytes = b"\0"
    times: tuple[int, int] = (6, 7)
    first_of_group: bool = False
    tail: bytes = field(default=b"")

    def with_(self, **changes: Any) -> "WireMessage":
        return replace(self, **changes)

    def encoded(self) -> bytes:
        def sized(data: bytes | None) -> bytes:
            return b"\0" if data is None else b"\x01" + struct.pack(">i", len(data)) + data

        return b"".join(
            (
                bytes((self.code,)) + struct.pack(">i?", 3, False),
                producer_id(self.sender or self.producer),
                destination(self.destination),
                self.transaction,
                destination(self.original_destination),
                b"\x01\x6e" + nullable(self.text_view) + producer_id(self.producer),
                struct.pack(">qq", self.sequence, self.broker_sequence),
                self.original_transaction,
                nullable(self.group) + struct.pack(">i", self.group_sequence),
                nullable(self.correlation_id),
                struct.pack(">?qB", self.persistent, self.expiration, self.priority),
                destination(self.reply_to) + struct.pack(">q", self.timestamp),
                nullable(self.type) + sized(self.content) + sized(self.properties),
                b"\0" + self.target_consumer,
                struct.pack(">?i", self.compressed, self.redelivery_counter),
                self.broker_path + struct.pack(">q", self.arrival) + nullable(self.user),
                struct.pack(">??", self.bridged, self.droppable) + self.cluster,
                struct.pack(">qq?", *self.times, self.first_of_group) + self.tail,
            )
        )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> Any:
        values = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(f">{layout}")
        return values[0] if len(values) == 1 else values

    def raw(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def utf(self) -> str:
        units = self.raw(self.take("H")).replace(b"\xc0\x80", b"\0")
        pairs = units.decode("utf-8", "surrogatepass")
        return pairs.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def nullable(self) -> str | None:
        return self.utf() if self.take("?") else None

    def sized(self) -> bytes | None:
        return self.raw(self.take("i")) if self.take("?") else None

    def nested(self) -> bytes:
        start = self.at
        if self.take("?"):
            code = self.take("B")
            if code in (122, 123):
                self.nullable()
                self.raw(16)
            elif code == 111:
                self.take("q")
                self.nested()
            elif code == 112:
                self.take("i")
                self.sized()
                self.sized()
            else:
                assert code in (*range(100, 104), 120, 124), code
                self.nullable()
        return self.data[start : self.at]

    def array(self) -> bytes:
        start = self.at
        if self.take("?"):
            for _ in range(self.take("H")):
                self.nested()
        return self.data[start : self.at]

    def destination(self) -> Destination | None:
        if not self.take("?"):
            return None
        code = self.take("B")
        name = self.nullable()
        assert name is not None
        return code, name

    def producer(self) -> ProducerId:
        assert self.take("BB") == (1, 123)
        connection = self.nullable()
        assert connection is not None
        number, session = self.take("qq")
        return connection, session, number


def read_message(data: bytes) -> WireMessage:
    """Return the fields of a message command."""
    reader = _Reader(data)
    fields: dict[str, Any] = {"code": reader.take("B")}
    reader.raw(5)
    reader.producer()
    fields["destination"] = reader.destination()
    fields["transaction"] = reader.nested()
    fields["original_destination"] = reader.destination()
    assert reader.take("BB") == (1, 110)
    fields["text_view"] = reader.nullable()
    fields["producer"] = reader.producer()
    fields["sequence"], fields["broker_sequence"] = reader.take("qq")
    fields["original_transaction"] = reader.nested()
    fields["group"], fields["group_sequence"] = reader.nullable(), reader.take("i")
    fields["correlation_id"] = reader.nullable()
    fields["persistent"], fields["expiration"], fields["priority"] = reader.take("?qB")
    fields["reply_to"], fields["timestamp"] = reader.destination(), reader.take("q")
    fields["type"], fields["content"] = reader.nullable(), reader.sized()
    fields["properties"] = reader.sized()
    assert reader.nested() == b"\0"
    fields["target_consumer"] = reader.nested()
    fields["compressed"], fields["redelivery_counter"] = reader.take("?i")
    fields["broker_path"], fields["arrival"] = reader.array(), reader.take("q")
    fields["user"] = reader.nullable()
    fields["bridged"], fields["droppable"] = reader.take("??")
    fields["cluster"] = reader.array()
    *times, first = reader.take("qq?")
    fields["times"], fields["first_of_group"] = tuple(times), first
    fields["tail"] = data[reader.at :]
    return WireMessage(**fields)


def read_properties(data: bytes | None) -> dict[str, Any]:
    """Return numbers, booleans and texts by name; other values as None."""
    reader = _Reader(data or b"\0\0\0\0")
    return {reader.utf(): _value(reader) for _ in range(reader.take("i"))}


def _value(reader: _Reader) -> Any:
    code = reader.take("B")
    layouts = {1: "?", 2: "b", 4: "h", 5: "i", 6: "q", 7: "d", 8: "f"}
    if code in layouts:
        return reader.take(layouts[code])
    if code == 9:
        return reader.utf()
    if code in (10, 13):
        data = reader.raw(reader.take("i"))
        return data.decode() if code == 13 else None
    assert code in (0, 3), code
    reader.raw(2 if code == 3 else 0)
    return None


_FIXED = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 8, 7: 8, 8: 4}

texts = st.text(st.characters(exclude_categories=()), max_size=12)
long_numbers = st.integers(-(2**63), 2**63 - 1)


def _fixed(code: int) -> st.SearchStrategy[bytes]:
    size = _FIXED[code]
    return st.binary(min_size=size, max_size=size).map(lambda value: bytes((code,)) + value)


def _collection(code: int, items: list[bytes]) -> bytes:
    return bytes((code,)) + struct.pack(">i", len(items)) + b"".join(items)


scalars = st.one_of(
    *(_fixed(code) for code in _FIXED),
    texts.map(lambda text: b"\x09" + utf(text)),
    st.binary(max_size=20).map(lambda data: b"\x0a" + struct.pack(">i", len(data)) + data),
    texts.map(lambda text: b"\x0d" + struct.pack(">i", len(java_text(text))) + java_text(text)),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.tuples(texts, inner).map(lambda pair: utf(pair[0]) + pair[1]), max_size=3).map(
            lambda items: _collection(11, items)
        ),
        st.lists(inner, max_size=3).map(lambda items: _collection(12, items)),
    ),
    max_leaves=6,
)
"""Encoded values with their type byte, of every type there is."""

entries = st.dictionaries(texts, values, max_size=8).map(
    lambda found: {name: utf(name) + value for name, value in found.items()}
)
"""Encoded map entries by name."""
